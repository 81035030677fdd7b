//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::item::shard_of;
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// How many keys the index of due bookings is spread over. A sweeper asks each of them; every hold
/// enters one and leaves it. Four take 2,000 holds a second.
pub const DUE_SHARDS: u32 = 4;

/// Which key of the due index a booking is under.
pub fn due_shard(booking_id: &str) -> String {
    format!("due-{}", shard_of(booking_id, DUE_SHARDS))
}

/// TicketInventoryState and TicketHoldState.
pub const TICKETS: Table = Table {
    name: "tickets",
    entity: "TicketInventoryState, and TicketHoldState with it",
    why: "A condition can only look at the item it writes: the seat and its hold are one item. One partition key for each section, since one for the whole event would be hot. General admissions are ten counters here, each under a key of its own.",
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
        attribute(
            "seat",
            "00012",
            "padded, so that 10 comes after 9; `ga-3` for a counter",
        ),
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
            "declined",
            "{payment-0000}",
            "payments whose card was declined: they are over, also when a copy of their start lands late",
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
    why: "CREATING until all its tickets are there. ON_SALE it never changes again, so each process reads it once.",
    partition: Key::S("event_id"),
    sort: None,
    indexes: &[Index {
        name: "being_created",
        scope: Scope::Global,
        partition: Key::S("creating"),
        sort: Some(Key::N("due_at")),
        projection: Projection::KeysOnly,
        why: "Which events miss tickets? An event on sale loses `creating`, so the index holds open work only. One key: few events are created at a time, and each moves once for 99 tickets",
    }],
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
        attribute("status", "CREATING", "CREATING or ON_SALE"),
        attribute(
            "tickets_made",
            "396",
            "how many of its tickets are there: where the next pass goes on",
        ),
        attribute(
            "creating",
            "creating",
            "only while tickets are missing: what makes the index sparse",
        ),
        attribute(
            "due_at",
            "1767225601000",
            "epoch ms: when the next pass may be made; only while tickets are missing",
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
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create event",
        entities: &["TicketInventoryState"],
        abstract_layer: "create target, insert/create inventory (beyond the documents)",
        concrete_layer: "PutItem on events as CREATING; then transactions, each of up to 99 Puts on tickets if attribute_not_exists and of the event's count of them; the last one says ON_SALE. A pass makes at most 396 tickets of a section, and a sweeper claims the next pass a second later, by moving its time",
        calls: &[
            Calls {
                when: "a small one",
                sequence: &[
                    "PutItem events if",
                    "TransactWriteItems [Update events if, Put tickets if *]",
                ],
            },
            Calls {
                when: "a pass of the sweeper",
                sequence: &[
                    "Query events/being_created",
                    "GetItem events",
                    "UpdateItem events if",
                    "TransactWriteItems [Update events if, Put tickets if *]",
                ],
            },
        ],
    },
    Action {
        name: "reserve seat",
        entities: &["TicketHoldState", "TicketInventoryState", "BookingState"],
        abstract_layer: "state transition, guarded exclusive hold; with leases: temporary lease + workflow create",
        concrete_layer: "one transaction: ticket AVAILABLE or expired → HELD with booking_id, hold_expires_at and the next fence; Put booking IN_PROGRESS; count it for the user. With leases: a short one of each seat first, in one script; after the commit they are made as long as the hold",
        calls: &[
            Calls {
                when: "pure",
                sequence: &[READ_FOR_HOLD, HOLD],
            },
            Calls {
                when: "leased",
                sequence: &[
                    "EVAL ticket:{seat}",
                    READ_FOR_HOLD,
                    HOLD,
                    "EVAL ticket:{seat}",
                ],
            },
        ],
    },
    Action {
        name: "reject competing reserver",
        entities: &["TicketInventoryState", "TicketHoldState"],
        abstract_layer: "fail competing hold",
        concrete_layer: "the read shows HELD and not expired, or SOLD; in a race the condition fails and brings the ticket. With leases: the script finds another booking in the key",
        calls: &[
            Calls {
                when: "pure",
                sequence: &[READ_FOR_HOLD],
            },
            Calls {
                when: "pure, overtaken between read and write",
                sequence: &[
                    "BatchGetItem [Get bookings, Get tickets] ×2",
                    "TransactWriteItems [Put bookings if, Update allowances if, Update tickets if] ×2",
                ],
            },
            Calls {
                when: "leased",
                sequence: &["EVAL ticket:{seat}"],
            },
            Calls {
                when: "leased, and the lease was lost",
                sequence: &["EVAL ticket:{seat}", READ_FOR_HOLD, "EVAL ticket:{seat}"],
            },
        ],
    },
    Action {
        name: "view seat availability",
        entities: &["TicketInventoryState"],
        abstract_layer: "read source",
        concrete_layer: "GetItem or Query on tickets; hold_expires_at says what an expired HELD is. With leases: GET of the key of a free seat, laid over it",
        calls: &[
            Calls {
                when: "one seat",
                sequence: &["GetItem tickets"],
            },
            Calls {
                when: "a section of five seats",
                sequence: &["GetItem events *", "Query tickets *"],
            },
            Calls {
                when: "leased, one free seat",
                sequence: &["GetItem tickets", "GET ticket:{seat}"],
            },
        ],
    },
    Action {
        name: "confirm purchase",
        entities: &["BookingState", "TicketInventoryState"],
        abstract_layer: "state transition, guarded confirm/commit",
        concrete_layer: "one transaction: booking IN_PROGRESS → CONFIRMED if hold_expires_at > now; each ticket HELD → SOLD if booking_id and fence are the booking's. With leases: the same, and after it the leases say that the seats are sold",
        calls: &[
            Calls {
                when: "pure",
                sequence: &["GetItem bookings", SELL],
            },
            Calls {
                when: "leased",
                sequence: &["GetItem bookings", SELL, "EVAL ticket:{seat}"],
            },
        ],
    },
    Action {
        name: "release stale hold",
        entities: &["TicketHoldState", "TicketInventoryState", "BookingState"],
        abstract_layer: "state transition, timed release / expiry",
        concrete_layer: "Query the sparse due index; then one transaction: booking → EXPIRED if status and hold_expires_at are the ones read; the tickets that still bear its fence → AVAILABLE. With leases the keys expire by themselves, and only the booking is written",
        calls: &[
            Calls {
                when: "pure",
                sequence: &[
                    "Query bookings/due ×4",
                    "GetItem bookings",
                    "BatchGetItem [Get tickets *]",
                    "TransactWriteItems [Update bookings if, Update allowances, Update tickets if *]",
                ],
            },
            Calls {
                when: "leased",
                sequence: &[
                    "Query bookings/due ×4",
                    "GetItem bookings",
                    "TransactWriteItems [Update bookings if, Update allowances]",
                ],
            },
        ],
    },
    Action {
        name: "extend hold",
        entities: &["TicketHoldState", "BookingState"],
        abstract_layer: "state transition, guarded renewal of a lease (beyond the documents)",
        concrete_layer: "one transaction: hold_expires_at later on booking and tickets, if there is time left and it was never extended. With leases: they are lengthened after it, by compare-and-set",
        calls: &[
            Calls {
                when: "pure",
                sequence: &["GetItem bookings", SELL],
            },
            Calls {
                when: "leased",
                sequence: &["GetItem bookings", SELL, "EVAL ticket:{seat}"],
            },
        ],
    },
    Action {
        name: "cancel booking",
        entities: &["BookingState", "TicketInventoryState"],
        abstract_layer: "state transition, release (beyond the documents)",
        concrete_layer: "one transaction: booking → CANCELLED; its tickets, held or sold, → AVAILABLE. With leases: compare-and-delete before it and after it",
        calls: &[
            Calls {
                when: "pure",
                sequence: &[
                    "GetItem bookings",
                    "BatchGetItem [Get tickets *]",
                    "TransactWriteItems [Update bookings if, Update allowances, Update tickets if *]",
                ],
            },
            Calls {
                when: "leased",
                sequence: &[
                    "GetItem bookings",
                    "BatchGetItem [Get tickets *]",
                    "EVAL ticket:{seat}",
                    "TransactWriteItems [Update bookings if, Update allowances, Update tickets if *]",
                    "EVAL ticket:{seat}",
                ],
            },
        ],
    },
    Action {
        name: "reserve general admission",
        entities: &["TicketInventoryState", "BookingState"],
        abstract_layer: "state transition, guarded decrement of a sharded counter (beyond the documents)",
        concrete_layer: "BatchGetItem of the ten counters of the section; one transaction: remaining − count if remaining >= count, on one of them or on several",
        calls: &[Calls {
            when: "any",
            sequence: &[
                "GetItem events *",
                "BatchGetItem [Get tickets *]",
                "TransactWriteItems [Put bookings if, Update allowances if, Update tickets if *]",
            ],
        }],
    },
    Action {
        name: "purchase with a card",
        entities: &["BookingState", "TicketInventoryState"],
        abstract_layer: "process: authorize → confirm → capture (beyond the documents)",
        concrete_layer: "say on the booking that a payment is open; authorize; confirm; capture; say that it is settled. The sandbox's ledger stands for the processor",
        calls: &[
            Calls {
                when: "bought",
                sequence: &[
                    "UpdateItem bookings if",
                    "PutItem sandbox_charges if",
                    SELL,
                    "UpdateItem sandbox_charges if",
                    "UpdateItem bookings if",
                ],
            },
            Calls {
                when: "declined",
                sequence: &[
                    "UpdateItem bookings if",
                    "PutItem sandbox_charges if",
                    "UpdateItem bookings if",
                ],
            },
        ],
    },
    Action {
        name: "settle payment",
        entities: &["BookingState"],
        abstract_layer: "process: finish what somebody left (beyond the documents)",
        concrete_layer: "the sweeper finds CANCELLED or EXPIRED with an open payment and gives the money back; finds CONFIRMED with one and captures it",
        calls: &[Calls {
            when: "refund",
            sequence: &[
                "Query bookings/due ×4",
                "GetItem bookings ×2",
                "UpdateItem sandbox_charges if ×2",
                "UpdateItem bookings if",
            ],
        }],
    },
    Action {
        name: "view seat-map changes",
        entities: &["TicketInventoryState"],
        abstract_layer: "read source on a change index (beyond the documents)",
        concrete_layer: "Query on tickets/by_change by section, changed_at > since, consistent",
        calls: &[Calls {
            when: "any",
            sequence: &["GetItem events *", "Query tickets/by_change *"],
        }],
    },
];

