//! What a call costs: capacity units, item sizes and prices, as pure arithmetic.
//!
//! In reading order:
//!
//! 1. [`units`]: read and write units of every kind of call, from sizes in bytes;
//! 2. [`size`]: how many bytes DynamoDB counts for an item;
//! 3. [`index`]: what a write costs in a secondary index, where a changed key costs two;
//! 4. [`price`]: dollars, from price sets that carry their date;
//! 5. [`limits`]: the numbers every design has to stay under.
//!
//! Capacity is counted in half units and money in pico-dollars, both integers: half a unit is the
//! smallest thing DynamoDB charges, and half of the cheapest unit is 62,500 pico-dollars. A float
//! appears only where DynamoDB itself sends one (`ConsumedCapacity.CapacityUnits`).
//!
//! `tests/documents.rs` redoes the worked examples of the source documents and says where their
//! figures are wrong.
//!
//! ```
//! use capacity::{FreeTier, GB, KB, OnDemand, Prices, Read, read_units, write_units};
//!
//! let read = read_units(8 * KB, Read::Eventual);
//! let write = write_units(0, 3 * KB);
//! assert_eq!((read.to_string(), write.to_string()), ("1".into(), "3".into()));
//!
//! let month = OnDemand { reads: read * 1_000_000, writes: write * 1_000_000, stored_bytes: 30 * GB };
//! let bill = Prices::CURRENT.monthly_on_demand(&month, FreeTier::Applied);
//! assert_eq!(bill.total().to_string(), "$3.25");
//! ```

pub mod index;
pub mod limits;
pub mod price;
pub mod size;
pub mod units;

pub use index::{Index, Projection};
pub use price::{Bill, FreeTier, Money, OnDemand, Prices, Provisioned};
pub use size::{GB, KB, NotAnItem, item_size, storage_bytes};
pub use units::{
    NotUnits, Read, Units, batch_get_units, query_units, read_units, refused_write_units,
    replayed_transaction_units, transact_write_units, write_units,
};
