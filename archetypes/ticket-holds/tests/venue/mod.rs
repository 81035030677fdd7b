//! A venue to try things on, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use aws_sdk_dynamodb::types::AttributeValue::S;
use aws_sdk_dynamodb::types::KeysAndAttributes;
use chaos::{Interleave, World};
use cloud::item::from_item;
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Clock, Cloud, CloudError, Item};
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ticket_holds::allowance::Allowance;
use ticket_holds::domain::{HOLD_MS, Line, Payment, TicketState, TicketStatus, block_id};
use ticket_holds::general_admission::AdmissionShard;
use ticket_holds::purchase::Cards;
use ticket_holds::sandbox_cards::SandboxCards;
use ticket_holds::{
    BookingState, BookingStatus, BoxOffice, Cancelling, Confirming, Creation, Expiry, Extension,
    NewAdmissions, NewBooking, NewEvent, NewSection, Over, Purchase, Realization, Rejection,
    Reserved, Seat, Tickets,
};

/// Runs a test in both realizations: the promises are the same.
#[macro_export]
macro_rules! in_both_realizations {
    ($($name:ident),+ $(,)?) => {
        chaos::on_each! {
            [pure: ticket_holds::Realization::Pure, leased: ticket_holds::Realization::Leased]
            { $($name),+ }
        }
    };
}

/// How many seats section A has, and how many admissions the floor.
pub const SEATS: u32 = 4;
pub const ADMISSIONS: u32 = 12;
pub const PRICE: i64 = 50_00;

/// Everybody who may have a booking here; each has one, `booking-of-NAME`.
const BUYERS: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "frank"];

/// An event on sale, and a second view of it by somebody whose clock is ahead.
pub struct Venue {
    pub office: BoxOffice,
    /// The same office seen with a clock by which every hold is over: clocks never agree.
    pub late: BoxOffice,
    pub cards: SandboxCards,
    pub event_id: String,
    pub realization: Realization,
}

impl World for Venue {
    fn cloud(&self) -> &Cloud {
        self.office.cloud()
    }
}

pub fn event(event_id: &str) -> NewEvent {
    let section = |name: &str, tickets| NewSection {
        name: name.into(),
        tickets,
        price: PRICE,
    };
    NewEvent {
        event_id: event_id.into(),
        name: "Night of the proms".into(),
        sections: vec![
            section("A", Tickets::Seats(SEATS)),
            section("Floor", Tickets::Admissions(ADMISSIONS)),
        ],
    }
}

pub async fn open(realization: Realization) -> Venue {
    open_on(cloud::connect_for_tests().await.unwrap(), realization).await
}

/// A venue on tables that no other test uses, on any backend: for whoever sweeps all that is due.
pub async fn open_alone(realization: Realization) -> Venue {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    open_on(cloud, realization).await
}

async fn open_on(cloud: Cloud, realization: Realization) -> Venue {
    let tables = ticket_holds::tables::TABLES;
    cloud.create_tables(tables).await.unwrap();
    let office = patient(BoxOffice::new(cloud.clone(), realization));
    let event_id = cloud.ids().next("event");
    let created = office.create_event(&event(&event_id)).await.unwrap();
    assert_eq!(created, Creation::OnSale);
    let later = Clock::manual(cloud.now() + HOLD_MS + 1);
    let late = patient(BoxOffice::new(cloud.with_clock(later), realization));
    // Both have seen the event: from now on no call asks for it.
    late.event(&event_id).await.unwrap();
    Venue {
        late,
        office,
        cards: SandboxCards::new(cloud),
        event_id,
        realization,
    }
}

/// The same office, which waits for a lease however long a test holds the call.
pub fn patient(office: BoxOffice) -> BoxOffice {
    office.with_lease_patience(Duration::from_secs(5))
}

/// Makes all tickets of an event, as many passes as that takes.
pub async fn create(office: &BoxOffice, event: &NewEvent) -> usize {
    let mut passes = 1;
    while office.create_event(event).await.unwrap() != Creation::OnSale {
        office.cloud().clock().advance(Duration::from_secs(1));
        passes += 1;
    }
    passes
}

/// A venue where Alice holds seat 1.
pub async fn held(realization: Realization) -> Venue {
    let venue = open(realization).await;
    venue.hold("alice", &[1]).await;
    venue
}

