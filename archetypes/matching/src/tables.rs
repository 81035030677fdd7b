//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::item::shard_of;
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// How many keys the index of due rides is spread over. A sweeper asks each of them; every offer
/// moves a ride in it, which is two units. Four take some 1,000 offers a second.
pub const DUE_SHARDS: u32 = 4;

/// Which key of the due index a ride is under.
pub(crate) fn due_shard(ride_id: &str) -> String {
    format!("due-{}", shard_of(ride_id, DUE_SHARDS))
}

/// RideRequestState.
pub const RIDES: Table = Table {
    name: "rides",
    entity: "RideRequestState",
    why: "The ride's id is its key, so a ride is requested once however often it is sent. What the cascade needs to go on is all here, so that anybody can take the next step.",
    partition: Key::S("ride_id"),
    sort: None,
    indexes: &[Index {
        name: "due",
        scope: Scope::Global,
        partition: Key::S("due_shard"),
        sort: Some(Key::N("due_at")),
        projection: Projection::KeysOnly,
        why: "Which rides need a look: nobody asked, an offer over, a trip not begun? Whoever is done loses `due_shard`, so the index holds open work only",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "ride_id",
            "ride-0001",
            "made by the rider's client: the identity of every retry",
        ),
        attribute("rider_id", "alice", "who"),
        attribute(
            "pickup",
            "{lat 52520000, lon 13405000}",
            "millionths of a degree, integers: 0.11 m",
        ),
        attribute("destination", "{lat 52500000, lon 13380000}", "to where"),
        attribute("fare_id", "fare-0001", "which quote"),
        attribute(
            "fare",
            "735",
            "minor units; the quoted amount, whatever the tariff is by now",
        ),
        attribute(
            "status",
            "MATCHING",
            "OPEN, MATCHING, MATCHED, NO_DRIVERS or CANCELLED",
        ),
        attribute(
            "offers_made",
            "2",
            "names the next offer, and pins down what somebody read",
        ),
        attribute(
            "refused_by",
            "{driver-7}",
            "who said no, did not answer, or gave it back: not asked again",
        ),
        attribute(
            "current_assignment",
            "ride-0001.2",
            "the offer that is out or was accepted; no other can match this ride",
        ),
        attribute("driver_id", "driver-3", "whose offer that is"),
        attribute(
            "search_until",
            "1767225660000",
            "epoch ms: until then it waits for drivers to come",
        ),
        attribute(
            "due_shard",
            "due-2",
            "only while there is something to do: what makes the index sparse",
        ),
        attribute(
            "due_at",
            "1767225615000",
            "epoch ms: when a sweeper should look; of an open offer, its end",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
    ],
};

/// DriverAssignmentState.
pub const ASSIGNMENTS: Table = Table {
    name: "assignments",
    entity: "DriverAssignmentState",
    why: "One item for each offer. Its key is the ride's id and the number of the offer, so that two who both make the next offer make the same one; and a ride's offers need no index.",
    partition: Key::S("assignment_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("assignment_id", "ride-0001.2", "ride and number"),
        attribute("ride_id", "ride-0001", "which ride"),
        attribute("driver_id", "driver-3", "who is asked"),
        attribute(
            "status",
            "PROPOSED",
            "PROPOSED, ACCEPTED, REJECTED, EXPIRED, WITHDRAWN or CANCELLED",
        ),
        attribute("pickup_s", "184", "estimated when it was made"),
        attribute(
            "offer_expires_at",
            "1767225615000",
            "epoch ms; from then on a yes is too late, whatever the status says",
        ),
        attribute("proposed_at", "1767225600000", "epoch ms"),
    ],
};

/// What drivers are doing.
pub const DRIVERS: Table = Table {
    name: "drivers",
    entity: "what a driver is doing, and for which assignment",
    why: "The third item of every transaction: without it two rides could have one driver. Apart from the location, which is written every few seconds and would conflict with every offer.",
    partition: Key::S("driver_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("driver_id", "driver-3", "who"),
        attribute(
            "status",
            "OFFERED",
            "OFFLINE, AVAILABLE, OFFERED or ASSIGNED",
        ),
        attribute(
            "assignment_id",
            "ride-0001.2",
            "open if OFFERED, accepted if ASSIGNED; absent otherwise",
        ),
        attribute(
            "offer_expires_at",
            "1767225615000",
            "of an open offer: once it is over, the next ride may ask",
        ),
    ],
};

/// TripExecutionState.
pub const TRIPS: Table = Table {
    name: "trips",
    entity: "TripExecutionState",
    why: "One for each assignment that was accepted and begun. A ride that was given back has two, under two keys.",
    partition: Key::S("assignment_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("assignment_id", "ride-0001.2", "which match"),
        attribute("ride_id", "ride-0001", "which ride"),
        attribute("driver_id", "driver-3", "who drives"),
        attribute(
            "status",
            "EN_ROUTE",
            "EN_ROUTE, ARRIVED, PICKED_UP, IN_PROGRESS, COMPLETED or CANCELLED",
        ),
        attribute("since", "1767225607000", "epoch ms: when it got there"),
    ],
};

/// DriverLocationState, where it is in DynamoDB.
pub const DRIVER_LOCATIONS: Table = Table {
    name: "driver_locations",
    entity: "DriverLocationState, by H3 cell; with Redis it is in GEO and a sorted set",
    why: "One item for each driver, so that a driver is in one place. DynamoDB moves it between cells in the index by itself: nobody can die between leaving one cell and entering the next.",
    partition: Key::S("driver_id"),
    sort: None,
    indexes: &[Index {
        name: "by_cell",
        scope: Scope::Global,
        partition: Key::S("cell"),
        sort: None,
        projection: Projection::Include(&["lat", "lon", "seen_at"]),
        why: "Who is in this cell? With the place and the time, so that no item has to be read after it",
    }],
    ttl: Some("purge_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("driver_id", "driver-3", "who"),
        attribute("cell", "871f1d489ffffff", "the H3 cell, resolution 7"),
        attribute("lat", "52521000", "millionths of a degree"),
        attribute("lon", "13407000", "millionths of a degree"),
        attribute(
            "seen_at",
            "1767225598000",
            "epoch ms: who was not seen lately is no candidate",
        ),
        attribute(
            "purge_at",
            "1767229198",
            "epoch s: TTL, an hour after the last report; cleans up and decides nothing",
        ),
    ],
};

/// Quotes.
pub const FARES: Table = Table {
    name: "fares",
    entity: "what a ride will cost",
    why: "Worked out once and used by one ride, so that nothing changes what the rider was told.",
    partition: Key::S("fare_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("fare_id", "fare-0001", "made by the rider's client"),
        attribute("rider_id", "alice", "who"),
        attribute("pickup", "{lat 52520000, lon 13405000}", "from where"),
        attribute("destination", "{lat 52500000, lon 13380000}", "to where"),
        attribute("amount", "735", "minor units"),
        attribute("quote_expires_at", "1767225900000", "epoch ms"),
        attribute("ride_id", "ride-0001", "by which ride it was used"),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[RIDES, ASSIGNMENTS, DRIVERS, TRIPS, DRIVER_LOCATIONS, FARES];

const SEARCH_GEO: &str = "EVAL {keys}:geo";
const SEARCH_CELLS: &str = "Query driver_locations/by_cell *";
const STATUSES: &str = "BatchGetItem [Get drivers *] *";
const LOCK: &str = "EVAL offer:{driver_id}";
const OFFER: &str = "TransactWriteItems [Put assignments if, Update rides if, Update drivers if]";
const ANSWER: &str =
    "TransactWriteItems [Update assignments if, Update rides if, Update drivers if]";

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "quote fare",
        entities: &["RideRequestState"],
        abstract_layer: "create target (beyond the documents)",
        concrete_layer: "PutItem on fares with the amount and its end, if attribute_not_exists",
        calls: &[Calls {
            when: "any",
            sequence: &["PutItem fares if"],
        }],
    },
    Action {
        name: "request ride",
        entities: &["RideRequestState"],
        abstract_layer: "create request, create target",
        concrete_layer: "Put on rides with ride_id, rider_id, pickup, destination, fare_id and fare, status OPEN, in one transaction with the quote it uses up",
        calls: &[Calls {
            when: "any",
            sequence: &[
                "GetItem fares",
                "TransactWriteItems [Put rides if, Update fares if]",
            ],
        }],
    },
    Action {
        name: "go online",
        entities: &["DriverLocationState"],
        abstract_layer: "state transition, begin of a shift (beyond the documents)",
        concrete_layer: "UpdateItem drivers OFFLINE → AVAILABLE, then the first location",
        calls: &[
            Calls {
                when: "geo",
                sequence: &["UpdateItem drivers if", SEARCH_GEO],
            },
            Calls {
                when: "cells",
                sequence: &["UpdateItem drivers if", "UpdateItem driver_locations if"],
            },
        ],
    },
    Action {
        name: "report location",
        entities: &["DriverLocationState"],
        abstract_layer: "overwrite, newest wins",
        concrete_layer: "Redis: GEOADD, ZADD of the time and HSET of the exact place, in one script. DynamoDB: UpdateItem with the H3 cell if seen_at is not older",
        calls: &[
            Calls {
                when: "geo",
                sequence: &[SEARCH_GEO],
            },
            Calls {
                when: "cells",
                sequence: &["UpdateItem driver_locations if"],
            },
        ],
    },
    Action {
        name: "find nearby drivers",
        entities: &["CandidateSetView", "DriverLocationState"],
        abstract_layer: "read projection",
        concrete_layer: "Redis: GEOSEARCH and the last-seen set, in one script. DynamoDB: Query of each H3 cell that the circle touches, ring by ring. Then BatchGetItem of the drivers: AVAILABLE ones, ranked by estimated pickup time",
        calls: &[
            Calls {
                when: "geo",
                sequence: &[SEARCH_GEO, STATUSES],
            },
            Calls {
                when: "cells",
                sequence: &[SEARCH_CELLS, STATUSES],
            },
        ],
    },
    Action {
        name: "propose driver",
        entities: &["DriverAssignmentState"],
        abstract_layer: "state transition, guarded assignment/claim",
        concrete_layer: "one transaction: Put assignment PROPOSED with driver_id, ride_id, offer_expires_at; ride OPEN → MATCHING if offers_made is the one read; driver AVAILABLE → OFFERED. With Redis: a lock on driver_id with TTL first",
        calls: &[
            Calls {
                when: "geo",
                sequence: &[LOCK, OFFER],
            },
            Calls {
                when: "cells",
                sequence: &[OFFER],
            },
            Calls {
                when: "geo, and the lock is taken",
                sequence: &[LOCK],
            },
            Calls {
                when: "geo, and the driver is taken",
                sequence: &[LOCK, OFFER, LOCK],
            },
        ],
    },
    Action {
        name: "accept driver assignment",
        entities: &["DriverAssignmentState", "RideRequestState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "one transaction: assignment PROPOSED → ACCEPTED if offer_expires_at > now; ride MATCHING → MATCHED if current_assignment is this one; driver OFFERED → ASSIGNED if bound to this one",
        calls: &[
            Calls {
                when: "geo",
                sequence: &[ANSWER, LOCK],
            },
            Calls {
                when: "cells",
                sequence: &[ANSWER],
            },
        ],
    },
    Action {
        name: "reject driver assignment",
        entities: &["DriverAssignmentState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "one transaction: assignment PROPOSED → REJECTED; ride → OPEN, ADD refused_by; driver → AVAILABLE. Then the cascade takes the next candidate",
        calls: &[
            Calls {
                when: "geo",
                sequence: &[ANSWER, LOCK],
            },
            Calls {
                when: "cells",
                sequence: &[ANSWER],
            },
        ],
    },
    Action {
        name: "expire driver offer",
        entities: &["DriverAssignmentState", "RideRequestState"],
        abstract_layer: "state transition, timeout/reassignment",
        concrete_layer: "Query the sparse due index; read the ride; one transaction: assignment PROPOSED → EXPIRED if offer_expires_at <= now; ride → OPEN, ADD refused_by; driver → AVAILABLE",
        calls: &[
            Calls {
                when: "geo",
                sequence: &["Query rides/due ×4", "GetItem rides", ANSWER, LOCK],
            },
            Calls {
                when: "cells",
                sequence: &["Query rides/due ×4", "GetItem rides", ANSWER],
            },
        ],
    },
    Action {
        name: "next candidate",
        entities: &[
            "RideRequestState",
            "CandidateSetView",
            "DriverAssignmentState",
        ],
        abstract_layer: "process: propose → accept/reject/expire → next",
        concrete_layer: "read the ride; find nearby drivers without refused_by; propose the soonest. Nobody: due_at later, or NO_DRIVERS when offers or time are used up",
        calls: &[
            Calls {
                when: "geo",
                sequence: &["GetItem rides", SEARCH_GEO, STATUSES, LOCK, OFFER],
            },
            Calls {
                when: "cells",
                sequence: &["GetItem rides", SEARCH_CELLS, STATUSES, OFFER],
            },
            Calls {
                when: "geo, nobody is free",
                sequence: &["GetItem rides", SEARCH_GEO, STATUSES, "UpdateItem rides if"],
            },
            Calls {
                when: "cells, nobody is free",
                sequence: &[
                    "GetItem rides",
                    SEARCH_CELLS,
                    STATUSES,
                    "UpdateItem rides if",
                ],
            },
        ],
    },
    Action {
        name: "start trip",
        entities: &["TripExecutionState"],
        abstract_layer: "state transition, workflow start",
        concrete_layer: "one transaction: Put trip EN_ROUTE with driver_id and ride_id if attribute_not_exists; ride no longer due, if MATCHED by this assignment",
        calls: &[Calls {
            when: "any",
            sequence: &["TransactWriteItems [Put trips if, Update rides if]"],
        }],
    },
    Action {
        name: "advance / complete trip",
        entities: &["TripExecutionState"],
        abstract_layer: "state transition, guarded workflow transition",
        concrete_layer: "UpdateItem trips to ARRIVED, PICKED_UP, IN_PROGRESS, each only from the one before; COMPLETED in one transaction with the driver → AVAILABLE",
        calls: &[
            Calls {
                when: "on the way",
                sequence: &["UpdateItem trips if"],
            },
            Calls {
                when: "completed",
                sequence: &["TransactWriteItems [Update trips if, Update drivers if]"],
            },
        ],
    },
    Action {
        name: "cancel ride",
        entities: &[
            "RideRequestState",
            "DriverAssignmentState",
            "TripExecutionState",
        ],
        abstract_layer: "state transition, release (beyond the documents)",
        concrete_layer: "one transaction: ride → CANCELLED with whatever it is bound to: offer → WITHDRAWN or match → CANCELLED, driver → AVAILABLE, trip → CANCELLED or still not begun",
        calls: &[
            Calls {
                when: "geo, offered",
                sequence: &[
                    "GetItem rides",
                    "TransactWriteItems [Update rides if, Update assignments if, Update drivers if]",
                    LOCK,
                ],
            },
            Calls {
                when: "cells, matched",
                sequence: &[
                    "GetItem rides",
                    "GetItem trips",
                    "TransactWriteItems [Update rides if, Update trips if, Update assignments if, Update drivers if]",
                ],
            },
            Calls {
                when: "open",
                sequence: &["GetItem rides", "TransactWriteItems [Update rides if]"],
            },
        ],
    },
    Action {
        name: "cancel assignment",
        entities: &[
            "DriverAssignmentState",
            "RideRequestState",
            "TripExecutionState",
        ],
        abstract_layer: "state transition, release and reassignment (beyond the documents)",
        concrete_layer: "one transaction: assignment ACCEPTED → CANCELLED; ride → OPEN before the pickup, CANCELLED after it; driver → AVAILABLE; trip → CANCELLED or still not begun",
        calls: &[Calls {
            when: "cells",
            sequence: &[
                "GetItem rides",
                "GetItem trips",
                "TransactWriteItems [Update assignments if, Update rides if, Update drivers if, Update trips if]",
            ],
        }],
    },
    Action {
        name: "match batch",
        entities: &[
            "RideRequestState",
            "CandidateSetView",
            "DriverAssignmentState",
        ],
        abstract_layer: "process: collect, solve, propose (beyond the documents)",
        concrete_layer: "Query the due index; candidates of each OPEN ride; the assignment with the least total pickup time; propose each",
        calls: &[Calls {
            when: "geo",
            sequence: &[
                "Query rides/due ×4",
                "GetItem rides *",
                SEARCH_GEO,
                STATUSES,
                SEARCH_GEO,
                STATUSES,
                LOCK,
                OFFER,
                LOCK,
                OFFER,
            ],
        }],
    },
    Action {
        name: "go offline",
        entities: &["DriverLocationState"],
        abstract_layer: "state transition, end of a shift (beyond the documents)",
        concrete_layer: "UpdateItem drivers AVAILABLE → OFFLINE; then the location is removed",
        calls: &[
            Calls {
                when: "geo",
                sequence: &["UpdateItem drivers if", SEARCH_GEO],
            },
            Calls {
                when: "cells",
                sequence: &["UpdateItem drivers if", "DeleteItem driver_locations if"],
            },
        ],
    },
];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "RideRequestState",
        states: &["OPEN", "MATCHING", "MATCHED", "NO_DRIVERS", "CANCELLED"],
        transitions: &[
            step("", "OPEN", "request ride"),
            step("OPEN", "MATCHING", "propose driver"),
            step("MATCHING", "OPEN", "reject driver assignment"),
            step("MATCHING", "OPEN", "expire driver offer"),
            step("MATCHING", "MATCHED", "accept driver assignment"),
            step("MATCHED", "OPEN", "cancel assignment"),
            step("OPEN", "NO_DRIVERS", "next candidate"),
            step("OPEN", "CANCELLED", "cancel ride"),
            step("MATCHING", "CANCELLED", "cancel ride"),
            step("MATCHED", "CANCELLED", "cancel ride"),
            step("MATCHED", "CANCELLED", "cancel assignment"),
        ],
    },
    Machine {
        entity: "DriverAssignmentState",
        states: &[
            "PROPOSED",
            "ACCEPTED",
            "REJECTED",
            "EXPIRED",
            "WITHDRAWN",
            "CANCELLED",
        ],
        transitions: &[
            step("", "PROPOSED", "propose driver"),
            step("PROPOSED", "ACCEPTED", "accept driver assignment"),
            step("PROPOSED", "REJECTED", "reject driver assignment"),
            step("PROPOSED", "EXPIRED", "expire driver offer"),
            step("PROPOSED", "WITHDRAWN", "cancel ride"),
            step("ACCEPTED", "CANCELLED", "cancel ride"),
            step("ACCEPTED", "CANCELLED", "cancel assignment"),
        ],
    },
    Machine {
        entity: "what a driver is doing",
        states: &["OFFLINE", "AVAILABLE", "OFFERED", "ASSIGNED"],
        transitions: &[
            step("", "AVAILABLE", "go online"),
            step("OFFLINE", "AVAILABLE", "go online"),
            step("AVAILABLE", "OFFLINE", "go offline"),
            step("AVAILABLE", "OFFERED", "propose driver"),
            step("OFFERED", "AVAILABLE", "reject driver assignment"),
            step("OFFERED", "AVAILABLE", "expire driver offer"),
            step("OFFERED", "AVAILABLE", "cancel ride"),
            step("OFFERED", "ASSIGNED", "accept driver assignment"),
            step("ASSIGNED", "AVAILABLE", "advance / complete trip"),
            step("ASSIGNED", "AVAILABLE", "cancel ride"),
            step("ASSIGNED", "AVAILABLE", "cancel assignment"),
        ],
    },
    Machine {
        entity: "TripExecutionState",
        states: &[
            "EN_ROUTE",
            "ARRIVED",
            "PICKED_UP",
            "IN_PROGRESS",
            "COMPLETED",
            "CANCELLED",
        ],
        transitions: &[
            step("", "EN_ROUTE", "start trip"),
            step("EN_ROUTE", "ARRIVED", "advance / complete trip"),
            step("ARRIVED", "PICKED_UP", "advance / complete trip"),
            step("PICKED_UP", "IN_PROGRESS", "advance / complete trip"),
            step("IN_PROGRESS", "COMPLETED", "advance / complete trip"),
            step("EN_ROUTE", "CANCELLED", "cancel assignment"),
            step("ARRIVED", "CANCELLED", "cancel assignment"),
            step("PICKED_UP", "CANCELLED", "cancel ride"),
            step("IN_PROGRESS", "CANCELLED", "cancel ride"),
        ],
    },
];
