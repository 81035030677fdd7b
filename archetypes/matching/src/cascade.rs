//! The cascade: propose → accept, reject or expire → the next candidate, until somebody says yes,
//! the rider gives up, or nobody is left.
//!
//! Each step begins with the ride as it is in the table, and ends with a write that says when
//! somebody should look again. So it does not matter who takes the next step: the server that got
//! the driver's no, or a sweeper because that server died. Two at once make one offer, because both
//! name the count of offers they saw.
//!
//! It ends. A ride makes at most `max_offers` offers, asks nobody twice, and waits for new drivers
//! only until `search_until`.

use crate::domain::{Candidate, DriverAssignmentState, RideRequestState, RideStatus};
use crate::locations::KEPT_MS;
use crate::{Dispatch, DispatchError, Expiry, Proposing, Starting};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Guard, Guarded, Millis};
use std::collections::BTreeSet;

/// What one step of a ride's cascade came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cascade {
    /// A driver has been asked.
    Offered(DriverAssignmentState),
    /// Nobody is free. Somebody will look again at this time.
    Waiting(Millis),
    /// Nobody is left: this call ended it.
    NoDrivers,
    /// It is somebody else's turn, or over. The ride's status.
    Elsewhere(RideStatus),
}

/// How many candidates are enough to go on with: one of the first few is still free.
const ENOUGH: usize = 4;

/// The ride that was read, and no other offer since.
const STEP_GUARD: &str = "#status = :open AND offers_made = :seen";
const WAIT_UPDATE: &str = "SET due_at = :again";
const GIVE_UP_UPDATE: &str = "SET #status = :no_drivers REMOVE due_shard, due_at";

impl Dispatch {
    /// Takes the next step for an OPEN ride.
    pub async fn next_candidate(&self, ride_id: &str) -> Result<Cascade, DispatchError> {
        for attempt in 0..crate::items::ATTEMPTS {
            let now = self.now();
            let ride = self.known_ride(ride_id).await?;
            if ride.status != RideStatus::Open {
                return Ok(Cascade::Elsewhere(ride.status));
            }
            if ride.offers_made < self.rules.max_offers {
                match self.ask_somebody(&ride, now).await? {
                    Some(Proposing::Proposed(offer)) => return Ok(Cascade::Offered(offer)),
                    // Somebody else took the step. Look at where the ride is now.
                    Some(_) => continue,
                    None => {}
                }
                if now < ride.search_until {
                    // Never beyond the end of the search, nor before now.
                    let again = (now + self.rules.retry_ms).min(ride.search_until);
                    if self.step(&ride, Some(again)).await? {
                        return Ok(Cascade::Waiting(again));
                    }
                    continue;
                }
            }
            if self.step(&ride, None).await? {
                return Ok(Cascade::NoDrivers);
            }
            pause(attempt).await;
        }
        Err(DispatchError::Contended)
    }

    /// Asks whoever is near, the soonest first. If all who were found turn out to be busy, there may
    /// be others that were not looked at.
    async fn ask_somebody(
        &self,
        ride: &RideRequestState,
        now: Millis,
    ) -> Result<Option<Proposing>, DispatchError> {
        let mut skip = ride.refused_by.clone();
        loop {
            let near = self.who_is_near(ride, &skip, ENOUGH, now).await?;
            let asked = self.ask_in_turn(ride, &near).await?;
            // Fewer than enough: all have been looked at.
            if asked.is_some() || near.len() < ENOUGH {
                return Ok(asked);
            }
            skip.extend(near.into_iter().map(|busy| busy.driver_id));
        }
    }