/// A venue where Alice holds seat 1, and Redis, whose clock nobody can turn, has let her lease
/// end. By `office`'s clock her hold still lasts; by `late`'s it is over.
pub async fn lapsed(realization: Realization) -> Venue {
    let venue = held(realization).await;
    venue.redis_forgets().await;
    venue
}

/// The same on tables of its own.
pub async fn lapsed_alone(realization: Realization) -> Venue {
    let venue = open_alone(realization).await;
    venue.hold("alice", &[1]).await;
    venue.redis_forgets().await;
    venue
}

/// A venue where Alice's payment was authorized, and then her office died.
pub async fn paying(realization: Realization) -> Venue {
    let venue = held(realization).await;
    let dying = DiesAfterAuthorize(venue.cards.clone());
    let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
    let paid = venue.office.purchase(&dying, &booking, &payment, "card");
    paid.await.unwrap_err();
    assert_eq!(venue.charge("alice").await, "AUTHORIZED");
    venue
}

/// A processor that says yes, and nobody is there to hear it.
pub struct DiesAfterAuthorize(pub SandboxCards);

impl Cards for DiesAfterAuthorize {
    fn authorize<'a>(
        &'a self,
        payment_id: &'a str,
        amount: i64,
        card: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async move {
            if !self.0.authorize(payment_id, amount, card).await? {
                return Ok(false);
            }
            Err(CloudError::Unknown("nobody heard the answer".into()))
        })
    }

    fn capture<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<bool, CloudError>> {
        self.0.capture(payment_id)
    }

    fn give_back<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        self.0.give_back(payment_id)
    }
}

/// A plan under which ten minutes pass between a read and what is done about it.
pub struct SlowWrite {
    clock: Clock,
    done: AtomicBool,
}

impl SlowWrite {
    pub fn of(venue: &Venue) -> Self {
        Self {
            clock: venue.office.cloud().clock().clone(),
            done: AtomicBool::new(false),
        }
    }
}

impl Plan for SlowWrite {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    /// After the read, so that the time of the write is later.
    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async {
            if call.request.operation == "GetItem" && !self.done.swap(true, Ordering::SeqCst) {
                self.clock
                    .advance(Duration::from_millis(HOLD_MS as u64 + 1));
            }
        })
    }
}

pub fn seat(number: u32) -> Seat {
    Seat {
        section: "A".into(),
        number,
    }
}

/// `alice-again` sends what `alice` sends.
pub fn booking_id(venue: &Venue, user: &str) -> String {
    format!("{}-of-{}", venue.event_id, user.trim_end_matches("-again"))
}

impl Venue {
    pub fn id(&self, user: &str) -> String {
        booking_id(self, user)
    }

    pub fn new_booking(&self, user: &str, seats: &[u32]) -> NewBooking {
        NewBooking {
            booking_id: self.id(user),
            event_id: self.event_id.clone(),
            user_id: user.trim_end_matches("-again").into(),
            seats: seats.iter().copied().map(seat).collect(),
        }
    }

    pub fn new_admissions(&self, user: &str, count: u32) -> NewAdmissions {
        NewAdmissions {
            booking_id: self.id(user),
            event_id: self.event_id.clone(),
            user_id: user.trim_end_matches("-again").into(),
            section: "Floor".into(),
            count,
        }
    }

    pub async fn reserve(&self, user: &str, seats: &[u32]) -> Reserved {
        let new = self.new_booking(user, seats);
        self.office.reserve(&new).await.unwrap()
    }

    /// A hold that must succeed.
    pub async fn hold(&self, user: &str, seats: &[u32]) -> BookingState {
        match self.reserve(user, seats).await {
            Reserved::Held(booking) => booking,
            other => panic!("{user} did not get {seats:?}: {other:?}"),
        }
    }

    pub async fn hold_admissions(&self, user: &str, count: u32) -> BookingState {
        let new = self.new_admissions(user, count);
        match self.office.reserve_admissions(&new).await.unwrap() {
            Reserved::Held(booking) => booking,
            other => panic!("{user} did not get {count}: {other:?}"),
        }
    }

    pub async fn confirm(&self, user: &str) -> Confirming {
        self.office.confirm(&self.id(user)).await.unwrap()
    }

    pub async fn booking(&self, user: &str) -> Option<BookingState> {
        self.beside().booking(&self.id(user)).await.unwrap()
    }

