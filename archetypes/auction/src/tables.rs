//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{
    Attribute, Billing, Index, Key, Projection, Scope, StreamView, Table, attribute,
};
use walkthrough::{Action, Calls, Machine, Transition};

/// How many keys the index of due auctions is spread over. A closer asks each of them; every
/// auction is written to one. Four take 4,000 creations a second, more than any closer closes.
pub const DUE_SHARDS: u32 = 4;

/// AuctionState and, in the one-item realization, BestBidState beside it.
pub const AUCTIONS: Table = Table {
    name: "auctions",
    entity: "AuctionState, and BestBidState with it when they share one item",
    why: "A condition can only look at the item it writes: what must hold together stands together.",
    partition: Key::S("auction_id"),
    sort: None,
    indexes: &[Index {
        name: "due",
        scope: Scope::Global,
        partition: Key::S("due_shard"),
        sort: Some(Key::N("end_time")),
        projection: Projection::KeysOnly,
        why: "Which open auctions are over? Closing removes `due_shard`, so the index holds open auctions only",
    }],
    ttl: None,
    stream: Some(StreamView::NewImage),
    billing: Billing::OnDemand,
    attributes: AUCTION_ATTRIBUTES,
};

const AUCTION_ATTRIBUTES: &[Attribute] = &[
    attribute("auction_id", "auction-0001", "identity"),
    attribute("item_id", "item-0001", "what is sold"),
    attribute("seller_id", "sam", "may not bid"),
    attribute("title", "Brass telescope", "at most 200 characters"),
    attribute("currency", "EUR", "a bid in another one is refused"),
    attribute("starting_price", "10000", "minor units, as every amount"),
    attribute(
        "reserve_price",
        "15000",
        "below it nobody wins; no answer shows it",
    ),
    attribute(
        "buy_now_price",
        "90000",
        "ends the auction at once, while there is no bid",
    ),
    attribute(
        "soft_close_ms",
        "60000",
        "a bid this close to the end moves the end",
    ),
    attribute("status", "OPEN", "OPEN or CLOSED, never back"),
    attribute(
        "end_time",
        "1767229200000",
        "epoch ms; only ever moves forward",
    ),
    attribute(
        "first_end_time",
        "1767229200000",
        "epoch ms; what creating again is compared with",
    ),
    attribute(
        "lasts_ms",
        "3600000",
        "where the seller gave a duration: a retry means the same and comes later",
    ),
    attribute(
        "due_shard",
        "due-2",
        "only while OPEN: what makes the index sparse",
    ),
    attribute("created_at", "1767225600000", "epoch ms"),
    attribute("closed_at", "1767229200000", "epoch ms, once CLOSED"),
    attribute(
        "final_sequence",
        "3",
        "the number of the closing event, once CLOSED",
    ),
    attribute(
        "bid_sequence",
        "2",
        "BestBidState: accepted bids so far; order and fence in one",
    ),
    attribute("best_bid_id", "bid-0002", "BestBidState: who leads"),
    attribute("best_bidder_id", "bob", "BestBidState"),
    attribute("best_amount", "12500", "BestBidState: the price now"),
    attribute(
        "best_max_amount",
        "20000",
        "BestBidState: as far as the leader goes; secret",
    ),
    attribute(
        "second_max_amount",
        "12000",
        "BestBidState: as far as the best of the others went; secret",
    ),
];

/// BestBidState as an item of its own: the documents' layout.
pub const BEST_BIDS: Table = Table {
    name: "best_bids",
    entity: "BestBidState, when it is an item of its own",
    why: "The documents' layout. That the auction is still open must then be checked on another item, in a transaction.",
    partition: Key::S("auction_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("auction_id", "auction-0001", "identity"),
        attribute(
            "bid_sequence",
            "2",
            "accepted bids so far; order and fence in one",
        ),
        attribute("best_bid_id", "bid-0002", "who leads"),
        attribute("best_bidder_id", "bob", "who leads"),
        attribute("best_amount", "12500", "the price now"),
        attribute(
            "best_max_amount",
            "20000",
            "as far as the leader goes; secret",
        ),
        attribute(
            "second_max_amount",
            "12000",
            "as far as the best of the others went; secret",
        ),
    ],
};

