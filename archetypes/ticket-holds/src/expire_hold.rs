//! Expire hold: what nobody confirmed in time goes back on sale, by any number of sweepers.
//!
//! Nobody waits for this. A reserver takes an expired seat by itself; the sweeper only writes down
//! what is already so, ends the booking and gives its user's allowance back. It finds bookings
//! through a sparse index, and believes the index nothing: it reads the booking, and changes it
//! and its tickets together, only if they still are exactly what it read.

use crate::domain::BookingStatus;
use crate::neighbours::{AT_ONCE, PATIENCE, patient};
use crate::put_back::Ending;
use crate::tables::DUE_SHARDS;
use crate::{BoxOffice, OfficeError, Realization};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Item, Millis};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

/// What became of a hold that a sweeper looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// This call ended it, and put so many seats back.
    Expired(usize),
    /// Its time is not over.
    NotDue {
        /// When it will be.
        until: Millis,
    },
    /// It is no hold any more.
    Over(BookingStatus),
}

const DUE: &str = "due_shard = :shard AND due_at <= :now";

/// How many bookings a sweeper looks at at once.
pub const PLACES: usize = AT_ONCE * DUE_SHARDS as usize;

/// How long after it has begun to look at all that a pass found the next pass begins.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// A shard of the index, and where its next page begins.
type Shard = (String, Option<Item>);

fn every_shard() -> Vec<Shard> {
    (0..DUE_SHARDS)
        .map(|shard| (format!("due-{shard}"), None))
        .collect()
}

/// A page of each shard.
#[derive(Default)]
struct Due {
    found: Vec<String>,
    more: Vec<Shard>,
    failed: Vec<(String, CloudError)>,
}

