//! Read and write units, from sizes in bytes.
//!
//! One write unit carries 1 KB and one strongly consistent read unit 4 KB. An eventually consistent
//! read costs half of that, a transaction twice. Where the rounding happens decides most of the
//! surprises: a Query adds sizes up first and rounds once, everything else rounds item by item.
//!
//! An absent item has size 0 here. That is unambiguous, since a stored item has at least its key.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

use crate::size::KB;

/// Capacity units, read or write, counted in halves.
///
/// Halves rather than tenths: every charge is a multiple of one eventually consistent read of up to
/// 4 KB, so nothing is ever rounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units {
    halves: u64,
}

impl Units {
    /// No capacity at all, what an index costs when a write does not touch it.
    pub const ZERO: Self = Self { halves: 0 };

    /// `n` whole units.
    pub const fn whole(n: u64) -> Self {
        Self { halves: n * 2 }
    }

    /// `n` half units.
    pub const fn halves(n: u64) -> Self {
        Self { halves: n }
    }

    /// The number of half units, for exact arithmetic elsewhere.
    pub const fn as_halves(self) -> u64 {
        self.halves
    }

    /// The figure as DynamoDB reports it.
    pub fn as_f64(self) -> f64 {
        self.halves as f64 / 2.0
    }
}

impl TryFrom<f64> for Units {
    type Error = NotUnits;

    /// Reads a reported `CapacityUnits`. A figure that is no multiple of one half is refused rather
    /// than rounded: it would mean that this crate has misunderstood a charge.
    fn try_from(reported: f64) -> Result<Self, NotUnits> {
        let halves = reported * 2.0;
        // Past 2^53 a double no longer holds every integer.
        if halves.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&halves) {
            Ok(Self::halves(halves as u64))
        } else {
            Err(NotUnits(reported))
        }
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let half = if self.halves % 2 == 1 { ".5" } else { "" };
        write!(f, "{}{half}", self.halves / 2)
    }
}

impl Add for Units {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::halves(self.halves + other.halves)
    }
}

impl AddAssign for Units {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Units {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self::halves(self.halves * times)
    }
}

impl Sum for Units {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

/// A reported figure that is negative, not finite, or no multiple of half a unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NotUnits(pub f64);

impl fmt::Display for NotUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a number of capacity units", self.0)
    }
}

impl std::error::Error for NotUnits {}

/// How a read is asked for, which is what it costs per 4 KB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Read {
    /// The default, and all a global secondary index offers: half a unit.
    Eventual,
    /// `ConsistentRead: true`: one unit.
    Strong,
    /// `TransactGetItems`: two units.
    Transactional,
}

impl Read {
    const fn per_4_kb(self) -> Units {
        match self {
            Self::Eventual => Units::halves(1),
            Self::Strong => Units::whole(1),
            Self::Transactional => Units::whole(2),
        }
    }
}

/// `GetItem` of an item of `size` bytes. Finding nothing (size 0) costs as much as a small item.
///
/// The size is the stored item's: a projection expression saves bytes on the wire, not units.
pub fn read_units(size: u64, read: Read) -> Units {
    read.per_4_kb() * size.div_ceil(4 * KB).max(1)
}

/// One page of `Query` or `Scan` that went over `total_bytes` of items: added up, then rounded once.
///
/// Count what was read, not what came back; a filter expression drops items after they are paid for.
/// DynamoDB charges an empty `Scan` once per partition it looked at, which no caller can know.
pub fn query_units(total_bytes: u64, read: Read) -> Units {
    read_units(total_bytes, read)
}

/// `BatchGetItem`, or `TransactGetItems` with [`Read::Transactional`]: each item rounded by itself.
pub fn batch_get_units(sizes: impl IntoIterator<Item = u64>, read: Read) -> Units {
    sizes.into_iter().map(|size| read_units(size, read)).sum()
}

/// `PutItem`, `UpdateItem` or `DeleteItem`, by the size of the item before and after, 0 for absent.
///
/// The larger of the two counts, so shrinking an item costs what the large one did, an update of one
/// attribute costs the whole item, and deleting what was never there costs one unit. A condition
/// adds nothing. Indexes are charged apart, see [`Index::write_units`](crate::Index::write_units).
pub fn write_units(old_size: u64, new_size: u64) -> Units {
    Units::whole(old_size.max(new_size).div_ceil(KB).max(1))
}

/// A write whose condition failed: it costs what it would have cost, and no index is touched.
///
/// Hence a lost race is as dear as a won one, and retrying in a loop multiplies the bill. DynamoDB
/// does not report this cost, since the answer is an error. Where the attempted size is unknown
/// (an `UpdateItem`, a delete), give 0: the existing item decides, with one unit as the least.
pub fn refused_write_units(existing_size: u64, attempted_size: u64) -> Units {
    write_units(existing_size, attempted_size)
}

/// `TransactWriteItems`: every action costs twice what it would alone, to prepare and to commit.
///
/// Each action is its item's size before and after. A `ConditionCheck` writes nothing and is charged
/// as a write of the item it looks at: `(size, size)`. Indexes are not doubled.
pub fn transact_write_units(actions: impl IntoIterator<Item = (u64, u64)>) -> Units {
    let once: Units = actions
        .into_iter()
        .map(|(old, new)| write_units(old, new))
        .sum();
    once * 2
}

/// The *read* units of a `TransactWriteItems` sent again under a `ClientRequestToken` that DynamoDB
/// still remembers: it reads what it wrote, transactionally, and writes nothing.
pub fn replayed_transaction_units(actions: impl IntoIterator<Item = (u64, u64)>) -> Units {
    let larger = actions.into_iter().map(|(old, new)| old.max(new));
    batch_get_units(larger, Read::Transactional)
}