/// BidState: every bid once, accepted or rejected.
pub const BIDS: Table = Table {
    name: "bids",
    entity: "BidState",
    why: "The bid's id is its key, so a bid has one outcome however often it is sent. It is also the partition key: a flood of low bids spreads over all partitions and takes nothing from the good ones.",
    partition: Key::S("bid_id"),
    sort: Some(Key::S("auction_id")),
    indexes: &[Index {
        name: "by_sequence",
        scope: Scope::Global,
        partition: Key::S("auction_id"),
        sort: Some(Key::N("bid_sequence")),
        projection: Projection::All,
        why: "The history in the order the guard gave it, not by clocks. Rejected bids have no `bid_sequence` and are not in it. Eventually consistent, so a reader stops at a gap and compares with the auction's `bid_sequence`",
    }],
    ttl: None,
    stream: Some(StreamView::NewImage),
    billing: Billing::OnDemand,
    attributes: &[
        attribute("auction_id", "auction-0001", "identity, with bid_id"),
        attribute(
            "bid_id",
            "bid-0002",
            "made by the bidder's client: the identity of every retry",
        ),
        attribute("bidder_id", "bob", "who"),
        attribute("kind", "UP_TO", "EXACTLY, UP_TO (proxy) or BUY_NOW"),
        attribute(
            "amount",
            "20000",
            "what was offered; for UP_TO the secret maximum",
        ),
        attribute("status", "ACCEPTED", "ACCEPTED or REJECTED, never changed"),
        attribute("reason", "TOO_LOW", "why rejected"),
        attribute("minimum", "12600", "what would have been enough"),
        attribute("bid_sequence", "2", "its place among the accepted bids"),
        attribute("leading", "true", "whether it led when it was accepted"),
        attribute(
            "price_after",
            "12500",
            "the price it made: what is broadcast",
        ),
        attribute("leader_after", "bob", "who led after it"),
        attribute("end_after", "1767229200000", "the end it made (soft close)"),
        attribute(
            "created_at",
            "1767225700000",
            "epoch ms; for people, orders nothing",
        ),
    ],
};

