//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::item::shard_of;
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Machine};

/// How many keys the index of due bookings is spread over. A sweeper asks each of them; every hold
/// is written to one. Four take 4,000 holds a second.
pub const DUE_SHARDS: u32 = 4;

/// Which key of the due index a booking is under.
pub(crate) fn due_shard(booking_id: &str) -> String {
    format!("due-{}", shard_of(booking_id, DUE_SHARDS))
}

/// TicketInventoryState and TicketHoldState.
pub const TICKETS: Table = Table {
    name: "tickets",
    entity: "TicketInventoryState, and TicketHoldState with it",
    why: "A condition can only look at the item it writes: the seat and its hold are one item. One partition key for each section, since one for the whole event would be hot. General admissions are counters here, `ga-0` to `ga-9`.",
    partition: Key::S("block_id"),
    sort: Some(Key::S("seat")),
    indexes: &[Index {
        name: "by_change",
        scope: Scope::Local,
        partition: Key::S("block_id"),
        sort: Some(Key::N("changed_at")),
        projection: Projection::All,
        why: "What changed in this section since I last looked? Seats that never changed are not in it. Local, so that it can be read consistently",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("block_id", "event-0001#A", "event and section"),
        attribute("seat", "00012", "padded, so that 10 comes after 9"),
        attribute("price", "8500", "minor units, as every amount"),
        attribute("status", "HELD", "AVAILABLE, HELD or SOLD"),
        attribute(
            "fence",
            "3",
            "how many holds this seat has had; a booking is bound to one of them",
        ),
        attribute("booking_id", "booking-0001", "who holds or owns it"),
        attribute(
            "hold_expires_at",
            "1767226200000",
            "epoch ms; from then on the hold holds nothing, whatever the status says",
        ),
        attribute(
            "changed_at",
            "1767225600000",
            "epoch ms; absent until the first change",
        ),
        attribute(
            "remaining",
            "120",
            "general admission only: how many this shard has left",
        ),
    ],
};

/// BookingState.
pub const BOOKINGS: Table = Table {
    name: "bookings",
    entity: "BookingState",
    why: "The booking's id is its key, so a booking is made once however often it is sent.",
    partition: Key::S("booking_id"),
    sort: None,
    indexes: &[Index {
        name: "due",
        scope: Scope::Global,
        partition: Key::S("due_shard"),
        sort: Some(Key::N("due_at")),
        projection: Projection::KeysOnly,
        why: "Which holds are over, and which payments are not settled? Whoever is done loses `due_shard`, so the index holds open work only",
    }],
    ttl: Some("purge_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "booking_id",
            "booking-0001",
            "made by the buyer's client: the identity of every retry",
        ),
        attribute("event_id", "event-0001", "for which event"),
        attribute("user_id", "alice", "who"),
        attribute(
            "status",
            "IN_PROGRESS",
            "IN_PROGRESS, CONFIRMED, EXPIRED or CANCELLED",
        ),
        attribute(
            "lines",
            "[{event-0001#A, 00012, fence 3}]",
            "what it holds: seats with the fence each was taken under, or admissions",
        ),
        attribute("total", "8500", "what it costs"),
        attribute(
            "hold_expires_at",
            "1767226200000",
            "epoch ms, explicit; the same on each of its tickets",
        ),
        attribute("was_extended", "true", "only if it was"),
        attribute(
            "payment",
            "OPEN",
            "OPEN while a processor may have something, then SETTLED",
        ),
        attribute(
            "payment_id",
            "payment-0001",
            "under which the processor knows it",
        ),
        attribute(
            "due_shard",
            "due-2",
            "only while there is something to do: what makes the index sparse",
        ),
        attribute(
            "due_at",
            "1767226200000",
            "epoch ms: when a sweeper should look",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute(
            "purge_at",
            "1769818200",
            "epoch s: TTL, a month after the end; cleans up and decides nothing",
        ),
    ],
};

/// How many tickets a user has.
pub const ALLOWANCES: Table = Table {
    name: "allowances",
    entity: "how many tickets of an event a user holds or owns",
    why: "The limit for each user is a guard on a counter, in the transaction of the hold.",
    partition: Key::S("event_user"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("event_user", "event-0001#alice", "event and user"),
        attribute("tickets_taken", "2", "held and owned together"),
        attribute(
            "counted_bookings",
            "{booking-0001}",
            "by which bookings: an expired one makes room when the user needs it",
        ),
    ],
};

/// What is on sale.
pub const EVENTS: Table = Table {
    name: "events",
    entity: "the event and its sections",
    why: "Written once, never changed.",
    partition: Key::S("event_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("event_id", "event-0001", "identity"),
        attribute("name", "Night of the proms", "what people read"),
        attribute(
            "sections",
            "[{A, SEATS 200, 8500}]",
            "name, what it sells, price",
        ),
    ],
};

/// The ledger of the sandbox processor.
pub const SANDBOX_CHARGES: Table = Table {
    name: "sandbox_charges",
    entity: "the ledger of the sandbox card processor",
    why: "Stands for somebody else's system, which forgets nothing when the office dies.",
    partition: Key::S("payment_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("payment_id", "payment-0001", "made by the buyer's client"),
        attribute(
            "status",
            "AUTHORIZED",
            "AUTHORIZED, CAPTURED, VOIDED, REFUNDED or DECLINED",
        ),
        attribute("amount", "8500", "minor units"),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[TICKETS, BOOKINGS, ALLOWANCES, EVENTS, SANDBOX_CHARGES];

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[];
