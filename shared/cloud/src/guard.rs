//! What became of a guarded write, told apart by type, because the caller's next step differs.
//!
//! | what happened | type | next step |
//! | --- | --- | --- |
//! | the write was made | [`Guard::Passed`] | go on |
//! | the condition was false | [`Guard::Failed`], with the item as it was | an answer: tell the user, or decide again on the item |
//! | a transaction was cancelled by a condition | [`Transaction::Cancelled`], which item, by name | the same |
//! | somebody else's transaction held the item | [`CloudError::Conflict`] | decide again |
//! | too much for the partition | [`CloudError::Throttled`] | slow down, then the same write again |
//! | no answer came | [`CloudError::Unknown`] | ask what happened, by the identity the write carried |
//! | an item does not read as its state | [`CloudError::Corrupt`] | look at the item; nothing to retry |
//! | anything else | [`CloudError::Other`] | a bug or a wrong set-up; nothing to retry |

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use std::collections::HashMap;

/// An item as DynamoDB gives it.
pub type Item = HashMap<String, AttributeValue>;

/// A fault of the infrastructure. A guard that fails is not one of these.
///
/// "Not made" speaks of the last attempt. The SDK may have made an earlier one whose answer was
/// lost, so the identity that the write carried is what tells in the end.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// More than the partition or the table may take. The write was not made.
    #[error("throttled: {0}")]
    Throttled(String),
    /// Another transaction held one of the items. The write was not made.
    #[error("conflict with another transaction: {0}")]
    Conflict(String),
    /// No answer came: the write may or may not have been made.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// An item that does not read as its state.
    #[error("an item cannot be read: {0}")]
    Corrupt(String),
    /// A wrong request, a missing table, missing permissions.
    #[error("{0}")]
    Other(String),
}

impl CloudError {
    /// Something kept does not read as what it should be.
    pub fn corrupt(error: impl ToString) -> Self {
        Self::Corrupt(error.to_string())
    }

    /// A request the SDK would not build: a bug here, since every field is set.
    pub fn bug(error: impl ToString) -> Self {
        Self::Other(error.to_string())
    }
}

impl<E> From<SdkError<E, HttpResponse>> for CloudError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    fn from(error: SdkError<E, HttpResponse>) -> Self {
        match &error {
            SdkError::ServiceError(service) => {
                // S3 answers a HEAD without a body, so only its status tells.
                let status = service.raw().status().as_u16();
                let by_status = match status {
                    429 | 503 => "SlowDown",
                    500..=599 => "InternalError",
                    _ => "no error code",
                };
                let code = service.err().code().unwrap_or(by_status);
                let text = format!(
                    "{code}: {}",
                    service.err().message().unwrap_or("no message")
                );
                match code {
                    "ProvisionedThroughputExceededException"
                    | "ThrottlingException"
                    | "RequestLimitExceeded"
                    | "OverLimit"
                    | "SlowDown"
                    | "RequestThrottled" => Self::Throttled(text),
                    "TransactionConflictException" => Self::Conflict(text),
                    // An earlier sending of the same transaction, which may still be made.
                    "TransactionInProgressException" => Self::Unknown(text),
                    // A cancelled transactional read: its reasons stand in the message.
                    "TransactionCanceledException" if text.contains("TransactionConflict") => {
                        Self::Conflict(text)
                    }
                    "TransactionCanceledException"
                        if text.contains("ThrottlingError")
                            || text.contains("ProvisionedThroughputExceeded") =>
                    {
                        Self::Throttled(text)
                    }
                    // A server that fails may have failed after the write.
                    "InternalServerError"
                    | "InternalError"
                    | "ServiceUnavailable"
                    | "InternalFailure"
                    | "RequestTimeout" => Self::Unknown(text),
                    _ if status >= 500 => Self::Unknown(text),
                    _ => Self::Other(text),
                }
            }
            SdkError::ConstructionFailure(_) => Self::Other(chain(&error)),
            // Timeouts, broken connections, unreadable answers: the request may have arrived.
            _ => Self::Unknown(chain(&error)),
        }
    }
}

/// An answer that says no is a bug here: no command of ours is wrong by its data. A server that fails over or
/// loads says no for a while, and the same command may be sent again. Everything else means that the command may
/// have arrived.
#[cfg(feature = "redis")]
impl From<redis::RedisError> for CloudError {
    fn from(error: redis::RedisError) -> Self {
        use redis::ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
        match error.kind() {
            redis::ErrorKind::Server(
                BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain,
            ) => Self::Unknown(error.to_string()),
            redis::ErrorKind::Server(_) | redis::ErrorKind::Parse => Self::Other(error.to_string()),
            _ => Self::Unknown(error.to_string()),
        }
    }
}

