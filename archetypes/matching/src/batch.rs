//! Match a batch: collect requests for a moment, then solve who takes whom.
//!
//! Asking the soonest driver for each ride in turn is greedy: the first ride takes a driver whom the
//! second needed more. With a handful of rides on the table the assignment problem can be solved
//! exactly (Kuhn–Munkres), and the sum of all pickup times is the least there is. Only the choice is
//! different: each pair is then proposed under the same guards as ever, so that a wrong or an old
//! solution costs a refused proposal and nothing else.

use crate::domain::{Candidate, RideRequestState, RideStatus};
use crate::{Cascade, Dispatch, DispatchError, Expiry, Proposing};
use cloud::Millis;
use pathfinding::kuhn_munkres::kuhn_munkres_min;
use pathfinding::matrix::Matrix;
use std::collections::{BTreeMap, BTreeSet};

/// How many candidates a ride brings into the batch.
const CANDIDATES: usize = 20;

/// How many OPEN rides a batch solves: the time it takes grows with the cube. The rest are due for
/// the next one.
const RIDES: usize = 200;

/// More than any pickup takes: as many rides as possible get a driver, before any is sooner.
const NOBODY: i64 = 1_000_000;

/// Who takes whom, with the least total pickup time, among as many pairs as there can be. For each
/// ride the place of its candidate, or none.
pub fn solve(rides: &[Vec<Candidate>]) -> Vec<Option<usize>> {
    let drivers: BTreeSet<&str> = rides
        .iter()
        .flatten()
        .map(|candidate| candidate.driver_id.as_str())
        .collect();
    let column: BTreeMap<&str, usize> = drivers.iter().copied().zip(0..).collect();
    if rides.is_empty() {
        return Vec::new();
    }
    // A column for nobody for each ride: the matrix needs no fewer columns than rows, and a ride
    // may be left over.
    let mut costs = Matrix::new(rides.len(), drivers.len() + rides.len(), NOBODY);
    for (row, candidates) in rides.iter().enumerate() {
        for candidate in candidates {
            costs[(row, column[candidate.driver_id.as_str()])] = i64::from(candidate.pickup_s);
        }
    }
    let (_, taken) = kuhn_munkres_min(&costs);
    let place = |(candidates, taken): (&Vec<Candidate>, usize)| {
        candidates
            .iter()
            .position(|candidate| column[candidate.driver_id.as_str()] == taken)
    };
    rides.iter().zip(taken).map(place).collect()
}

impl Dispatch {
    /// Does for all rides that are due what a sweep does for each, but chooses for all OPEN ones
    /// together. A ride whose driver was lost on the way is due again at once.
    pub async fn match_batch(
        &self,
    ) -> Result<Vec<(String, Result<Cascade, DispatchError>)>, DispatchError> {
        let now = self.now();
        let mut done = Vec::new();
        let mut open = Vec::new();
        let (due, fault) = self.look_for_due(now).await;
        for ride_id in due {
            match self.to_match(&ride_id).await {
                Ok(Ok(_)) if open.len() == RIDES => {}
                Ok(Ok(ride)) => open.push(ride),
                Ok(Err(tended)) => done.push((ride_id, Ok(tended))),
                Err(error) => done.push((ride_id, Err(error))),
            }
        }
        let mut candidates = Vec::new();
        let mut rides = Vec::new();
        for ride in open {
            let near = self.who_is_near(&ride, &ride.refused_by, CANDIDATES, now);
            match near.await {
                Ok(near) => {
                    candidates.push(near);
                    rides.push(ride);
                }
                Err(error) => done.push((ride.ride_id, Err(error))),
            }
        }
        let chosen = solve(&candidates);
        for ((ride, candidates), chosen) in rides.iter().zip(&candidates).zip(chosen) {
            let candidate = chosen.and_then(|place| candidates.get(place));
            let matched = self.propose_chosen(ride, candidate, now).await;
            done.push((ride.ride_id.clone(), matched));
        }
        match fault {
            Some(fault) => Err(fault.into()),
            None => Ok(done),
        }
    }

