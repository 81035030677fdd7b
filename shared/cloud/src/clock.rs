//! The time, as an argument that tests turn by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch: what every `_at` and `_time` attribute holds.
pub type Millis = i64;

/// Where `now` comes from. A lease that expires in a test expires because somebody turned this,
/// never because somebody slept.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A clock that stands still until it is turned. Clones share the hands.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `start` until it is turned.
    pub fn manual(start: Millis) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start)))
    }

    /// Now, in epoch milliseconds.
    pub fn now(&self) -> Millis {
        match self {
            Self::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as Millis),
            Self::Manual(hands) => hands.load(Ordering::SeqCst),
        }
    }

    /// Turns a manual clock forward.
    ///
    /// # Panics
    /// On the system clock, which nobody turns.
    pub fn advance(&self, by: Duration) {
        let Self::Manual(hands) = self else {
            panic!("the system clock cannot be turned; connect with Clock::manual");
        };
        hands.fetch_add(by.as_millis() as Millis, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_its_hands() {
        let clock = Clock::manual(1_000);
        let other = clock.clone();
        clock.advance(Duration::from_secs(2));
        assert_eq!(other.now(), 3_000);
    }

    #[test]
    #[should_panic(expected = "cannot be turned")]
    fn the_system_clock_cannot_be_turned() {
        Clock::System.advance(Duration::from_secs(1));
    }
}