const READ_FOR_HOLD: &str = "BatchGetItem [Get bookings, Get tickets *]";
const HOLD: &str =
    "TransactWriteItems [Put bookings if, Update allowances if, Update tickets if *]";
const SELL: &str = "TransactWriteItems [Update bookings if, Update tickets if *]";

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "TicketInventoryState",
        states: &["AVAILABLE", "HELD", "SOLD"],
        transitions: &[
            step("", "AVAILABLE", "create event"),
            step("AVAILABLE", "HELD", "reserve seat"),
            step("HELD", "HELD", "reserve seat"),
            step("HELD", "HELD", "extend hold"),
            step("HELD", "SOLD", "confirm purchase"),
            step("HELD", "AVAILABLE", "release stale hold"),
            step("HELD", "AVAILABLE", "cancel booking"),
            step("SOLD", "AVAILABLE", "cancel booking"),
        ],
    },
    Machine {
        entity: "BookingState",
        states: &["IN_PROGRESS", "CONFIRMED", "EXPIRED", "CANCELLED"],
        transitions: &[
            step("", "IN_PROGRESS", "reserve seat"),
            step("", "IN_PROGRESS", "reserve general admission"),
            step("IN_PROGRESS", "IN_PROGRESS", "extend hold"),
            step("IN_PROGRESS", "CONFIRMED", "confirm purchase"),
            step("IN_PROGRESS", "CONFIRMED", "purchase with a card"),
            step("IN_PROGRESS", "EXPIRED", "release stale hold"),
            step("IN_PROGRESS", "CANCELLED", "cancel booking"),
            step("CONFIRMED", "CANCELLED", "cancel booking"),
        ],
    },
];
