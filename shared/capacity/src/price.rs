//! Dollars, from price sets that carry their date.
//!
//! Prices are data because they change: on-demand capacity halved in November 2024, and those of the
//! documents that quote a price quote the old one. A bill is therefore always asked of a price set.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul};

use crate::size::{GB, KB};
use crate::units::Units;

/// An amount in pico-dollars.
///
/// Nano-dollars would be too coarse: half of a current read unit is 62.5 of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money {
    pico: u128,
}

const PICO_PER_DOLLAR: u128 = 1_000_000_000_000;

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self { pico: 0 };

    /// Trillionths of a dollar.
    pub const fn pico_dollars(n: u128) -> Self {
        Self { pico: n }
    }

    /// Billionths of a dollar: the price per million in thousandths of a dollar.
    pub const fn nano_dollars(n: u64) -> Self {
        Self {
            pico: n as u128 * 1_000,
        }
    }

    /// Hundredths of a dollar.
    pub const fn cents(n: u64) -> Self {
        Self {
            pico: n as u128 * 10_000_000_000,
        }
    }

    /// The amount in pico-dollars.
    pub const fn as_pico_dollars(self) -> u128 {
        self.pico
    }

    /// This price per GB, for a number of bytes, rounded up to the pico-dollar.
    fn per_gb(self, bytes: u64) -> Self {
        Self {
            pico: (self.pico * u128::from(bytes)).div_ceil(u128::from(GB)),
        }
    }
}

impl fmt::Display for Money {
    /// Exact, with at least two decimals: `$9.50`, `$0.00000125`. Asking for a precision, as in
    /// `{:.2}`, rounds to it, halves upwards.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().map_or(12, |wanted| wanted.min(12));
        let step = 10_u128.pow(12 - decimals as u32);
        let pico = (self.pico + step / 2) / step * step;
        let (dollars, rest) = (pico / PICO_PER_DOLLAR, pico % PICO_PER_DOLLAR);
        if decimals == 0 {
            return write!(f, "${dollars}");
        }
        let fraction = format!("{rest:012}");
        let shown = match f.precision() {
            Some(_) => decimals,
            None => fraction.trim_end_matches('0').len().max(2),
        };
        write!(f, "${dollars}.{}", &fraction[..shown])
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            pico: self.pico + other.pico,
        }
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::ZERO, Add::add)
    }
}

impl Mul<u64> for Money {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self {
            pico: self.pico * u128::from(times),
        }
    }
}

impl Mul<Units> for Money {
    type Output = Self;
    /// A price per unit, times units. Exact for every price set here, since all are even.
    fn mul(self, units: Units) -> Self {
        Self {
            pico: self.pico * u128::from(units.as_halves()) / 2,
        }
    }
}

/// Hours in the month of a bill: thirty days, as the documents count. AWS's own calculator uses 730.
pub const HOURS_PER_MONTH: u64 = 30 * 24;

/// What one region charged, and when. Every price is for one unit, request or GB-month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// The AWS region.
    pub region: &'static str,
    /// A day on which these prices were in force.
    pub as_of: &'static str,
    /// Where they are published.
    pub source: &'static str,
    /// On-demand, one read request unit.
    pub on_demand_read: Money,
    /// On-demand, one write request unit.
    pub on_demand_write: Money,
    /// Provisioned, one read unit per second for an hour.
    pub provisioned_read_hour: Money,
    /// Provisioned, one write unit per second for an hour.
    pub provisioned_write_hour: Money,
    /// DynamoDB, tables and indexes, standard class.
    pub storage_gb_month: Money,
    /// DynamoDB point-in-time recovery, on top of storage.
    pub recovery_gb_month: Money,
    /// DynamoDB Streams, one `GetRecords` call.
    pub stream_read: Money,
    /// SQS standard queues, one request; see [`sqs_requests`].
    pub sqs_request: Money,
    /// S3 standard, one PUT, COPY, POST or LIST.
    pub s3_put: Money,
    /// S3 standard, one GET or HEAD.
    pub s3_get: Money,
    /// S3 standard, the first 50 TB.
    pub s3_gb_month: Money,
    /// What a month has for nothing.
    pub free: Allowance,
}

/// What a month has for nothing, per account and region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowance {
    /// DynamoDB storage, in either capacity mode.
    pub storage_bytes: u64,
    /// Provisioned read units per second. On-demand reads have no free tier.
    pub provisioned_reads_per_second: u64,
    /// Provisioned write units per second. On-demand writes have no free tier.
    pub provisioned_writes_per_second: u64,
    /// `GetRecords` calls on DynamoDB Streams.
    pub stream_reads: u64,
    /// SQS requests.
    pub sqs_requests: u64,
}

/// Whether a bill takes off what is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FreeTier {
    /// The account has nothing else running.
    Applied,
    /// The allowance is used up elsewhere, or the marginal price is wanted.
    Ignored,
}

impl FreeTier {
    fn beyond(self, used: u64, free: u64) -> u64 {
        match self {
            Self::Applied => used.saturating_sub(free),
            Self::Ignored => used,
        }
    }
}