    pub async fn status(&self, user: &str) -> Option<BookingStatus> {
        self.booking(user).await.map(|booking| booking.status)
    }

    pub fn payment_id(&self, user: &str) -> String {
        format!("{}-pays", self.id(user))
    }

    /// What the processor says, beside the tap.
    pub async fn charge(&self, user: &str) -> String {
        let cards = SandboxCards::new(self.office.cloud().beside_tap());
        let key = format!("{}#{}", self.id(user), self.payment_id(user));
        let charge = cards.charge(&key).await.unwrap();
        charge.map_or("NONE".into(), |charge| charge.status)
    }

    pub async fn purchase(&self, user: &str) -> Purchase {
        let (booking, payment) = (self.id(user), self.payment_id(user));
        let bought = self
            .office
            .purchase(&self.cards, &booking, &payment, "card");
        bought.await.unwrap()
    }

    /// Ten minutes pass, for us and for Redis.
    pub async fn hold_time_passes(&self) {
        self.office
            .cloud()
            .clock()
            .advance(Duration::from_millis(HOLD_MS as u64 + 1));
        self.redis_forgets().await;
    }

    /// Every lease is gone: expired, failed over, flushed. Redis is shared by the tests of a
    /// process, so only this venue's.
    pub async fn redis_forgets(&self) {
        forget(self, &self.office.cloud().beside_tap()).await;
    }

    /// The office as it is, beside the tap: for looking without being seen.
    pub fn beside(&self) -> BoxOffice {
        BoxOffice::new(self.office.cloud().beside_tap(), self.realization)
    }

    pub async fn ticket(&self, number: u32) -> TicketState {
        let cloud = self.office.cloud().beside_tap();
        let found = cloud
            .dynamodb()
            .get_item()
            .table_name(cloud.names().table("tickets"))
            .key("block_id", S(block_id(&self.event_id, "A")))
            .key("seat", S(seat(number).key()))
            .consistent_read(true)
            .send()
            .await
            .unwrap();
        from_item(&found.item.unwrap()).unwrap()
    }

    /// Items by their keys, in one call, beside the tap.
    async fn items(&self, table: &str, keys: Vec<(&str, String)>) -> Vec<Item> {
        let cloud = self.office.cloud().beside_tap();
        let table = cloud.names().table(table);
        let keys = keys
            .into_iter()
            .map(|(name, id)| Item::from([(name.to_owned(), S(id))]));
        let keys = KeysAndAttributes::builder()
            .set_keys(Some(keys.collect()))
            .consistent_read(true)
            .build();
        let request = cloud.dynamodb().batch_get_item();
        let found = request.request_items(&table, keys.unwrap()).send().await;
        let mut found = found.unwrap().responses.unwrap();
        found.remove(&table).unwrap_or_default()
    }

    pub async fn bookings(&self) -> Vec<BookingState> {
        let keys = BUYERS.map(|user| ("booking_id", self.id(user)));
        let items = self.items("bookings", keys.into()).await;
        items.iter().map(|item| from_item(item).unwrap()).collect()
    }

    async fn tickets(&self) -> Vec<TicketState> {
        let cloud = self.office.cloud().beside_tap();
        let found = cloud
            .dynamodb()
            .query()
            .table_name(cloud.names().table("tickets"))
            .key_condition_expression("block_id = :block")
            .expression_attribute_values(":block", S(block_id(&self.event_id, "A")))
            .consistent_read(true)
            .send()
            .await;
        let found = found.unwrap();
        found
            .items()
            .iter()
            .map(|item| from_item(item).unwrap())
            .collect()
    }

    /// Everything that must hold, however the story went. Gives the bookings at the end.
    pub async fn invariants(&self) -> Result<Vec<BookingState>, String> {
        let bookings = self.bookings().await;
        let seats = self.tickets().await;
        let shards = self.beside();
        let shards = shards.admission_shards(&self.event_id, "Floor", true).await;
        let shards = shards.unwrap();
        for ticket in &seats {
            self.seat_invariants(ticket, &bookings)?;
        }
        let users = BUYERS.map(|user| ("event_user", format!("{}#{user}", self.event_id)));
        let allowances = self.items("allowances", users.into()).await;
        for booking in &bookings {
            self.booking_invariants(booking, &seats, &allowances)
                .await?;
        }
        floor_invariants(&shards, &bookings)?;
        Ok(bookings)
    }

