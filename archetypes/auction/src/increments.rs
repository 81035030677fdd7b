//! How much more the next bid must offer. Beyond the documents, which say only "higher".
//!
//! Without a step, an auction ends in a war of single cents, and every cent is a transaction.

use crate::domain::Amount;

/// From this price on, the next bid must be at least this much higher. Minor units.
pub const INCREMENTS: &[(Amount, Amount)] = &[
    (0, 5),
    (1_00, 25),
    (5_00, 50),
    (25_00, 1_00),
    (100_00, 2_50),
    (250_00, 5_00),
    (500_00, 10_00),
    (1_000_00, 25_00),
    (2_500_00, 50_00),
    (5_000_00, 100_00),
];

/// The step above `price`.
pub fn above(price: Amount) -> Amount {
    let band = INCREMENTS.iter().rev().find(|(from, _)| price >= *from);
    band.map_or(INCREMENTS[0].1, |(_, step)| *step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_that_of_the_band_the_price_is_in() {
        assert_eq!(above(0), 5);
        assert_eq!(above(99), 5);
        assert_eq!(above(100), 25);
        assert_eq!(above(124_99), 2_50);
        assert_eq!(above(1_000_000_00), 100_00);
    }

    #[test]
    fn steps_and_bands_grow() {
        assert!(INCREMENTS.is_sorted_by(|low, high| low.0 < high.0 && low.1 < high.1));
    }
}
