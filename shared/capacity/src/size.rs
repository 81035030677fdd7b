//! How many bytes DynamoDB counts for an item.
//!
//! Attribute names count like values, which is why real tables have short ones.

use std::fmt;

use serde_json::Value;

/// 1,024 bytes, what DynamoDB means by KB.
pub const KB: u64 = 1024;

/// 1,024³ bytes, what the bill means by GB.
pub const GB: u64 = KB * KB * KB;

/// Added to every item and every index entry when storage is billed; capacity does not count it.
pub const STORAGE_OVERHEAD_BYTES: u64 = 100;

/// The size of an item in DynamoDB's own JSON, such as `{"amount": {"N": "12"}}`.
///
/// This is the size that capacity and the 400 KB limit are counted on. Numbers follow what AWS was
/// measured to charge, where its documentation says "approximately": one byte, one per two
/// significant digits on either side of the decimal point, one more if negative.
pub fn item_size(item: &Value) -> Result<u64, NotAnItem> {
    let attributes = item
        .as_object()
        .ok_or_else(|| NotAnItem(item.to_string()))?;
    attributes
        .iter()
        .map(|(name, value)| Ok(bytes(name) + value_size(value)?))
        .sum()
}

/// What an item of `size` bytes takes on the storage bill.
///
/// There is no clock in it: an item past its TTL is billed like any other until it is deleted.
pub fn storage_bytes(size: u64) -> u64 {
    size + STORAGE_OVERHEAD_BYTES
}

/// JSON that is no item, or a part of one that is no attribute value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnItem(String);

impl fmt::Display for NotAnItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not DynamoDB JSON: {}", self.0)
    }
}

impl std::error::Error for NotAnItem {}

fn value_size(value: &Value) -> Result<u64, NotAnItem> {
    let refused = || NotAnItem(value.to_string());
    let tagged = value.as_object().filter(|tags| tags.len() == 1);
    let (tag, content) = tagged
        .and_then(|tags| tags.iter().next())
        .ok_or_else(refused)?;

    let scalar = |measure: fn(&str) -> Option<u64>| content.as_str().and_then(measure);
    let set = |measure: fn(&str) -> Option<u64>| {
        let elements = content.as_array()?.iter();
        elements.map(|element| measure(element.as_str()?)).sum()
    };
    let size = match tag.as_str() {
        "S" => scalar(string_size),
        "N" => scalar(number_size),
        "B" => scalar(base64_size),
        "SS" => set(string_size),
        "NS" => set(number_size),
        "BS" => set(base64_size),
        "BOOL" | "NULL" => content.as_bool().map(|_| 1),
        // Documents: three bytes for the container, one for each element in it.
        "L" => {
            let elements = content.as_array().ok_or_else(refused)?.iter();
            let sizes = elements.map(|element| Ok(1 + value_size(element)?));
            return Ok(3 + sizes.sum::<Result<u64, _>>()?);
        }
        "M" => {
            let pairs = content.as_object().ok_or_else(refused)?.iter();
            let sizes = pairs.map(|(name, value)| Ok(1 + bytes(name) + value_size(value)?));
            return Ok(3 + sizes.sum::<Result<u64, _>>()?);
        }
        _ => None,
    };
    size.ok_or_else(refused)
}

fn bytes(text: &str) -> u64 {
    text.len() as u64
}

fn string_size(text: &str) -> Option<u64> {
    Some(bytes(text))
}

/// Binary travels as base64 and is charged raw: three bytes for each four letters, less the padding.
fn base64_size(text: &str) -> Option<u64> {
    let padding = bytes(text) - bytes(text.trim_end_matches('='));
    (text.len().is_multiple_of(4) && padding <= 2).then(|| bytes(text) / 4 * 3 - padding)
}

/// Two decimal digits share a byte, and no pair straddles the decimal point: 1.5 takes two such
/// bytes where 15 takes one. Zeros at either end are free, however they were written.
fn number_size(text: &str) -> Option<u64> {
    let negative = text.starts_with('-');
    let magnitude = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (magnitude, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }

    let significant = digits.trim_matches('0').len() as i64;
    match significant {
        0 => return Some(1),
        1..=38 => {}
        _ => return None,
    }
    let leading_zeros = digits.len() - digits.trim_start_matches('0').len();
    let point = whole.len() as i64 + i64::from(exponent) - leading_zeros as i64;
    let before = point.clamp(0, significant) as u64;
    let after = significant as u64 - before;
    Some(1 + before.div_ceil(2) + after.div_ceil(2) + u64::from(negative))
}
