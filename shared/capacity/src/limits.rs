//! The numbers every design has to stay under, named so that code and prose quote the same ones.

use crate::size::{GB, KB};

/// Write units one partition takes per second. A hot key cannot have more, whatever the table has,
/// and an index key that takes every write is a hot key.
pub const PARTITION_WCU_PER_SECOND: u64 = 1_000;
/// Read units one partition gives per second.
pub const PARTITION_RCU_PER_SECOND: u64 = 3_000;
/// An item, names and values together, in [`item_size`](crate::item_size)'s count.
pub const ITEM_MAX_BYTES: u64 = 400 * KB;
/// A partition key's value.
pub const PARTITION_KEY_MAX_BYTES: u64 = 2 * KB;
/// A sort key's value.
pub const SORT_KEY_MAX_BYTES: u64 = KB;
/// What one `Query` or `Scan` reads before it hands back a `LastEvaluatedKey`, filtered or not.
pub const PAGE_MAX_BYTES: u64 = KB * KB;
/// Everything under one partition key, indexes included, in a table that has a local index.
pub const ITEM_COLLECTION_MAX_BYTES: u64 = 10 * GB;
/// Global secondary indexes on one table, unless AWS is asked for more.
pub const GLOBAL_INDEXES_PER_TABLE: u64 = 20;

/// Actions in one `TransactWriteItems` or `TransactGetItems`, each on another item.
pub const TRANSACTION_MAX_ITEMS: usize = 100;
/// All items of one transaction together.
pub const TRANSACTION_MAX_BYTES: u64 = 4 * KB * KB;
/// How long a `ClientRequestToken` is remembered; after that the same token writes again.
pub const CLIENT_REQUEST_TOKEN_SECONDS: u64 = 10 * 60;
/// Keys in one `BatchGetItem`.
pub const BATCH_GET_MAX_ITEMS: usize = 100;
/// Puts and deletes in one `BatchWriteItem`; it takes no updates and no conditions.
pub const BATCH_WRITE_MAX_ITEMS: usize = 25;
/// What one batch call carries, either way, before the rest comes back unprocessed.
pub const BATCH_MAX_BYTES: u64 = 16 * KB * KB;

/// How long a stream keeps a record. A consumer that is down for longer has lost events.
pub const STREAM_RETENTION_SECONDS: u64 = 24 * 60 * 60;
/// Consumers that can read one stream shard at a time without being throttled.
pub const STREAM_READERS_PER_SHARD: u64 = 2;
/// TTL leaves alone what expired longer ago than this. A time in milliseconds lies far in the
/// *future*, and never expires for that reason.
pub const TTL_OLDEST_EXPIRY_SECONDS: u64 = 5 * 365 * 24 * 60 * 60;

/// `DelaySeconds` of a message. What is due later has to wait in a table.
pub const SQS_MAX_DELAY_SECONDS: u64 = 900;
/// How long a received message can stay hidden, counted from the receive.
pub const SQS_MAX_VISIBILITY_SECONDS: u64 = 12 * 60 * 60;
/// How long one receive can wait for a message.
pub const SQS_MAX_WAIT_SECONDS: u64 = 20;
/// How long a queue can keep a message; four days unless it is told otherwise.
pub const SQS_MAX_RETENTION_SECONDS: u64 = 14 * 24 * 60 * 60;
/// Messages in one batch.
pub const SQS_BATCH_MAX_MESSAGES: usize = 10;
/// A message, or a whole batch. AWS has raised it to 1 MiB since; this is what every backend takes,
/// and four billed requests already.
pub const SQS_MAX_MESSAGE_BYTES: u64 = 256 * KB;

/// The least a part of a multipart upload holds, except the last.
pub const S3_PART_MIN_BYTES: u64 = 5 * KB * KB;
/// Parts in one multipart upload.
pub const S3_MAX_PARTS: u64 = 10_000;
/// An object sent in one PUT.
pub const S3_PUT_MAX_BYTES: u64 = 5 * GB;
/// How long a presigned URL can live, if the credentials that signed it live as long.
pub const S3_PRESIGN_MAX_SECONDS: u64 = 7 * 24 * 60 * 60;