/// No connection was made, so nothing was sent. A Redis that is away comes back, and the same may be sent again.
impl From<crate::ConnectError> for CloudError {
    fn from(error: crate::ConnectError) -> Self {
        match error {
            crate::ConnectError::Redis(_) => Self::Unknown(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// The error and what caused it, on one line: the SDK's own text says only "dispatch failure".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What became of one guarded write.
#[derive(Debug)]
pub enum Guard<T> {
    /// The condition held and the write was made.
    Passed(T),
    /// The condition was false; nothing was written. Holds the item as it was if the request
    /// asked for it with `ReturnValuesOnConditionCheckFailure = ALL_OLD` and there was one.
    Failed(Option<Item>),
}

/// Turns the SDK's answer to one guarded write into a [`Guard`].
pub trait Guarded<T> {
    /// A false condition becomes an answer; faults stay errors.
    fn guarded(self) -> Result<Guard<T>, CloudError>;
}

macro_rules! guarded_write {
    ($($error:ident),+) => {$(
        impl<T> Guarded<T> for Result<T, SdkError<$error>> {
            fn guarded(self) -> Result<Guard<T>, CloudError> {
                match self {
                    Ok(output) => Ok(Guard::Passed(output)),
                    Err(SdkError::ServiceError(service))
                        if service.err().is_conditional_check_failed_exception() =>
                    {
                        match service.into_err() {
                            $error::ConditionalCheckFailedException(failed) => {
                                Ok(Guard::Failed(failed.item))
                            }
                            other => Err(CloudError::Other(other.to_string())),
                        }
                    }
                    Err(other) => Err(other.into()),
                }
            }
        }
    )+};
}
guarded_write!(PutItemError, UpdateItemError, DeleteItemError);

/// What became of a transaction.
#[derive(Debug)]
pub enum Transaction<T> {
    /// All of it was written.
    Committed(T),
    /// At least one condition was false; nothing was written.
    Cancelled(Cancellation),
}

/// Which items of a transaction stood in the way.
#[derive(Debug)]
pub struct Cancellation {
    /// The name of every item whose condition was false, with the item as it was.
    pub failed: Vec<(&'static str, Option<Item>)>,
    /// Where these stand in the transaction, counted from 0.
    pub places: Vec<usize>,
    /// How many other items were in a conflict or throttled: nothing is known of their conditions.
    pub unknown: usize,
}

impl Cancellation {
    /// The item of that name as it was, if its condition was false.
    /// The outer option says whether it was; the inner one whether there was an item.
    pub fn failed(&self, name: &str) -> Option<Option<&Item>> {
        self.failed
            .iter()
            .find(|(failed, _)| *failed == name)
            .map(|(_, item)| item.as_ref())
    }

    /// Whether every item that stood in the way is among [`Self::failed`]. If not, one of the others may
    /// have changed too and did not come back: read again before deciding on what did.
    pub fn is_whole(&self) -> bool {
        self.unknown == 0
    }
}

/// Turns the SDK's answer to a transaction into a [`Transaction`].
pub trait GuardedTransaction<T> {
    /// `names` are the items of the transaction in the order they were given. DynamoDB reports
    /// its reasons in that order and by no other name. Items beyond the last name share it.
    fn guarded(self, names: &[&'static str]) -> Result<Transaction<T>, CloudError>;
}

impl<T> GuardedTransaction<T> for Result<T, SdkError<TransactWriteItemsError>> {
    fn guarded(self, names: &[&'static str]) -> Result<Transaction<T>, CloudError> {
        let error = match self {
            Ok(output) => return Ok(Transaction::Committed(output)),
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) =
            error.as_service_error()
        else {
            return Err(error.into());
        };
        let last = names.last().copied().unwrap_or("item");
        let because = |code: &str| -> Vec<_> {
            let reasons = cancelled.cancellation_reasons().iter().enumerate();
            let found = reasons.filter(|(_, reason)| reason.code() == Some(code));
            found
                .map(|(place, reason)| (place, *names.get(place).unwrap_or(&last), reason))
                .collect()
        };
        // A false condition is a fact about the data. It outranks a conflict or a throttle on
        // another item of the same transaction, which say only that the time was bad.
        let failed = because("ConditionalCheckFailed");
        if !failed.is_empty() {
            let known = [None, Some("None"), Some("ConditionalCheckFailed")];
            let reasons = cancelled.cancellation_reasons().iter();
            return Ok(Transaction::Cancelled(Cancellation {
                unknown: reasons
                    .filter(|reason| !known.contains(&reason.code()))
                    .count(),
                places: failed.iter().map(|(place, ..)| *place).collect(),
                failed: failed
                    .into_iter()
                    .map(|(_, name, reason)| (name, reason.item.clone()))
                    .collect(),
            }));
        }
        let say = |found: Vec<(usize, &'static str, _)>| {
            let names: Vec<_> = found.iter().map(|(_, name, _)| *name).collect();
            names.join(", ")
        };
        let conflicts = because("TransactionConflict");
        if !conflicts.is_empty() {
            return Err(CloudError::Conflict(say(conflicts)));
        }
        for code in ["ThrottlingError", "ProvisionedThroughputExceeded"] {
            let found = because(code);
            if !found.is_empty() {
                return Err(CloudError::Throttled(say(found)));
            }
        }
        Err(error.into())
    }
}
