//! Amounts: integers in the smallest unit of their currency, and what they look like to people.
//!
//! 1234 is 12.34 EUR, 1234 JPY and 1.234 KWD. Nothing here is ever a float.

use iso_currency::Currency;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Minor units. Signed, so that a difference can be one.
pub type Amount = i64;

/// The largest amount of one payment: twelve digits, as card networks carry them.
pub const MAX_AMOUNT: Amount = 999_999_999_999;

/// An ISO 4217 code of money that can be paid with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unit(Currency);

impl Unit {
    /// How many digits stand after the point: two for EUR, none for JPY, three for KWD.
    pub fn exponent(self) -> usize {
        self.0.exponent().map_or(0, usize::from)
    }

    /// `12.34 EUR`.
    pub fn text(self, amount: Amount) -> String {
        let digits = self.exponent();
        let sign = if amount < 0 { "-" } else { "" };
        let padded = format!("{:0>width$}", amount.unsigned_abs(), width = digits + 1);
        let (whole, part) = padded.split_at(padded.len() - digits);
        let point = if digits == 0 { "" } else { "." };
        format!("{sign}{whole}{point}{part} {self}")
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.code())
    }
}

impl TryFrom<String> for Unit {
    type Error = String;

    /// Nobody pays by card in gold, test codes, drawing rights or funds.
    fn try_from(code: String) -> Result<Self, String> {
        Currency::from_code(&code)
            .filter(|currency| currency.exponent().is_some())
            .filter(|currency| !currency.is_fund() && !currency.is_special())
            .map(Self)
            .ok_or_else(|| {
                format!("'{code}' is no currency to pay in: use an ISO 4217 code such as EUR")
            })
    }
}

impl From<Unit> for String {
    fn from(unit: Unit) -> Self {
        unit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(code: &str) -> Unit {
        Unit::try_from(code.to_owned()).expect("a currency")
    }

    #[test]
    fn an_amount_is_shown_with_the_digits_of_its_currency() {
        assert_eq!(unit("EUR").text(12_34), "12.34 EUR");
        assert_eq!(unit("EUR").text(5), "0.05 EUR");
        assert_eq!(unit("JPY").text(1234), "1234 JPY");
        assert_eq!(unit("KWD").text(1234), "1.234 KWD");
        assert_eq!(unit("EUR").text(-5), "-0.05 EUR");
        assert_eq!(unit("JPY").text(0), "0 JPY");
    }

    #[test]
    fn what_nobody_pays_in_is_no_currency() {
        for code in ["", "EURO", "eur", "XAU", "XTS", "XXX", "XDR", "CHE", "CLF"] {
            assert!(Unit::try_from(code.to_owned()).is_err(), "{code}");
        }
    }
}