/// How often a hold that changes while it is looked at is looked at again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Ends a hold whose time is over.
    pub async fn expire_hold(&self, booking_id: &str) -> Result<Expiry, OfficeError> {
        for attempt in 0..ATTEMPTS {
            // The time before the read: what is not over then is left alone.
            let now = self.now();
            let booking = self.known_booking(booking_id).await?;
            if booking.status != BookingStatus::InProgress {
                return Ok(Expiry::Over(booking.status));
            }
            if booking.hold_expires_at > now {
                let until = booking.hold_expires_at;
                return Ok(Expiry::NotDue { until });
            }
            let own = match self.realization {
                Realization::Pure => self.own_tickets(&booking).await?,
                // The lease has ended by itself, and a reserver takes an expired ticket as it is.
                Realization::Leased => Vec::new(),
            };
            let released = own.len();
            let ending = Ending {
                booking: &booking,
                to: BookingStatus::Expired,
                own,
            };
            match self.end_booking(ending).await {
                Ok(true) => return Ok(Expiry::Expired(released)),
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(OfficeError::Contended)
    }

    /// The bookings that a shard of the index says need a look: one page of them, and where the next begins.
    pub async fn due_in(
        &self,
        shard: &str,
        now: Millis,
        from: Option<Item>,
    ) -> Result<(Vec<String>, Option<Item>), CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("bookings"))
            .index_name("due")
            .key_condition_expression(DUE)
            .expression_attribute_values(":shard", s(shard))
            .expression_attribute_values(":now", n(now))
            .set_exclusive_start_key(from);
        let page = query.send().await?;
        let id = |item: &Item| item.get("booking_id")?.as_s().ok().cloned();
        let found = page.items().iter().filter_map(id).collect();
        Ok((found, page.last_evaluated_key))
    }

    /// Ends every hold whose time is over, and asks no processor: a hold does not wait for those that do. Returns
    /// those that were looked at, with what became of them, and each shard of the index that could not be read.
    pub async fn expire_due(&self) -> Vec<(String, Result<Expiry, OfficeError>)> {
        let look = |booking_id: String| async move { self.expire_hold(&booking_id).await };
        let owed = async {
            self.release_owed().await;
            Ok::<_, CloudError>(())
        };
        let (_, ended) = tokio::join!(patient(PATIENCE, owed), self.for_each_due(PATIENCE, look));
        ended
    }

    /// Does this for every booking that needs a look: reads one page of each shard at once, looks at what these pages
    /// hold, then reads the next. A booking that hangs keeps the next pages for this long, and a shard for
    /// [`PATIENCE`].
    pub(crate) async fn for_each_due<T, F>(
        &self,
        patience: Duration,
        look: impl Fn(String) -> F,
    ) -> Vec<(String, Result<T, OfficeError>)>
    where
        F: Future<Output = Result<T, OfficeError>>,
    {
        let now = self.now();
        let mut looked_at = Vec::new();
        let mut shards = every_shard();
        while !shards.is_empty() {
            let due = self.next_pages(shards, now).await;
            let failed = due.failed.into_iter();
            looked_at.extend(failed.map(|(shard, fault)| (shard, Err(fault.into()))));
            shards = due.more;
            let looks = due.found.into_iter().map(|booking_id| {
                let looking = patient(patience, look(booking_id.clone()));
                async move { (booking_id, looking.await) }
            });
            let looks = futures::stream::iter(looks).buffer_unordered(PLACES);
            looked_at.extend(looks.collect::<Vec<_>>().await);
        }
        looked_at
    }

    /// Does this for every booking that needs a look, for ever, a pass a second. A pass waits for none of its
    /// looks: one that hangs takes one of [`PLACES`] for this long, and the passes meanwhile leave it alone. Only
    /// when all places are taken do the others wait for one.
    pub(crate) async fn look_forever<T, F>(
        &self,
        patience: Duration,
        look: impl Fn(String) -> F,
        failed: impl Fn(&str, &OfficeError),
    ) where
        F: Future<Output = Result<T, OfficeError>>,
    {
        let mut under_way = HashSet::new();
        let mut waiting = VecDeque::new();
        let mut looking = FuturesUnordered::new();
        let mut pass = pin!(self.pages_after(Duration::ZERO, every_shard()));
        loop {
            while looking.len() < PLACES
                && let Some(booking_id) = waiting.pop_front()
            {
                let look = patient(patience, look(String::clone(&booking_id)));
                looking.push(async move { (booking_id, look.await) });
            }
            tokio::select! {
                // A page is read when nothing waits, so no more than a page of each shard does.
                due = &mut pass, if waiting.is_empty() => {
                    for (shard, fault) in due.failed {
                        failed(&shard, &fault.into());
                    }
                    let found = due.found.into_iter();
                    waiting.extend(found.filter(|id| under_way.insert(id.clone())));
                    pass.set(match due.more.is_empty() {
                        true => self.pages_after(REST, every_shard()),
                        false => self.pages_after(Duration::ZERO, due.more),
                    });
                }
                Some((booking_id, ended)) = looking.next() => {
                    under_way.remove(&booking_id);
                    if let Err(error) = ended {
                        failed(&booking_id, &error);
                    }
                }
            }
        }
    }

    async fn pages_after(&self, rest: Duration, shards: Vec<Shard>) -> Due {
        tokio::time::sleep(rest).await;
        self.next_pages(shards, self.now()).await
    }

    /// The next page of each of these shards, all at once.
    async fn next_pages(&self, shards: Vec<Shard>, now: Millis) -> Due {
        let pages = shards.into_iter().map(|(shard, from)| async move {
            let page = patient(PATIENCE, self.due_in(&shard, now, from)).await;
            (shard, page)
        });
        let mut due = Due::default();
        for (shard, page) in join_all(pages).await {
            match page {
                Ok((found, next)) => {
                    due.found.extend(found);
                    due.more.extend(next.map(|from| (shard, Some(from))));
                }
                Err(fault) => due.failed.push((shard, fault)),
            }
        }
        due
    }
}
