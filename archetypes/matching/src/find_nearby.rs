//! Find nearby drivers: CandidateSetView, a read projection.
//!
//! The location index says who is near and was seen lately; the drivers' own items say who is
//! AVAILABLE; the estimated pickup time ranks them. A driver whose open offer is over counts as
//! available: nobody should have to wait for a sweeper. It is a hint all the same. Between this read
//! and a proposal anything may happen, and the proposal's guard decides.

use crate::domain::{
    Candidate, CandidateSetView, DriverState, DriverStatus, Point, distance_m, pickup_s, radius,
};
use crate::{Dispatch, DispatchError};
use cloud::Millis;
use std::collections::{BTreeMap, BTreeSet};

/// How many drivers' items are read at a time.
const PAGE: usize = 20;

impl Dispatch {
    /// Who could be asked, the soonest first, without those in `refused`. Looks at no more drivers
    /// than it takes to find `enough`.
    pub async fn find_nearby(
        &self,
        pickup: Point,
        refused: &BTreeSet<String>,
        enough: usize,
    ) -> Result<CandidateSetView, DispatchError> {
        radius(self.rules.radius_m)?;
        let now = self.now();
        let near = self
            .index
            .nearby(pickup, self.rules.radius_m, now - self.rules.fresh_ms)
            .await?;
        let mut ranked: Vec<Candidate> = near
            .into_iter()
            .filter(|found| !refused.contains(&found.driver_id))
            .map(|found| Candidate {
                pickup_s: pickup_s(found.at, pickup),
                distance_m: distance_m(found.at, pickup),
                seen_at: found.seen_at,
                driver_id: found.driver_id,
                over: None,
            })
            .collect();
        ranked.sort_by(|a, b| (a.pickup_s, &a.driver_id).cmp(&(b.pickup_s, &b.driver_id)));
        let mut candidates = Vec::new();
        for page in ranked.chunks(PAGE) {
            let ids: Vec<_> = page.iter().map(|found| found.driver_id.clone()).collect();
            let doing: BTreeMap<String, DriverState> = self
                .drivers(&ids)
                .await?
                .into_iter()
                .map(|driver| (driver.driver_id.clone(), driver))
                .collect();
            for candidate in page {
                let Some(driver) = doing.get(&candidate.driver_id) else {
                    continue;
                };
                if let Some(over) = free_at(driver, now) {
                    let candidate = candidate.clone();
                    candidates.push(Candidate { over, ..candidate });
                }
            }
            if candidates.len() >= enough {
                break;
            }
        }
        Ok(CandidateSetView {
            candidates,
            as_of: now,
        })
    }
}

/// Whether a driver may be asked at `now`, and which offer has to be ended before.
fn free_at(driver: &DriverState, now: Millis) -> Option<Option<String>> {
    match (driver.status, driver.offer_expires_at) {
        (DriverStatus::Available, _) => Some(None),
        (DriverStatus::Offered, Some(until)) if until <= now => Some(driver.assignment_id.clone()),
        _ => None,
    }
}