    /// The candidates of a ride. When its search is over, a map that cannot be read is an empty one:
    /// the ride has to end.
    pub(crate) async fn who_is_near(
        &self,
        ride: &RideRequestState,
        skip: &BTreeSet<String>,
        enough: usize,
        now: Millis,
    ) -> Result<Vec<Candidate>, DispatchError> {
        match self.find_nearby(ride.pickup, skip, enough).await {
            Ok(view) => Ok(view.candidates),
            Err(_) if now >= ride.search_until => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Asks one after the other until one is asked. Those whose lock is taken come last: the lock
    /// may be a dead server's.
    pub(crate) async fn ask_in_turn(
        &self,
        ride: &RideRequestState,
        candidates: &[Candidate],
    ) -> Result<Option<Proposing>, DispatchError> {
        let mut locked = Vec::new();
        for candidate in candidates {
            match self.propose(ride, candidate).await? {
                Proposing::DriverBusy => {}
                Proposing::Locked => locked.push(candidate),
                done => return Ok(Some(done)),
            }
        }
        for candidate in locked {
            match self.propose_unlocked(ride, candidate).await? {
                Proposing::DriverBusy => {}
                done => return Ok(Some(done)),
            }
        }
        Ok(None)
    }

    /// Waits until then, or gives up. False if the ride is not what it was.
    pub(crate) async fn step(
        &self,
        ride: &RideRequestState,
        again: Option<Millis>,
    ) -> Result<bool, CloudError> {
        let update = self
            .dynamodb()
            .update_item()
            .table_name(self.table("rides"))
            .key("ride_id", s(&ride.ride_id))
            .condition_expression(STEP_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":seen", n(ride.offers_made));
        let update = match again {
            Some(again) => update
                .update_expression(WAIT_UPDATE)
                .expression_attribute_values(":again", n(again)),
            None => update
                .update_expression(GIVE_UP_UPDATE)
                .expression_attribute_values(":no_drivers", s("NO_DRIVERS")),
        };
        match update.send().await.guarded() {
            Ok(done) => Ok(matches!(done, Guard::Passed(_))),
            Err(CloudError::Conflict(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// Does what a ride needs by now, whatever that is: end an offer, ask the next, start a trip.
    pub async fn tend(&self, ride_id: &str) -> Result<Cascade, DispatchError> {
        let now = self.now();
        let ride = self.known_ride(ride_id).await?;
        if ride.due_at.is_none_or(|due| due > now) {
            return Ok(Cascade::Elsewhere(ride.status));
        }
        match (ride.status, &ride.current_assignment, &ride.driver_id) {
            (RideStatus::Matching, ..) => match self.expire_offer(ride_id).await? {
                Expiry::Expired | Expiry::Over(RideStatus::Open) => {
                    self.next_candidate(ride_id).await
                }
                Expiry::NotDue { .. } => Ok(Cascade::Elsewhere(RideStatus::Matching)),
                Expiry::Over(status) => Ok(Cascade::Elsewhere(status)),
            },
            (RideStatus::Matched, Some(assignment), Some(driver)) => {
                let _: Starting = self.start_trip(driver, assignment).await?;
                Ok(Cascade::Elsewhere(RideStatus::Matched))
            }
            _ => self.next_candidate(ride_id).await,
        }
    }

    /// Tends every ride that is due. Returns what became of each:
    /// one that fails does not keep the others. Nor does a part of the index that cannot be read: that
    /// is said when all that was found has been tended.
    pub async fn sweep(&self) -> Result<Vec<(String, Result<Cascade, DispatchError>)>, CloudError> {
        let now = self.now();
        let mut done = Vec::new();
        let (due, fault) = self.look_for_due(now).await;
        for ride_id in due {
            let tended = self.tend(&ride_id).await;
            done.push((ride_id, tended));
        }
        match fault {
            Some(fault) => Err(fault),
            None => Ok(done),
        }
    }

    /// Drops drivers that were not seen for long from the location index, some at a time. For much
    /// longer than a candidate may be unseen: a sweeper whose clock is ahead must not wipe the map.
    pub async fn prune_locations(&self) -> Result<usize, CloudError> {
        self.index.prune(self.now() - KEPT_MS).await
    }
}
