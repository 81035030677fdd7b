//! Section views for many: what the browsers of one server ask is read once a second.
//!
//! The map of 20,000 seats is some 160 read units under one partition key, which has 3,000 a second: twenty
//! browsers a second would take it all. So a server keeps each answer for a second, and all who ask meanwhile
//! share one read. The answers bear the time of that read, so those who ask for changes next ask the same
//! question, and share its answer too. What is shown is advice; the guard decides when a buyer clicks.

use crate::view_seats::SeatMap;
use crate::{BoxOffice, OfficeError};
use cloud::{CloudError, Millis};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How long an answer is given to all who ask.
pub const KEPT_MS: Millis = 1_000;

/// How many answers are kept. Beyond that it begins anew.
const MOST: usize = 64;

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
        let question = (event_id.to_owned(), section.to_owned(), since);
        let now = office.now();
        let reading = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reading = match kept.get(&question) {
                Some(Kept::Read(map)) if (0..KEPT_MS).contains(&(now - map.as_of)) => {
                    return Ok(Arc::clone(map));
                }
                Some(Kept::Reading(reading)) => reading.upgrade(),
                _ => None,
            };
            match reading {
                Some(reading) => reading,
                None => {
                    if kept.len() >= MOST {
                        kept.clear();
                    }
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
                Ok(map) => {
                    let map = Arc::new(map);
                    kept.insert(question, Kept::Read(Arc::clone(&map)));
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
