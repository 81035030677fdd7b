//! The lock on a driver: what Redis adds to a proposal.
//!
//! Two rides that see the same driver at the same moment would both send a transaction, and one of
//! them would pay for being refused. With a key for each driver that is being asked, its value the
//! offer, its life the offer's, the second ride sees it for one command and asks somebody else. That
//! is all it is for: it may be lost or left behind, so it decides nothing. A driver whose lock is
//! taken is asked last, not never, and DynamoDB's guard has the word.

use crate::{Dispatch, Realization};
use cloud::CloudError;
use redis::Value;

/// SET NX PX. A lock that is already this offer's is our own earlier success. Gives 1 if we have it.
const ACQUIRE: &str = "
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Compare and delete. A plain DEL would delete the lock of whoever came after us.
const RELEASE: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

impl Dispatch {
    /// The key of a driver's lock.
    pub fn lock_key(&self, driver_id: &str) -> String {
        self.cloud.names().key(&format!("offer:{driver_id}"))
    }

    /// Takes the lock for this offer. False if another offer has it; a silent Redis gives true.
    pub(crate) async fn lock_driver(&self, driver_id: &str, assignment_id: &str) -> bool {
        if self.realization == Realization::Cells {
            return true;
        }
        let taken = async {
            let mut redis = self.cloud.redis().await?;
            let mut eval = redis::cmd("EVAL");
            eval.arg(ACQUIRE).arg(1).arg(self.lock_key(driver_id));
            eval.arg(assignment_id).arg(self.rules.offer_ms);
            let taken: i64 = eval.query_async(&mut redis).await?;
            Ok::<_, CloudError>(taken == 1)
        };
        taken.await.unwrap_or(true)
    }

    /// Lets the lock go if it is still this offer's. If Redis does not answer, it expires.
    pub(crate) async fn unlock_driver(&self, driver_id: &str, assignment_id: &str) {
        if self.realization == Realization::Geo
            && let Ok(mut redis) = self.cloud.redis().await
        {
            let mut eval = redis::cmd("EVAL");
            eval.arg(RELEASE).arg(1).arg(self.lock_key(driver_id));
            let _: Result<Value, _> = eval.arg(assignment_id).query_async(&mut redis).await;
        }
    }
}