    /// The ride, if it is OPEN and may make another offer by now; otherwise what was done about it.
    async fn to_match(
        &self,
        ride_id: &str,
    ) -> Result<Result<RideRequestState, Cascade>, DispatchError> {
        let mut ride = self.known_ride(ride_id).await?;
        if ride.status == RideStatus::Matching
            && self.expire_offer(ride_id).await? == Expiry::Expired
        {
            ride = self.known_ride(ride_id).await?;
        }
        let due = ride.due_at.is_some_and(|due| due <= self.now());
        let open = ride.status == RideStatus::Open && due;
        if open && ride.offers_made < self.rules.max_offers {
            return Ok(Ok(ride));
        }
        self.tend(ride_id).await.map(Err)
    }

    async fn propose_chosen(
        &self,
        ride: &RideRequestState,
        candidate: Option<&Candidate>,
        now: Millis,
    ) -> Result<Cascade, DispatchError> {
        let asked = match candidate {
            Some(candidate) => {
                let turn = std::slice::from_ref(candidate);
                self.ask_in_turn(ride, turn).await?
            }
            None => None,
        };
        match asked {
            Some(Proposing::Proposed(offer)) => return Ok(Cascade::Offered(offer)),
            Some(_) => {
                return Ok(Cascade::Elsewhere(
                    self.known_ride(&ride.ride_id).await?.status,
                ));
            }
            // The chosen one is busy, and may be chosen again for ever: ask the others in turn.
            None if candidate.is_some() => return self.next_candidate(&ride.ride_id).await,
            None => {}
        }
        // Nobody. The next batch is soon.
        let over = now >= ride.search_until;
        let again = now + self.rules.take_over_ms;
        match (self.step(ride, (!over).then_some(again)).await?, over) {
            (true, true) => Ok(Cascade::NoDrivers),
            (true, false) => Ok(Cascade::Waiting(again)),
            (false, _) => Ok(Cascade::Elsewhere(
                self.known_ride(&ride.ride_id).await?.status,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(driver: usize, pickup_s: u32) -> Candidate {
        Candidate {
            driver_id: format!("driver-{driver}"),
            pickup_s,
            distance_m: 0.0,
            seen_at: 0,
            over: None,
        }
    }

    /// How many are matched, and in what total time: every way, one by one.
    fn best(rides: &[Vec<Candidate>], taken: &mut BTreeSet<String>) -> (usize, i64) {
        let Some((first, rest)) = rides.split_first() else {
            return (0, 0);
        };
        let mut found = best(rest, taken);
        for candidate in first {
            if taken.insert(candidate.driver_id.clone()) {
                let (matched, total) = best(rest, taken);
                let way = (matched + 1, total + i64::from(candidate.pickup_s));
                if (way.0, -way.1) > (found.0, -found.1) {
                    found = way;
                }
                taken.remove(&candidate.driver_id);
            }
        }
        found
    }

    proptest! {
        /// The solution is as good as the best of all ways, and gives nobody away twice.
        #[test]
        fn the_solution_is_the_best_there_is(
            rides in prop::collection::vec(prop::collection::btree_map(0..6_usize, 1..900_u32, 0..5), 0..6)
        ) {
            let rides: Vec<Vec<Candidate>> = rides
                .into_iter()
                .map(|ride| ride.into_iter().map(|(driver, s)| candidate(driver, s)).collect())
                .collect();
            let chosen: Vec<&Candidate> = solve(&rides)
                .iter()
                .zip(&rides)
                .filter_map(|(place, candidates)| candidates.get((*place)?))
                .collect();
            let drivers: BTreeSet<_> = chosen.iter().map(|c| &c.driver_id).collect();
            prop_assert_eq!(drivers.len(), chosen.len());
            let total: i64 = chosen.iter().map(|c| i64::from(c.pickup_s)).sum();
            prop_assert_eq!((chosen.len(), total), best(&rides, &mut BTreeSet::new()));
        }
    }

    #[test]
    fn greedy_is_not_the_best() {
        // The first ride's soonest driver is the only one near the second ride.
        let rides = [
            vec![candidate(1, 60), candidate(2, 90)],
            vec![candidate(1, 70), candidate(2, 400)],
        ];
        assert_eq!(solve(&rides), [Some(1), Some(0)]);
    }
}
