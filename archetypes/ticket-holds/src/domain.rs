//! The rules, pure: states, what a hold may take, what a booking may still do. `now` is an argument,
//! nothing here knows a database.

use cloud::Millis;
use cloud::text::NotAnId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Money in minor units.
pub type Amount = i64;

/// How long a hold lasts: the documents' `EX 600`.
pub const HOLD_MS: Millis = 600_000;

/// By how much it may be extended, once.
pub const EXTENSION_MS: Millis = 300_000;

/// One transaction takes 100 items. One is the booking, one is the user's allowance.
pub const MAX_SEATS: usize = 98;

/// The longest id, name or section.
pub const MAX_TEXT: usize = 200;

/// The highest seat number: five digits, so that seats sort as they are counted.
pub const MAX_SEAT_NUMBER: u32 = 99_999;

/// The most numbered seats an event may have.
pub const MAX_EVENT_SEATS: u32 = 200_000;

/// The highest price of one ticket: a million.
pub const MAX_PRICE: Amount = 1_000_000_00;

/// What the office allows. The same for everybody who works on the same tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How long a hold lasts.
    pub hold_ms: Millis,
    /// By how much it may be extended, once.
    pub extension_ms: Millis,
    /// How many tickets of one event one user may hold and own together.
    pub per_user_limit: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hold_ms: HOLD_MS,
            extension_ms: EXTENSION_MS,
            per_user_limit: 8,
        }
    }
}

/// A seat of an event: `A-12`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat {
    /// The section it is in.
    pub section: String,
    /// Its number there.
    pub number: u32,
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.section, self.number)
    }
}

impl std::str::FromStr for Seat {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let wrong = || BadInput::Seat(text.chars().take(MAX_TEXT).collect());
        let (section, number) = text.rsplit_once('-').ok_or_else(wrong)?;
        let seat = Self {
            section: section.to_owned(),
            number: number.parse().map_err(|_| wrong())?,
        };
        // One seat has one name: neither `A-03` nor `A-+3`.
        let is_its_name = seat.to_string() == text && self::text("a section", section).is_ok();
        if is_its_name && (1..=MAX_SEAT_NUMBER).contains(&seat.number) {
            Ok(seat)
        } else {
            Err(wrong())
        }
    }
}

impl Seat {
    /// The seat under these keys.
    pub fn of(block_id: &str, key: &str) -> Self {
        let section = block_id.split('#').nth(1).unwrap_or_default();
        Self {
            section: section.to_owned(),
            number: key.parse().unwrap_or_default(),
        }
    }

    /// The sort key: padded, so that 10 comes after 9.
    pub fn key(&self) -> String {
        format!("{:05}", self.number)
    }
}

/// The partition key of a section. One key for each section, because one for the whole event would
/// take no more than 1,000 write units a second.
pub fn block_id(event_id: &str, section: &str) -> String {
    format!("{event_id}#{section}")
}

/// TicketInventoryState's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketStatus {
    /// Anybody's.
    Available,
    /// Somebody's until `hold_expires_at`, and nobody's from then on, whoever has or has not
    /// written that down.
    Held,
    /// Somebody's.
    Sold,
}

/// TicketInventoryState, with TicketHoldState in the same item: a condition can look at nothing
/// but the item it writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketState {
    /// Event and section.
    pub block_id: String,
    /// The padded number.
    pub seat: String,
    /// What it costs.
    pub price: Amount,
    /// Whose it is.
    pub status: TicketStatus,
    /// Counts the holds this ticket has had. A booking is bound to one of them, and can do nothing
    /// once there is a later one.
    pub fence: u64,
    /// Who held it last, or owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking_id: Option<String>,
    /// When the hold ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_expires_at: Option<Millis>,
    /// When it last changed; absent until it first does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Millis>,
}

impl TicketState {
    /// The seat as people write it.
    pub fn name(&self) -> Seat {
        Seat::of(&self.block_id, &self.seat)
    }

    /// What the ticket is to somebody who asks at `now`: a hold that is over holds nothing.
    pub fn status_at(&self, now: Millis) -> TicketStatus {
        match (self.status, self.hold_expires_at) {
            (TicketStatus::Held, Some(until)) if until <= now => TicketStatus::Available,
            (status, _) => status,
        }
    }
}

/// BookingState's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BookingStatus {
    /// It holds its tickets until `hold_expires_at`.
    InProgress,
    /// It owns them.
    Confirmed,
    /// It was not confirmed in time.
    Expired,
    /// Its user gave it up.
    Cancelled,
}

