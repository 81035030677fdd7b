//! Identities: UUIDv7 in life, counted in walkthroughs and tests, so that transcripts are stable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Makes identities of a kind: `ids.next("bid")`.
#[derive(Clone, Debug)]
pub enum Ids {
    /// `bid-0198c9a7…`: UUIDv7, so that ids made later sort later and need no coordination.
    Uuid,
    /// `bid-0001`, `bid-0002`, …: a count for each kind, after a common prefix.
    /// The prefix keeps two tests apart that share one table (docker, aws).
    Counted(Arc<str>, Arc<Mutex<HashMap<String, u64>>>),
}

impl Ids {
    /// Ids that count from one for each kind.
    pub fn counted() -> Self {
        Self::counted_after("")
    }

    /// Counted ids, with `prefix` between kind and count.
    pub fn counted_after(prefix: &str) -> Self {
        Self::Counted(prefix.into(), Arc::default())
    }

    /// The next identity of this kind.
    pub fn next(&self, kind: &str) -> String {
        match self {
            Self::Uuid => format!("{kind}-{}", Uuid::now_v7().simple()),
            Self::Counted(prefix, counts) => {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                let count = counts.entry(kind.to_owned()).or_default();
                *count += 1;
                format!("{kind}-{prefix}{count:04}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_ids_count_each_kind_by_itself() {
        let ids = Ids::counted();
        assert_eq!(ids.next("bid"), "bid-0001");
        assert_eq!(ids.next("auction"), "auction-0001");
        assert_eq!(ids.next("bid"), "bid-0002");
    }

    #[test]
    fn uuid_ids_made_later_sort_later() {
        let ids = Ids::Uuid;
        let made: Vec<_> = (0..1_000).map(|_| ids.next("bid")).collect();
        assert!(made.is_sorted());
    }
}