    fn seat_invariants(
        &self,
        ticket: &TicketState,
        bookings: &[BookingState],
    ) -> Result<(), String> {
        let name = ticket.name();
        let names = |booking: &&BookingState| line_of(booking, ticket).is_some();
        let naming: Vec<_> = bookings.iter().filter(names).collect();
        let confirmed: Vec<_> = naming
            .iter()
            .filter(|booking| booking.status == BookingStatus::Confirmed)
            .collect();
        let owners: Vec<_> = confirmed.iter().map(|b| b.user_id.as_str()).collect();
        ensure(owners.len() <= 1, || {
            format!("{name} is sold to {}", owners.join(" and to "))
        })?;
        ensure(
            (ticket.status == TicketStatus::Sold) == (owners.len() == 1),
            || format!("{name} is {:?}, and {owners:?} own it", ticket.status),
        )?;
        let mut fences: Vec<_> = naming
            .iter()
            .filter_map(|booking| line_of(booking, ticket)?.fence)
            .collect();
        fences.sort_unstable();
        ensure(
            fences.windows(2).all(|pair| pair[0] < pair[1])
                && fences.last().copied().unwrap_or(0) == ticket.fence,
            || format!("{name} had the fences {fences:?}, and has {}", ticket.fence),
        )?;
        if ticket.status == TicketStatus::Available {
            return Ok(());
        }
        let holder = naming
            .iter()
            .find(|booking| Some(&booking.booking_id) == ticket.booking_id.as_ref())
            .ok_or_else(|| format!("{name} is {:?} by nobody", ticket.status))?;
        ensure(
            line_of(holder, ticket).and_then(|line| line.fence) == Some(ticket.fence),
            || format!("{name} and its booking have different fences"),
        )?;
        let fits = match (ticket.status, holder.status) {
            (TicketStatus::Sold, BookingStatus::Confirmed) => true,
            (TicketStatus::Held, BookingStatus::InProgress) => {
                ticket.hold_expires_at == Some(holder.hold_expires_at)
            }
            // The sweeper of the lease layer leaves the ticket as it is.
            (TicketStatus::Held, BookingStatus::Expired) => self.realization == Realization::Leased,
            _ => false,
        };
        ensure(fits, || {
            format!(
                "{name} is {:?} by a {:?} booking",
                ticket.status, holder.status
            )
        })
    }

    async fn booking_invariants(
        &self,
        booking: &BookingState,
        seats: &[TicketState],
        allowances: &[Item],
    ) -> Result<(), String> {
        let user = &booking.user_id;
        let open = booking.payment == Some(Payment::Open);
        let due = booking.status == BookingStatus::InProgress || open;
        ensure(booking.due_shard.is_some() == due, || {
            format!("the sweeper does not know what to do about {user}'s booking: {booking:?}")
        })?;
        if booking.status == BookingStatus::Confirmed {
            for ticket in seats {
                let Some(fence) = line_of(booking, ticket).and_then(|line| line.fence) else {
                    continue;
                };
                ensure(
                    ticket.status == TicketStatus::Sold && ticket.fence == fence,
                    || format!("{user} bought {}, and does not own it", ticket.name()),
                )?;
            }
        }
        let live = matches!(
            booking.status,
            BookingStatus::InProgress | BookingStatus::Confirmed
        );
        let key = S(format!("{}#{user}", self.event_id));
        let found = allowances.iter().find(|item| item["event_user"] == key);
        let allowance: Allowance =
            found.map_or(Allowance::default(), |item| from_item(item).unwrap());
        let counted = allowance.counted_bookings.contains(&booking.booking_id);
        let taken = if live {
            i64::from(booking.tickets())
        } else {
            0
        };
        ensure(counted == live && allowance.tickets_taken == taken, || {
            format!("{user} has {taken} tickets, and {allowance:?} was counted")
        })?;
        let Some(payment_id) = booking.charge_key() else {
            return ensure(!open, || {
                format!("{user}'s payment is open, and nobody knows which")
            });
        };
        let cards = SandboxCards::new(self.office.cloud().beside_tap());
        let charge = cards.charge(&payment_id).await.unwrap();
        let charge = charge.map(|charge| charge.status);
        let fits = match charge.as_deref() {
            Some("CAPTURED") => booking.status == BookingStatus::Confirmed || open,
            Some("AUTHORIZED") => open,
            _ => booking.status != BookingStatus::Confirmed,
        };
        ensure(fits, || {
            let status = booking.status;
            format!(
                "{user}'s payment is {charge:?}, the booking {status:?}, {:?}",
                booking.payment
            )
        })
    }
}

