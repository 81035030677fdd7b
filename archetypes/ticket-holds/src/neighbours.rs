//! Sweeps over many: each is looked at beside others, and none is waited for longer than a little. One that
//! hangs or fails keeps no other.

use cloud::CloudError;
use std::future::Future;
use std::time::Duration;

/// How many a sweeper looks at at once; in a sharded index, of each shard.
pub(crate) const AT_ONCE: usize = 16;

/// How long one may take before the sweeper goes on without it. Dropping the work is what a crash does to it:
/// the next sweep tries again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The work, or a fault when it takes too long.
pub(crate) async fn patient<T, E: From<CloudError>>(
    patience: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let gone_on = |_| Err(CloudError::Unknown("no answer in time".into()).into());
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or_else(gone_on)
}
