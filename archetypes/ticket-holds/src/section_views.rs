//! Section views for many: what the browsers of one server ask is read once a second.
//!
//! The map of 20,000 seats is some 160 read units under one partition key, which has 3,000 a second: 19
//! browsers a second would take more than all of it. So a server keeps each answer for the rest of its second, and all who ask
//! meanwhile share one read. What is shown is advice; the guard decides when a buyer clicks.
//!
//! Those who ask for changes ask since as many moments as there are browsers, and one client may name as many as it
//! likes. So no moment is read by itself: a server reads the changes of the last seconds, the window, and answers
//! each moment in it from this one read, and each older one with the map.
//!
//! A read that hangs keeps only those who asked in its second: the next second has a read of its own.

use crate::seat_changes::SKEW_MS;
use crate::view_seats::{SeatMap, SeatView};
use crate::{BoxOffice, OfficeError};
use cloud::{CloudError, Millis};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An answer is given to all who ask in the same second.
pub const KEPT_MS: Millis = 1_000;

/// How far back changes are read. A moment before that is answered with the map.
pub const WINDOW_MS: Millis = 10_000;

/// How many seats of answers are kept. Beyond that an answer is shared only by those who wait for it.
const MOST_SEATS: usize = 1_000_000;

/// What is read of a section.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Map,
    Window,
}

/// Event, section, and what of it.
type Question = (String, String, Part);
type Answer = Result<Arc<SeatMap>, Arc<OfficeError>>;
type Reading = Shared<BoxFuture<'static, Answer>>;

#[derive(Clone, Default)]
pub(crate) struct SectionViews(Arc<Mutex<HashMap<Question, Kept>>>);

enum Kept {
    /// Begun in this second; goes on as long as one of those who wait for it is there.
    Reading(Millis, WeakShared<BoxFuture<'static, Answer>>),
    Read(Arc<SeatMap>),
}

impl Kept {
    /// How many seats it keeps; the answer itself takes the place of one.
    fn seats(&self) -> usize {
        match self {
            Self::Reading(..) => 0,
            Self::Read(map) => 1 + map.seats.len(),
        }
    }
}

fn rounded(time: Millis) -> Millis {
    time - time.rem_euclid(KEPT_MS)
}

/// The same fault for each of those who shared a read: throttled is told as throttled.
fn told(fault: &OfficeError) -> OfficeError {
    OfficeError::Fault(match fault {
        OfficeError::Fault(CloudError::Throttled(why)) => CloudError::Throttled(why.clone()),
        OfficeError::Fault(CloudError::Conflict(why)) => CloudError::Conflict(why.clone()),
        OfficeError::Fault(CloudError::Unknown(why)) => CloudError::Unknown(why.clone()),
        OfficeError::Fault(CloudError::Corrupt(why)) => CloudError::Corrupt(why.clone()),
        other => CloudError::Other(other.to_string()),
    })
}

impl SectionViews {
    /// The map of a section, or its changes since an earlier answer.
    pub(crate) async fn view(
        &self,
        office: &BoxOffice,
        event_id: &str,
        section: &str,
        since: Option<Millis>,
    ) -> Result<Arc<SeatMap>, OfficeError> {
        // What does not exist is refused to each by itself, and takes no place here.
        office.seated(event_id, section).await?;
        let second = rounded(office.now());
        let since = since.map(|since| since.min(second));
        let since = since.filter(|since| second.saturating_sub(*since) <= WINDOW_MS);
        let part = if since.is_some() {
            Part::Window
        } else {
            Part::Map
        };
        let question = (event_id.to_owned(), section.to_owned(), part);
        let read = self.share(office, question, second).await;
        let read = read.map_err(|fault| told(&fault))?;
        let Some(since) = since else { return Ok(read) };
        let is_newer = |it: &&SeatView| it.changed_at.is_some_and(|at| at > since - SKEW_MS);
        Ok(Arc::new(SeatMap {
            as_of: read.as_of,
            seats: read.seats.iter().filter(is_newer).cloned().collect(),
        }))
    }

    /// What was read in this second, or is being read since.
    async fn share(&self, office: &BoxOffice, question: Question, second: Millis) -> Answer {
        let reading = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reading = match kept.get(&question) {
                Some(Kept::Read(map)) if map.as_of == second => return Ok(Arc::clone(map)),
                Some(Kept::Reading(begun, reading)) if *begun == second => reading.upgrade(),
                _ => None,
            };
            match reading {
                Some(reading) => reading,
                None => {
                    // Answers of an earlier second go, and reads without a waiter.
                    kept.retain(|_, it| match it {
                        Kept::Reading(_, reading) => reading.upgrade().is_some(),
                        Kept::Read(map) => map.as_of == second,
                    });
                    let reading = self.read(office.clone(), question.clone(), second);
                    if let Some(weak) = reading.downgrade() {
                        kept.insert(question, Kept::Reading(second, weak));
                    }
                    reading
                }
            }
        };
        reading.await
    }

    fn read(&self, office: BoxOffice, question: Question, second: Millis) -> Reading {
        let views = self.clone();
        async move {
            let (event_id, section, part) = &question;
            let read = match part {
                Part::Map => office.seat_map(event_id, section).await,
                Part::Window => {
                    let since = second - WINDOW_MS;
                    office.seat_changes(event_id, section, since).await
                }
            };
            let read = read.map(|mut map| {
                map.as_of = rounded(map.as_of);
                Arc::new(map)
            });
            let mut kept = views.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A later second may have a read of its own, and this one was slow.
            if matches!(kept.get(&question), Some(Kept::Reading(begun, _)) if *begun == second) {
                kept.remove(&question);
                if let Ok(map) = &read {
                    let seats: usize = kept.values().map(Kept::seats).sum();
                    if seats + map.seats.len() < MOST_SEATS {
                        kept.insert(question, Kept::Read(Arc::clone(map)));
                    }
                }
            }
            read.map_err(Arc::new)
        }
        .boxed()
        .shared()
    }
}