fn floor_invariants(shards: &[AdmissionShard], bookings: &[BookingState]) -> Result<(), String> {
    let left: i64 = shards.iter().map(|shard| shard.remaining).sum();
    ensure(shards.iter().all(|shard| shard.remaining >= 0), || {
        format!("more admissions were taken than there are: {shards:?}")
    })?;
    let live = |booking: &&BookingState| {
        matches!(
            booking.status,
            BookingStatus::InProgress | BookingStatus::Confirmed
        )
    };
    let lines = bookings.iter().filter(live).flat_map(|b| &b.lines);
    let taken: u32 = lines
        .filter(|line| line.fence.is_none())
        .map(|line| line.count)
        .sum();
    ensure(left + i64::from(taken) == i64::from(ADMISSIONS), || {
        format!("{left} admissions are left and {taken} taken, of {ADMISSIONS}")
    })
}

/// Every lease of a venue is gone.
pub async fn forget(venue: &Venue, cloud: &Cloud) {
    let mut redis = cloud.redis().await.unwrap();
    let mut del = redis::cmd("DEL");
    for number in 1..=SEATS {
        let block = block_id(&venue.event_id, "A");
        del.arg(venue.office.lease_key(&block, &seat(number).key()));
    }
    let _: i64 = del.query_async(&mut redis).await.unwrap();
}

fn line_of<'a>(booking: &'a BookingState, ticket: &TicketState) -> Option<&'a Line> {
    let same = |line: &&Line| line.block_id == ticket.block_id && line.seat == ticket.seat;
    booking.lines.iter().find(same)
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// What an actor was told, whatever it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Reserve(Reserved),
    Confirm(Confirming),
    Expire(Expiry),
    Cancel(Cancelling),
    Extend(Extension),
    Purchase(Purchase),
    Nothing,
}

impl Told {
    fn word(&self) -> &'static str {
        match self {
            Self::Reserve(Reserved::Held(_)) => "holds",
            Self::Reserve(Reserved::Before(_)) => "held before",
            // With leases some hear that it is asked for: the same end, a moment earlier.
            Self::Reserve(Reserved::Rejected(Rejection::Held { .. } | Rejection::Asked { .. })) => {
                "is told held"
            }
            Self::Reserve(Reserved::Rejected(Rejection::Sold { .. })) => "is told sold",
            Self::Reserve(Reserved::Rejected(_)) => "is told no",
            Self::Confirm(Confirming::Confirmed(_)) => "confirms",
            Self::Confirm(Confirming::Before(_)) => "confirmed before",
            Self::Confirm(Confirming::Refused(Over::Displaced { .. })) => "is displaced",
            Self::Confirm(Confirming::Refused(Over::PaymentUnderWay)) => "must wait",
            Self::Confirm(Confirming::Refused(_)) => "is too late",
            Self::Expire(Expiry::Expired(_)) => "expires",
            Self::Expire(Expiry::NotDue { .. }) => "finds it not due",
            Self::Expire(Expiry::Over(_)) => "finds it over",
            Self::Cancel(Cancelling::Cancelled(_)) => "cancels",
            Self::Cancel(Cancelling::Over(_)) => "finds it over",
            Self::Extend(Extension::Until(_)) => "extends",
            Self::Extend(Extension::Before(_)) => "extended before",
            Self::Extend(Extension::Refused(_)) => "cannot extend",
            Self::Purchase(Purchase::Bought(_)) => "buys",
            Self::Purchase(Purchase::Declined) => "is declined",
            Self::Purchase(Purchase::Refused(_)) => "pays nothing",
            Self::Nothing => "is done",
        }
    }
}