impl BookingStatus {
    /// As it stands in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::InProgress => "IN_PROGRESS",
            Self::Confirmed => "CONFIRMED",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// Whether a card processor may still have something of this booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Payment {
    /// It was or may have been asked. Somebody must capture or give back.
    Open,
    /// Captured or given back, as the status says.
    Settled,
}

/// One ticket of a booking, or several general admissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Event and section.
    pub block_id: String,
    /// The seat, or the shard of the counter.
    pub seat: String,
    /// Which hold of the ticket this is. General admissions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How many: one seat, or so many admissions.
    pub count: u32,
    /// What they cost together.
    pub price: Amount,
}

/// BookingState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookingState {
    /// Identity, made by the buyer's client.
    pub booking_id: String,
    /// For which event.
    pub event_id: String,
    /// Who.
    pub user_id: String,
    /// Where it stands.
    pub status: BookingStatus,
    /// What it holds or owns.
    pub lines: Vec<Line>,
    /// What it costs.
    pub total: Amount,
    /// When the hold ends; explicit, whatever any TTL does.
    pub hold_expires_at: Millis,
    /// Whether the hold was extended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_extended: bool,
    /// Whether a processor has something to do with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment: Option<Payment>,
    /// Which payment, made by the buyer's client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_id: Option<String>,
    /// Which payments were declined.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub declined: BTreeSet<String>,
    /// Where the sweeper finds it, while there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_shard: Option<String>,
    /// When the sweeper should look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    /// When it was made.
    pub created_at: Millis,
}

impl BookingState {
    /// How many tickets.
    pub fn tickets(&self) -> u32 {
        self.lines.iter().map(|line| line.count).sum()
    }

    /// Under which key the processor knows its payment. The booking is part of it: one payment pays
    /// for one booking.
    pub fn charge_key(&self) -> Option<String> {
        let payment_id = self.payment_id.as_ref()?;
        Some(format!("{}#{payment_id}", self.booking_id))
    }

    /// Its lines that are seats, with their fences.
    pub fn seats(&self) -> impl Iterator<Item = (&Line, u64)> {
        self.lines
            .iter()
            .filter_map(|line| Some((line, line.fence?)))
    }

    /// Whether this ticket still is what this booking holds or owns.
    pub fn still_has(&self, line: &Line, ticket: &TicketState) -> bool {
        ticket.booking_id.as_deref() == Some(&self.booking_id)
            && Some(ticket.fence) == line.fence
            && (&ticket.block_id, &ticket.seat) == (&line.block_id, &line.seat)
    }
}

/// What a buyer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBooking {
    /// Made by the buyer's client: the identity of every retry.
    pub booking_id: String,
    /// For which event.
    pub event_id: String,
    /// Who.
    pub user_id: String,
    /// Which seats: all of them, or none.
    pub seats: Vec<Seat>,
}

/// Why a hold was refused. Not a fault: the request was fine, the answer is no.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Somebody else's for now.
    #[error("{seat} is held until {until}")]
    Held {
        /// Which seat.
        seat: Seat,
        /// When that hold ends, in epoch milliseconds, unless it is extended.
        until: Millis,
    },
    /// Another request has its lease, and no hold yet: it may get the seat or not.
    #[error("another buyer is asking for {seat} right now; ask again in a moment")]
    Asked {
        /// Which seat.
        seat: Seat,
    },
    /// Somebody else's.
    #[error("{seat} is sold")]
    Sold {
        /// Which seat.
        seat: Seat,
    },
    /// More than one user may have.
    #[error("at most {limit} tickets for each user, {taken} are held or bought already")]
    OverLimit {
        /// How many one may have.
        limit: u32,
        /// How many this one has.
        taken: i64,
    },
    /// Not so many admissions left.
    #[error("only {left} admissions are left")]
    SoldOut {
        /// How many there are.
        left: i64,
    },
}

/// What a hold on these tickets would be, if all of them can be had at `now`: available, or held by
/// somebody whose time is over. The displaced booking keeps an old fence, and can do nothing with
/// it.
pub fn decide(tickets: &[TicketState], now: Millis) -> Result<Vec<Line>, Rejection> {
    let line = |ticket: &TicketState| {
        let seat = ticket.name();
        match ticket.status_at(now) {
            TicketStatus::Sold => Err(Rejection::Sold { seat }),
            TicketStatus::Held => Err(Rejection::Held {
                seat,
                until: ticket.hold_expires_at.unwrap_or(now),
            }),
            TicketStatus::Available => Ok(Line {
                block_id: ticket.block_id.clone(),
                seat: ticket.seat.clone(),
                fence: Some(ticket.fence + 1),
                count: 1,
                price: ticket.price,
            }),
        }
    };
    tickets.iter().map(line).collect()
}