/// A month's use of tables that pay per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDemand {
    /// Read units consumed in the month.
    pub reads: Units,
    /// Write units consumed in the month, those of the indexes included.
    pub writes: Units,
    /// Bytes stored, see [`storage_bytes`](crate::storage_bytes).
    pub stored_bytes: u64,
}

/// A month of tables that pay for what they could do, used or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provisioned {
    /// Read units per second, over all tables and indexes.
    pub reads_per_second: u64,
    /// Write units per second, over all tables and indexes.
    pub writes_per_second: u64,
    /// Bytes stored, see [`storage_bytes`](crate::storage_bytes).
    pub stored_bytes: u64,
}

/// A month of DynamoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bill {
    /// For reading.
    pub reads: Money,
    /// For writing.
    pub writes: Money,
    /// For keeping.
    pub storage: Money,
}

impl Bill {
    /// The sum.
    pub fn total(&self) -> Money {
        self.reads + self.writes + self.storage
    }
}

/// How many SQS requests one call with this payload is billed as: one per 64 KB begun. A batch of
/// ten small messages is one request.
pub fn sqs_requests(payload_bytes: u64) -> u64 {
    payload_bytes.div_ceil(64 * KB).max(1)
}

impl Prices {
    /// The prices the documents quote.
    pub const BEFORE_NOVEMBER_2024: Self = Self {
        region: "us-east-1",
        as_of: "2024-10-31",
        source: "AWS pricing pages of DynamoDB, SQS and S3",
        on_demand_read: Money::nano_dollars(250),
        on_demand_write: Money::nano_dollars(1_250),
        provisioned_read_hour: Money::nano_dollars(130_000),
        provisioned_write_hour: Money::nano_dollars(650_000),
        storage_gb_month: Money::cents(25),
        recovery_gb_month: Money::cents(20),
        stream_read: Money::nano_dollars(200),
        sqs_request: Money::nano_dollars(400),
        s3_put: Money::nano_dollars(5_000),
        s3_get: Money::nano_dollars(400),
        s3_gb_month: Money::nano_dollars(23_000_000),
        free: Allowance {
            storage_bytes: 25 * GB,
            provisioned_reads_per_second: 25,
            provisioned_writes_per_second: 25,
            stream_reads: 2_500_000,
            sqs_requests: 1_000_000,
        },
    };

    /// On-demand capacity at half the price; all else as before.
    pub const SINCE_NOVEMBER_2024: Self = Self {
        as_of: "2024-11-01",
        on_demand_read: Money::nano_dollars(125),
        on_demand_write: Money::nano_dollars(625),
        ..Self::BEFORE_NOVEMBER_2024
    };

    /// What to quote today.
    pub const CURRENT: Self = Self::SINCE_NOVEMBER_2024;

    /// What these units cost on demand: the price of one action.
    pub fn on_demand(&self, reads: Units, writes: Units) -> Money {
        self.on_demand_read * reads + self.on_demand_write * writes
    }

    /// A month of on-demand tables. The free tier touches storage only.
    pub fn monthly_on_demand(&self, month: &OnDemand, free_tier: FreeTier) -> Bill {
        Bill {
            reads: self.on_demand_read * month.reads,
            writes: self.on_demand_write * month.writes,
            storage: self.monthly_storage(month.stored_bytes, free_tier),
        }
    }

    /// A month of provisioned tables.
    pub fn monthly_provisioned(&self, month: &Provisioned, free_tier: FreeTier) -> Bill {
        let free = &self.free;
        let reads = free_tier.beyond(month.reads_per_second, free.provisioned_reads_per_second);
        let writes = free_tier.beyond(month.writes_per_second, free.provisioned_writes_per_second);
        Bill {
            reads: self.provisioned_read_hour * reads * HOURS_PER_MONTH,
            writes: self.provisioned_write_hour * writes * HOURS_PER_MONTH,
            storage: self.monthly_storage(month.stored_bytes, free_tier),
        }
    }

    /// A month of storage in DynamoDB, the same in both modes.
    pub fn monthly_storage(&self, stored_bytes: u64, free_tier: FreeTier) -> Money {
        let billed = free_tier.beyond(stored_bytes, self.free.storage_bytes);
        self.storage_gb_month.per_gb(billed)
    }

    /// A month of `GetRecords` calls. A poller calls whether or not anything happened.
    pub fn monthly_streams(&self, reads: u64, free_tier: FreeTier) -> Money {
        self.stream_read * free_tier.beyond(reads, self.free.stream_reads)
    }

    /// A month of SQS requests: sends, receives (the empty ones too) and deletes alike.
    pub fn monthly_sqs(&self, requests: u64, free_tier: FreeTier) -> Money {
        self.sqs_request * free_tier.beyond(requests, self.free.sqs_requests)
    }

    /// A month of S3, which has no lasting free tier.
    pub fn monthly_s3(&self, puts: u64, gets: u64, stored_bytes: u64) -> Money {
        self.s3_put * puts + self.s3_get * gets + self.s3_gb_month.per_gb(stored_bytes)
    }
}
