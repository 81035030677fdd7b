//! Trouble, on purpose, for tests. All of it enters through the tap (`cloud::tap`), so the code
//! under test holds plain SDK clients and does not know.
//!
//! In reading order:
//! - [`race`]: N tasks through one barrier. Cheap, likely to find a race, proves nothing.
//! - [`Interleave`]: every order of the calls of two or three actions. Proves, for those actions.
//! - [`Pairs`]: every action of a crate beside every other and beside itself, by [`Interleave`].
//! - [`CrashSweep`]: the process dies before and after every call; then recovery; then the check.
//! - [`LateCopies`]: a copy of each write lands after each later call of a short story.
//! - [`TroubleSweep`]: each call meets a conflict, throttling, a service that hangs, S3's errors.
//! - [`Faults`]: throttling, lost requests, lost answers, stale indexes, duplicate messages, by seed.
//! - [`Deaf`], [`LoseAnswer`], [`Conflicts`]: no answer to any write, or to one call; conflicts with others.
//! - [`Mixed`]: a cancelled transaction with every mix of conflict and failed condition.
//! - [`Stuck`]: one neighbour that always fails or hangs, among many that work.
//! - [`Says`]: any other answer, by a closure.
//! - [`Tokenless`]: a transaction sent again that DynamoDB does not know.
//! - [`Heat`]: what one partition key may take in a second.
//! - [`Weaken`]: a guard that no longer guards. Some test must then fail: [`breaks`].
//!
//! [`race`] and the next five drive code; the others are plans. A plan is put in charge of a cloud with
//! `cloud.tap().install(plan)`, or of every run of an [`Interleave`] or [`CrashSweep`] with their
//! `under`. Do not install plans in the set-up of those two: the tap lets the first plan that
//! neither passes nor rewrites a call decide alone, so the call would be neither held nor counted.
//! They notice, and say so.

mod crash_sweep;
mod faults;
mod heat;
mod interleave;
mod late_copies;
mod pairs;
mod race;
mod refusals;
mod story;
mod trouble_sweep;
mod weaken;

pub use crash_sweep::{CrashSweep, NotRecovered, Swept};
pub use faults::{Fault, Faults};
pub use heat::{Capacity, Heat, HotKey};
pub use interleave::{Broken, Explored, Interleave, Schedule};
pub use late_copies::{Harmed, Harmless, LateCopies};
pub use pairs::{BrokenPair, Met, Pairs};
pub use race::race;
pub use refusals::{Conflicts, Deaf, LoseAnswer, Mixed, Says, Stuck, Tokenless, conflict};
pub use trouble_sweep::{NotWeathered, Trouble, TroubleSweep, Weathered};
pub use weaken::{Weaken, breaks};

/// Runs tests on each of several realizations: the promises are the same. Each is a module, so
/// that `cargo test` can be asked for one of them.
///
/// ```text
/// on_each! { [pure: Realization::Pure, leased: Realization::Leased] { a_test, another_test } }
/// ```
#[macro_export]
macro_rules! on_each {
    ([$($module:ident: $value:expr),+ $(,)?] $names:tt) => {
        $($crate::on_each! { @one $module, $value, $names })+
    };
    (@one $module:ident, $value:expr, { $($name:ident),+ $(,)? }) => {
        mod $module {
            $(#[tokio::test] async fn $name() { super::$name($value).await })+
        }
    };
}

/// What a schedule or a crash runs on: made afresh for each. Usually a cloud with its tables and
/// a few items, and the service under test.
pub trait World: Send + Sync + 'static {
    /// The cloud whose tap is used.
    fn cloud(&self) -> &cloud::Cloud;
}

impl World for cloud::Cloud {
    fn cloud(&self) -> &cloud::Cloud {
        self
    }
}