/// Why a booking cannot do that any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// Its time was up.
    #[error("the hold has expired")]
    Expired,
    /// Its time was up, and somebody else has one of its seats.
    #[error("the hold has expired, and {seat} is somebody else's")]
    Displaced {
        /// Which.
        seat: Seat,
    },
    /// Its user gave it up.
    #[error("the booking was cancelled")]
    Cancelled,
    /// It is bought.
    #[error("the booking is confirmed")]
    Confirmed,
    /// Somebody is paying for it.
    #[error("a payment for the booking is under way")]
    PaymentUnderWay,
}

impl BookingState {
    /// Whether it is still a hold at `now`.
    pub fn open_at(&self, now: Millis) -> Result<(), Over> {
        match self.status {
            BookingStatus::InProgress if self.hold_expires_at > now => Ok(()),
            BookingStatus::InProgress | BookingStatus::Expired => Err(Over::Expired),
            BookingStatus::Cancelled => Err(Over::Cancelled),
            BookingStatus::Confirmed => Err(Over::Confirmed),
        }
    }
}

/// What is wrong with what came in. Found before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Not a seat.
    #[error("'{0}' is not a seat such as A-12")]
    Seat(String),
    /// None at all.
    #[error("a booking needs at least one ticket")]
    NoSeats,
    /// More than one transaction can hold.
    #[error(
        "{0} seats: one booking takes at most {MAX_SEATS}, since all or none is one transaction of 100 items"
    )]
    TooManySeats(usize),
    /// The same one twice.
    #[error("{0} is named twice")]
    SeatTwice(Seat),
    /// More than anybody may have.
    #[error("{wanted} tickets: at most {limit} for each user")]
    AboveLimit {
        /// How many.
        wanted: u32,
        /// How many one may have.
        limit: u32,
    },
    /// Not an id, nor a name.
    #[error("{what} {why}")]
    Id {
        /// Which text.
        what: &'static str,
        /// Why not.
        why: NotAnId,
    },
    /// A character that the keys use.
    #[error("{what} must not contain '#', '{{' or '}}'")]
    Separator {
        /// Which text.
        what: &'static str,
    },
    /// Not a price.
    #[error("a price must be between 0 and {MAX_PRICE} minor units, not {0}")]
    Price(Amount),
    /// No seats, or too many.
    #[error("a section has between 1 and {MAX_SEAT_NUMBER} tickets, not {0}")]
    Size(u32),
    /// Too many seats altogether.
    #[error("an event has at most {MAX_EVENT_SEATS} seats, not {0}")]
    TooManyEventSeats(u64),
    /// The same name twice.
    #[error("the section '{0}' is named twice")]
    SectionTwice(String),
    /// No section, or too many.
    #[error("an event has between 1 and {MAX_TEXT} sections, not {0}")]
    Sections(usize),
}

/// An id or a name, without the signs that keys are made with.
pub(crate) fn text(what: &'static str, text: &str) -> Result<(), BadInput> {
    cloud::text::id(text, MAX_TEXT).map_err(|why| BadInput::Id { what, why })?;
    if text.contains(['#', '{', '}']) {
        return Err(BadInput::Separator { what });
    }
    Ok(())
}

impl NewBooking {
    /// Checks what can be checked without reading anything.
    pub fn validate(&self, rules: &Rules) -> Result<(), BadInput> {
        text("booking_id", &self.booking_id)?;
        text("event_id", &self.event_id)?;
        text("user_id", &self.user_id)?;
        if self.seats.is_empty() {
            return Err(BadInput::NoSeats);
        }
        if self.seats.len() > MAX_SEATS {
            return Err(BadInput::TooManySeats(self.seats.len()));
        }
        let mut seen = BTreeSet::new();
        for seat in &self.seats {
            text("a section", &seat.section)?;
            if !(1..=MAX_SEAT_NUMBER).contains(&seat.number) {
                return Err(BadInput::Seat(seat.to_string()));
            }
            if !seen.insert(seat) {
                return Err(BadInput::SeatTwice(seat.clone()));
            }
        }
        within_limit(self.seats.len() as u32, rules)
    }
}

/// Whether anybody may have so many.
pub(crate) fn within_limit(wanted: u32, rules: &Rules) -> Result<(), BadInput> {
    let limit = rules.per_user_limit;
    if wanted > limit {
        return Err(BadInput::AboveLimit { wanted, limit });
    }
    Ok(())
}