/// The label of an end: `alice holds, bob is told held`.
fn label(told: &[(&'static str, Told)]) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(who, told)| format!("{who} {}", told.word()))
        .collect();
    words.join(", ")
}

/// After every order the invariants must hold, and what each actor was told must be what stands in
/// the tables.
pub fn checked(actors: Interleave<Venue, Told>) -> Interleave<Venue, Told> {
    actors.check(|venue, told| async move {
        let end = venue.invariants().await?;
        let cancelled = told
            .iter()
            .any(|(_, told)| matches!(told, Told::Cancel(Cancelling::Cancelled(_))));
        let expired = told
            .iter()
            .filter(|(_, told)| matches!(told, Told::Expire(Expiry::Expired(_))));
        if expired.count() > 1 {
            return Err("one hold was expired twice".into());
        }
        for (who, told) in &told {
            let booking_id = venue.id(who);
            let kept = end.iter().find(|booking| booking.booking_id == booking_id);
            let status = kept.map(|booking| booking.status);
            let wrong = match told {
                Told::Reserve(Reserved::Held(_) | Reserved::Before(_)) => status.is_none(),
                Told::Reserve(Reserved::Rejected(_)) => status.is_some(),
                Told::Confirm(Confirming::Confirmed(_)) | Told::Purchase(Purchase::Bought(_)) => {
                    status != Some(BookingStatus::Confirmed) && !cancelled
                }
                // Beside a purchase of the same booking these are true.
                Told::Confirm(Confirming::Refused(Over::PaymentUnderWay))
                | Told::Purchase(Purchase::Refused(Over::Confirmed)) => false,
                Told::Confirm(Confirming::Refused(_)) | Told::Purchase(Purchase::Refused(_)) => {
                    status == Some(BookingStatus::Confirmed)
                }
                // Who was given more time has the seat for that time, or has bought it.
                Told::Extend(Extension::Until(until)) if !cancelled => {
                    let ticket = venue.ticket(1).await;
                    let has = match status {
                        Some(BookingStatus::InProgress) => ticket.hold_expires_at == Some(*until),
                        status => status == Some(BookingStatus::Confirmed),
                    };
                    !has || ticket.booking_id.as_ref() != Some(&booking_id)
                }
                _ => false,
            };
            if wrong {
                return Err(format!(
                    "{who} was told {told:?}, but the booking is {status:?}"
                ));
            }
        }
        Ok(label(&told))
    })
}

/// Adds one who asks for seats.
pub fn reserver(
    actors: Interleave<Venue, Told>,
    name: &'static str,
    seats: &'static [u32],
) -> Interleave<Venue, Told> {
    actors.actor(name, move |venue| async move {
        Told::Reserve(venue.reserve(name, seats).await)
    })
}

/// Adds one who asks for seats, and by whose clock every hold is over.
pub fn late_reserver(
    actors: Interleave<Venue, Told>,
    name: &'static str,
    seats: &'static [u32],
) -> Interleave<Venue, Told> {
    actors.actor(name, move |venue| async move {
        let new = venue.new_booking(name, seats);
        Told::Reserve(venue.late.reserve(&new).await.unwrap())
    })
}

/// Adds one who confirms, and by whose clock there is still time.
pub fn confirmer(actors: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    actors.actor(name, move |venue| async move {
        Told::Confirm(venue.confirm(name).await)
    })
}

/// Adds one who ends Alice's hold, and by whose clock it is over.
pub fn expirer(actors: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    actors.actor(name, |venue| async move {
        let id = venue.id("alice");
        Told::Expire(venue.late.expire_hold(&id).await.unwrap())
    })
}

/// Adds one who gives Alice's booking up.
pub fn canceller(actors: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    actors.actor(name, |venue| async move {
        let id = venue.id("alice");
        Told::Cancel(venue.office.cancel(&id).await.unwrap())
    })
}

/// Adds one who asks for more time for Alice.
pub fn extender(actors: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    actors.actor(name, |venue| async move {
        let id = venue.id("alice");
        Told::Extend(venue.office.extend_hold(&id).await.unwrap())
    })
}

/// Adds one who pays.
pub fn buyer(actors: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    actors.actor(name, move |venue| async move {
        Told::Purchase(venue.purchase(name).await)
    })
}

/// Somebody goes on with a payment whose office died after the authorization.
pub fn payer(actors: Interleave<Venue, Told>) -> Interleave<Venue, Told> {
    actors.actor("alice", |venue| async move {
        let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
        let told = venue.office.confirm_paid(&booking, &payment).await.unwrap();
        if let Confirming::Confirmed(booking) = &told {
            venue.office.settle(&venue.cards, booking).await.unwrap();
        }
        Told::Confirm(told)
    })
}
