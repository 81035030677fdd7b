//! Section views for many: what the browsers of one server ask is read once a second.
//!
//! The map of 20,000 seats is some 160 read units under one partition key, which has 3,000 a second: twenty
//! browsers a second would take it all. So a server keeps each answer for the rest of its second, and all who ask
//! meanwhile share one read. What is shown is advice; the guard decides when a buyer clicks.
//!
//! Those who ask for changes share only if they ask the same question. So each answer bears the second of its
//! read, not the millisecond, and a question is rounded down: to a second, to ten seconds if it is older, and to
//! the whole map if it is older than a minute. Changes told twice do no harm.

use crate::view_seats::SeatMap;
use crate::{BoxOffice, OfficeError};
use cloud::{CloudError, Millis};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An answer is given to all who ask in the same second.
pub const KEPT_MS: Millis = 1_000;

/// A question that reaches further back is rounded down to as many milliseconds …
const COARSE_MS: Millis = 10_000;

/// … and one that reaches further back than this is answered with the map.
const OLDEST_MS: Millis = 60_000;

/// How many seats of answers are kept. Beyond that an answer is shared only by those who wait for it.
const MOST_SEATS: usize = 1_000_000;

/// Event, section, and since when.
type Question = (String, String, Option<Millis>);
type Answer = Result<Arc<SeatMap>, String>;
type Reading = Shared<BoxFuture<'static, Answer>>;

#[derive(Clone, Default)]
pub(crate) struct SectionViews(Arc<Mutex<HashMap<Question, Kept>>>);

enum Kept {
    /// Goes on as long as one of those who wait for it is there.
    Reading(WeakShared<BoxFuture<'static, Answer>>),
    Read(Arc<SeatMap>),
}

impl Kept {
    /// How many seats it keeps; the answer itself takes the place of one.
    fn seats(&self) -> usize {
        match self {
            Self::Reading(_) => 0,
            Self::Read(map) => 1 + map.seats.len(),
        }
    }
}

fn rounded(time: Millis, to: Millis) -> Millis {
    time - time.rem_euclid(to)
}

/// Since when a question is asked in the end; `None` asks for the map.
fn asked(since: Millis, second: Millis) -> Option<Millis> {
    let age = second.saturating_sub(since);
    match age > COARSE_MS {
        _ if age > OLDEST_MS => None,
        true => Some(rounded(since, COARSE_MS)),
        false => Some(rounded(since.min(second), KEPT_MS)),
    }
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
        let second = rounded(office.now(), KEPT_MS);
        let since = since.and_then(|since| asked(since, second));
        let question = (event_id.to_owned(), section.to_owned(), since);
        let reading = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reading = match kept.get(&question) {
                Some(Kept::Read(map)) if map.as_of == second => {
                    return Ok(Arc::clone(map));
                }
                Some(Kept::Reading(reading)) => reading.upgrade(),
                _ => None,
            };
            match reading {
                Some(reading) => reading,
                None => {
                    // Answers of an earlier second go, and reads without a waiter.
                    kept.retain(|_, it| match it {
                        Kept::Reading(reading) => reading.upgrade().is_some(),
                        Kept::Read(map) => map.as_of == second,
                    });
                    let reading = self.read(office.clone(), question.clone());
                    if let Some(weak) = reading.downgrade() {
                        kept.insert(question, Kept::Reading(weak));
                    }
                    reading
                }
            }
        };
        let answer = reading.await;
        answer.map_err(|fault| CloudError::Unknown(fault).into())
    }

    fn read(&self, office: BoxOffice, question: Question) -> Reading {
        let views = self.clone();
        async move {
            let (event_id, section, since) = &question;
            let read = match since {
                None => office.seat_map(event_id, section).await,
                Some(since) => office.seat_changes(event_id, section, *since).await,
            };
            let mut kept = views.0.lock().unwrap_or_else(PoisonError::into_inner);
            match read {
                Ok(mut map) => {
                    map.as_of = rounded(map.as_of, KEPT_MS);
                    let map = Arc::new(map);
                    kept.remove(&question);
                    let seats: usize = kept.values().map(Kept::seats).sum();
                    if seats + map.seats.len() < MOST_SEATS {
                        kept.insert(question, Kept::Read(Arc::clone(&map)));
                    }
                    Ok(map)
                }
                Err(fault) => {
                    kept.remove(&question);
                    Err(fault.to_string())
                }
            }
        }
        .boxed()
        .shared()
    }
}