/// AuctionWinnerState: at most one for each auction, written with its closing.
pub const AUCTION_WINNERS: Table = Table {
    name: "auction_winners",
    entity: "AuctionWinnerState",
    why: "The result, explicit. It is written in the transaction that closes, so there is no CLOSED without it.",
    partition: Key::S("auction_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("auction_id", "auction-0001", "identity"),
        attribute("winning_bid_id", "bid-0002", "which bid won"),
        attribute("bidder_id", "bob", "who pays"),
        attribute("winning_amount", "12500", "how much"),
        attribute("closed_at", "1767229200000", "epoch ms"),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[AUCTIONS, BEST_BIDS, BIDS, AUCTION_WINNERS];

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create auction",
        entities: &["AuctionState"],
        abstract_layer: "create target, create competitive window subject",
        concrete_layer: "PutItem on auctions if attribute_not_exists(auction_id), status=OPEN",
        calls: &[
            Calls {
                when: "one item",
                sequence: &["PutItem auctions if"],
            },
            Calls {
                when: "separate best",
                sequence: &["TransactWriteItems [Put auctions if, Put best_bids if]"],
            },
        ],
    },
    Action {
        name: "view auction",
        entities: &["AuctionState"],
        abstract_layer: "read source",
        concrete_layer: "GetItem on auctions by auction_id, consistent",
        calls: &[
            Calls {
                when: "one item",
                sequence: &["GetItem auctions"],
            },
            Calls {
                when: "separate best",
                sequence: &["TransactGetItems [Get auctions, Get best_bids]"],
            },
        ],
    },
    Action {
        name: "validate against current best",
        entities: &["BestBidState", "AuctionState"],
        abstract_layer: "read source on current best state and on competitive window state",
        concrete_layer: "the same read, then the pure rule `domain::decide`; only advice, the guard decides",
        calls: &[
            Calls {
                when: "one item",
                sequence: &["GetItem auctions"],
            },
            Calls {
                when: "separate best",
                sequence: &["TransactGetItems [Get auctions, Get best_bids]"],
            },
        ],
    },
    Action {
        name: "place bid",
        entities: &["BidState", "BestBidState"],
        abstract_layer: "append, append competitive child event",
        concrete_layer: "Put on bids if attribute_not_exists(bid_id), in one transaction with the best it makes",
        calls: &[
            ONE_ITEM,
            Calls {
                when: "one item, sent again",
                sequence: &["GetItem auctions", "PutItem bids if"],
            },
            SEPARATE_BEST,
        ],
    },
    Action {
        name: "update current best",
        entities: &["BestBidState", "BidState"],
        abstract_layer: "overwrite, guarded best-state update",
        concrete_layer: "Update if status = OPEN and bid_sequence is the one the decision was made on",
        calls: &[
            ONE_ITEM,
            Calls {
                when: "one item, overtaken by another bid",
                sequence: &[
                    "GetItem auctions ×2",
                    "TransactWriteItems [Update auctions if, Put bids if] ×3",
                ],
            },
            SEPARATE_BEST,
            Calls {
                when: "separate best, end moved",
                sequence: &[
                    "TransactGetItems [Get auctions, Get best_bids]",
                    "TransactWriteItems [Update auctions if, Update best_bids if, Put bids if]",
                ],
            },
        ],
    },
    Action {
        name: "reject invalid bid",
        entities: &["BidState"],
        abstract_layer: "fail guarded best-state update while preserving append history",
        concrete_layer: "PutItem on bids with status=REJECTED and the reason, if attribute_not_exists(bid_id)",
        calls: &[
            Calls {
                when: "one item",
                sequence: &["GetItem auctions", "PutItem bids if"],
            },
            Calls {
                when: "separate best",
                sequence: &[
                    "TransactGetItems [Get auctions, Get best_bids]",
                    "PutItem bids if",
                ],
            },
        ],
    },
    Action {
        name: "publish highest-bid update",
        entities: &["BestBidState"],
        abstract_layer: "create projection/fanout side effect",
        concrete_layer: "DynamoDB Streams of bids and auctions → Redis PUBLISH → SSE subscribers, numbered by sequence",
        calls: &[Calls {
            when: "first look",
            sequence: &[
                "ListStreams",
                "DescribeStream bids",
                "ListStreams",
                "DescribeStream auctions",
                "EVAL lease:auctions:{shard}",
                "GET checkpoint:auctions:{shard}",
                "GetShardIterator auctions",
                "GetRecords",
                "SETEX checkpoint:auctions:{shard}",
                "EVAL lease:bids:{shard}",
                "GET checkpoint:bids:{shard}",
                "GetShardIterator bids",
                "GetRecords",
                "PUBLISH events *",
                "SETEX checkpoint:bids:{shard}",
            ],
        }],
    },
    Action {
        name: "close auction",
        entities: &["AuctionState"],
        abstract_layer: "state transition, guarded close of competitive window",
        concrete_layer: "Update OPEN → CLOSED if status, end_time and bid_sequence are still what was read, and end_time has passed",
        calls: &[
            Calls {
                when: "one item",
                sequence: &[
                    "GetItem auctions",
                    "TransactWriteItems [Update auctions if]",
                ],
            },
            Calls {
                when: "separate best",
                sequence: &[
                    "TransactGetItems [Get auctions, Get best_bids]",
                    "TransactWriteItems [Update auctions if, ConditionCheck best_bids if]",
                ],
            },
            Calls {
                when: "one item, not due",
                sequence: &["GetItem auctions"],
            },
            Calls {
                when: "one item, closed before",
                sequence: &["GetItem auctions", "GetItem auction_winners"],
            },
        ],
    },
    Action {
        name: "commit winner",
        entities: &["AuctionWinnerState", "AuctionState"],
        abstract_layer: "create target, commit competitive result",
        concrete_layer: "Put on auction_winners in the transaction that closes",
        calls: &[
            Calls {
                when: "one item",
                sequence: &[
                    "GetItem auctions",
                    "TransactWriteItems [Update auctions if, Put auction_winners]",
                ],
            },
            Calls {
                when: "separate best",
                sequence: &[
                    "TransactGetItems [Get auctions, Get best_bids]",
                    "TransactWriteItems [Update auctions if, ConditionCheck best_bids if, Put auction_winners]",
                ],
            },
            Calls {
                when: "found by the due index",
                sequence: &[
                    "Query auctions/due ×4",
                    "GetItem auctions",
                    "TransactWriteItems [Update auctions if, Put auction_winners]",
                ],
            },
        ],
    },
    Action {
        name: "view bid history",
        entities: &["BidState"],
        abstract_layer: "read source",
        concrete_layer: "Query on bids/by_sequence by auction_id, a page at a time, up to the first gap",
        calls: &[Calls {
            when: "any",
            sequence: &["Query bids/by_sequence *"],
        }],
    },
    Action {
        name: "buy now",
        entities: &[
            "AuctionState",
            "BestBidState",
            "BidState",
            "AuctionWinnerState",
        ],
        abstract_layer: "state transition, guarded close by the first buyer (beyond the documents)",
        concrete_layer: "one transaction: auction CLOSED if OPEN and without a bid; bid and winner written with it",
        calls: &[
            Calls {
                when: "one item",
                sequence: &[
                    "GetItem auctions",
                    "TransactWriteItems [Update auctions if, Put bids if, Put auction_winners]",
                ],
            },
            Calls {
                when: "separate best",
                sequence: &[
                    "TransactGetItems [Get auctions, Get best_bids]",
                    "TransactWriteItems [Update auctions if, Update best_bids if, Put bids if, Put auction_winners]",
                ],
            },
        ],
    },
];

const ONE_ITEM: Calls = Calls {
    when: "one item",
    sequence: &[
        "GetItem auctions",
        "TransactWriteItems [Update auctions if, Put bids if]",
    ],
};

const SEPARATE_BEST: Calls = Calls {
    when: "separate best",
    sequence: &[
        "TransactGetItems [Get auctions, Get best_bids]",
        "TransactWriteItems [ConditionCheck auctions if, Update best_bids if, Put bids if]",
    ],
};

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "AuctionState",
        states: &["OPEN", "CLOSED"],
        transitions: &[
            Transition {
                from: "",
                to: "OPEN",
                action: "create auction",
            },
            Transition {
                from: "OPEN",
                to: "OPEN",
                action: "update current best",
            },
            Transition {
                from: "OPEN",
                to: "CLOSED",
                action: "close auction",
            },
            Transition {
                from: "OPEN",
                to: "CLOSED",
                action: "buy now",
            },
        ],
    },
    Machine {
        entity: "BidState",
        states: &["ACCEPTED", "REJECTED"],
        transitions: &[
            Transition {
                from: "",
                to: "ACCEPTED",
                action: "place bid",
            },
            Transition {
                from: "",
                to: "REJECTED",
                action: "reject invalid bid",
            },
        ],
    },
];
