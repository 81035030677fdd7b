//! Soft close: a late bid moves the end, so that nobody wins by being the last to click.
//! Beyond the documents.

use cloud::Millis;

/// The end after a bid at `now`: at least `window` ms of it are left. It never moves back.
pub fn end_after_bid(end_time: Millis, now: Millis, window: Millis) -> Millis {
    if window == 0 {
        end_time
    } else {
        end_time.max(now + window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_bid_moves_the_end_and_an_early_one_does_not() {
        assert_eq!(end_after_bid(10_000, 9_500, 2_000), 11_500);
        assert_eq!(end_after_bid(10_000, 1_000, 2_000), 10_000);
        assert_eq!(end_after_bid(10_000, 9_999, 0), 10_000);
    }
}
