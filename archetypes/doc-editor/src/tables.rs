//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real calls
//! against.

use cloud::tables::{Billing, Key, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// DocumentState and DocumentVersionState.
pub const DOCUMENTS: Table = Table {
    name: "documents",
    entity: "DocumentState and DocumentVersionState",
    why: "One small item that every edit advances. The text is not in it: a write is charged by the size of the whole item.",
    partition: Key::S("document_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("document_id", "doc-0001", "identity"),
        attribute(
            "title",
            "Shopping list",
            "for people; at most 200 characters",
        ),
        attribute(
            "version",
            "12",
            "DocumentVersionState: how many operations there are; order and fence in one",
        ),
        attribute(
            "snapshot_version",
            "8",
            "the newest snapshot; only ever moves forward",
        ),
        attribute(
            "base_version",
            "4",
            "operations up to this one may be gone from the log; the archive has them",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
    ],
};

/// DocumentOperationLog.
pub const OPERATIONS: Table = Table {
    name: "operations",
    entity: "DocumentOperationLog",
    why: "The one order. The key is the version and nothing else, so two operations cannot have one place; padded, so that 10 comes after 9.",
    partition: Key::S("document_id"),
    sort: Some(Key::S("version_key")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("document_id", "doc-0001", "identity, with version_key"),
        attribute("version_key", "000000000012", "the version it makes"),
        attribute(
            "operation",
            "[5,\" and milk\",3]",
            "rewritten against all before it: keep 5, insert, keep 3",
        ),
        attribute(
            "client_id",
            "window-b",
            "whose; to acknowledge it, and to undo it",
        ),
        attribute("sequence", "4", "the client's own number of it"),
        attribute("base_version", "10", "what it was typed against"),
        attribute("undoes", "9", "the version it takes back, if it does"),
        attribute(
            "created_at",
            "1767225660000",
            "epoch ms; for people, orders nothing",
        ),
    ],
};

/// What makes sending again safe.
pub const EDITS: Table = Table {
    name: "edits",
    entity: "DocumentOperationLog, by who sent what",
    why: "A retry carries another version, hence another key in the log; here it has the key it had before.",
    partition: Key::S("document_client"),
    sort: Some(Key::S("sequence_key")),
    indexes: &[],
    ttl: Some("expires_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "document_client",
            "doc-0001#window-b",
            "document and window",
        ),
        attribute(
            "sequence_key",
            "000000000004",
            "the client's number of the edit",
        ),
        attribute(
            "version",
            "12",
            "the version it became: the answer to every retry",
        ),
        attribute(
            "expires_at",
            "1767830460",
            "epoch seconds, a week later; by then the client has resumed or reloaded",
        ),
    ],
};

/// DocumentSnapshotState.
pub const SNAPSHOTS: Table = Table {
    name: "snapshots",
    entity: "DocumentSnapshotState",
    why: "The text at a version, so that loading replays a few operations and not all; and what led to it, so that the log can be pruned.",
    partition: Key::S("document_id"),
    sort: Some(Key::S("version_key")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("document_id", "doc-0001", "identity, with version_key"),
        attribute(
            "version_key",
            "000000000008",
            "the version whose text it is",
        ),
        attribute("text", "bread and milk", "the text, if it is short"),
        attribute(
            "text_object",
            "doc-0001/000000000008.txt",
            "or the object that has it",
        ),
        attribute(
            "log_object",
            "doc-0001/000000000004-000000000008.json",
            "the operations since the snapshot before, archived",
        ),
        attribute("log_from", "4", "the version they begin after"),
        attribute("created_at", "1767225640000", "epoch ms"),
    ],
};

/// All tables.
pub const TABLES: &[Table] = &[DOCUMENTS, OPERATIONS, EDITS, SNAPSHOTS];

const APPEND: &str = "TransactWriteItems [Update documents if, Put operations, Put edits if]";

const APPENDED: Calls = Calls {
    when: "open on this node",
    sequence: &[APPEND],
};

const REBASED: Calls = Calls {
    when: "another node was faster",
    sequence: &[APPEND, "Query operations", APPEND],
};

const FROM_STORE: Calls = Calls {
    when: "short text",
    sequence: &["GetItem documents", "GetItem snapshots", "Query operations"],
};

const FROM_STORE_AND_S3: Calls = Calls {
    when: "long text",
    sequence: &[
        "GetItem documents",
        "GetItem snapshots",
        "GetObject document-archive/{object}",
        "Query operations",
    ],
};

/// The actions, as the documents name them, and two beyond them.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create document",
        entities: &["DocumentState", "DocumentSnapshotState"],
        abstract_layer: "create target, create shared mutable subject",
        concrete_layer: "Put on documents if attribute_not_exists(document_id), version=0, with its first snapshot in one transaction",
        calls: &[Calls {
            when: "new",
            sequence: &["TransactWriteItems [Put documents if, Put snapshots]"],
        }],
    },
    Action {
        name: "load document",
        entities: &["DocumentState", "DocumentVersionState"],
        abstract_layer: "read source, load current subject state",
        concrete_layer: "GetItem on documents, GetItem on the snapshot it names, Query of the operations since, all consistent",
        calls: &[
            FROM_STORE,
            FROM_STORE_AND_S3,
            Calls {
                when: "open on this node",
                sequence: &["Query operations"],
            },
        ],
    },
    Action {
        name: "submit edit",
        entities: &["DocumentOperationLog"],
        abstract_layer: "append, append operation against shared subject",
        concrete_layer: "operation, base version, client and sequence over WebSocket; one transaction on documents, operations and edits",
        calls: &[APPENDED],
    },
    Action {
        name: "transform concurrent edit",
        entities: &["DocumentOperationLog", "DocumentVersionState"],
        abstract_layer: "state transition, rewrite operation against concurrent operations before apply",
        concrete_layer: "the pure rule `domain::Canon::decide`, over the operations after the edit's base",
        calls: &[APPENDED, REBASED],
    },
    Action {
        name: "advance canonical version",
        entities: &["DocumentVersionState"],
        abstract_layer: "state transition, guarded ordered apply to shared subject",
        concrete_layer: "Update on documents SET version = version + 1 if version = :seen; whoever fails reads what came between and decides again",
        calls: &[APPENDED, REBASED],
    },
    Action {
        name: "persist canonical operation",
        entities: &["DocumentOperationLog"],
        abstract_layer: "append, persist ordered operation history",
        concrete_layer: "Put on operations, PK=document_id, SK=version padded, in the transaction that advances the version",
        calls: &[APPENDED],
    },
    Action {
        name: "update current document state",
        entities: &["DocumentState"],
        abstract_layer: "overwrite/state transition, materialize latest shared state",
        concrete_layer: "the node applies the operation to the text it holds; the store has it as snapshot and log",
        calls: &[
            Calls {
                when: "in memory",
                sequence: &[],
            },
            APPENDED,
        ],
    },
    Action {
        name: "broadcast remote change",
        entities: &["RealtimeDeliveryState"],
        abstract_layer: "create realtime fanout side effect",
        concrete_layer: "this node's sockets, and PUBLISH to the other nodes, which take in only the next version",
        calls: &[
            Calls {
                when: "published",
                sequence: &["PUBLISH document:{document_id}"],
            },
            Calls {
                when: "heard",
                sequence: &[],
            },
            Calls {
                when: "a message was lost",
                sequence: &["Query operations"],
            },
        ],
    },
    Action {
        name: "rebase local pending edits",
        entities: &["ClientReplicaState"],
        abstract_layer: "transform local replica against canonical remote operation",
        concrete_layer: "the client library: what is typed and not acknowledged is rewritten against what arrives",
        calls: &[Calls {
            when: "in the window",
            sequence: &[],
        }],
    },
    Action {
        name: "update cursor / presence",
        entities: &["CursorPresenceState"],
        abstract_layer: "overwrite, update ephemeral collaborator state",
        concrete_layer: "Redis SET with PX, and SADD to the list of who is here; PUBLISH to the other nodes",
        calls: &[
            Calls {
                when: "moved",
                sequence: &[
                    "PIPELINE [SET presence:{document_id}:{client}, SADD people:{document_id}]",
                    "PUBLISH document:{document_id}",
                ],
            },
            Calls {
                when: "who is here",
                sequence: &[
                    "SMEMBERS people:{document_id}",
                    "MGET presence:{document_id}:{client}",
                ],
            },
            Calls {
                when: "who is here, one has expired",
                sequence: &[
                    "SMEMBERS people:{document_id}",
                    "MGET presence:{document_id}:{client}",
                    "SREM people:{document_id}",
                ],
            },
        ],
    },
    Action {
        name: "remove presence",
        entities: &["CursorPresenceState"],
        abstract_layer: "state transition, delete ephemeral collaborator state",
        concrete_layer: "Redis DEL and SREM when the socket ends; PUBLISH to the other nodes",
        calls: &[Calls {
            when: "left",
            sequence: &[
                "PIPELINE [DEL presence:{document_id}:{client}, SREM people:{document_id}]",
                "PUBLISH document:{document_id}",
            ],
        }],
    },
    Action {
        name: "snapshot / compact",
        entities: &["DocumentSnapshotState"],
        abstract_layer: "create target, materialize compacted subject state from operation history",
        concrete_layer: "archive and text to S3, then Put snapshot and move the pointer if snapshot_version = :seen, then prune below the retained base",
        calls: &[
            Calls {
                when: "not due",
                sequence: &["GetItem documents"],
            },
            Calls {
                when: "short text",
                sequence: &[
                    "GetItem documents",
                    "GetItem snapshots",
                    "Query operations",
                    "PutObject document-archive/{object}",
                    "TransactWriteItems [Put snapshots, Update documents if]",
                    "Query operations *",
                    "BatchWriteItem [Delete operations *] *",
                ],
            },
            Calls {
                when: "long text",
                sequence: &[
                    "GetItem documents",
                    "GetItem snapshots",
                    "GetObject document-archive/{object} *",
                    "Query operations",
                    "PutObject document-archive/{object} ×2",
                    "TransactWriteItems [Put snapshots, Update documents if]",
                    "Query operations *",
                    "BatchWriteItem [Delete operations *] *",
                ],
            },
        ],
    },
    Action {
        name: "recover document session",
        entities: &[
            "DocumentState",
            "DocumentOperationLog",
            "DocumentSnapshotState",
        ],
        abstract_layer: "rebuild active mutable subject from durable truth",
        concrete_layer: "the same reads as load, on any node: what a node holds is a cache",
        calls: &[FROM_STORE, FROM_STORE_AND_S3],
    },
    Action {
        name: "retry edit",
        entities: &["DocumentOperationLog"],
        abstract_layer: "retry-safe append with operation dedup",
        concrete_layer: "the same client and sequence again: Put on edits if attribute_not_exists(sequence_key) fails, and the item that comes back says which version it became",
        calls: &[
            Calls {
                when: "the node remembers",
                sequence: &[],
            },
            Calls {
                when: "on another node",
                sequence: &[APPEND, "Query operations"],
            },
            Calls {
                when: "its base is too old",
                sequence: &["Query operations", "GetItem edits"],
            },
        ],
    },
    Action {
        name: "view history",
        entities: &["DocumentSnapshotState", "DocumentOperationLog"],
        abstract_layer: "read source (beyond the documents)",
        concrete_layer: "the nearest snapshot at or below, then operations from the log, or from the archive where the log was pruned",
        calls: &[
            Calls {
                when: "in the log",
                sequence: &["GetItem documents", "Query snapshots", "Query operations"],
            },
            Calls {
                when: "in the archive",
                sequence: &[
                    "GetItem documents",
                    "Query snapshots",
                    "GetObject document-archive/{object} *",
                    "Query operations",
                    "Query snapshots",
                    "GetObject document-archive/{object} *",
                ],
            },
        ],
    },
    Action {
        name: "undo edit",
        entities: &["DocumentOperationLog"],
        abstract_layer: "append, the inverse of one's own operation (beyond the documents)",
        concrete_layer: "invert the last own operation, submit it against the version it made: everything after it is transformed over",
        calls: &[Calls {
            when: "within reach",
            sequence: &[
                "GetItem edits",
                "GetItem documents",
                "Query operations",
                "GetItem documents",
                "Query snapshots",
                "GetObject document-archive/{object} *",
                "Query operations *",
                APPEND,
            ],
        }],
    },
];

/// The states that entities go through.
pub const MACHINES: &[Machine] = &[Machine {
    entity: "ClientReplicaState",
    states: &["SETTLED", "IN_FLIGHT", "IN_FLIGHT_AND_BUFFER"],
    transitions: &[
        step("", "SETTLED", "load document"),
        step("SETTLED", "SETTLED", "broadcast remote change"),
        step("SETTLED", "IN_FLIGHT", "submit edit"),
        step("IN_FLIGHT", "IN_FLIGHT", "rebase local pending edits"),
        step("IN_FLIGHT", "IN_FLIGHT", "retry edit"),
        step("IN_FLIGHT", "SETTLED", "advance canonical version"),
        step("IN_FLIGHT", "IN_FLIGHT_AND_BUFFER", "submit edit"),
        step(
            "IN_FLIGHT_AND_BUFFER",
            "IN_FLIGHT_AND_BUFFER",
            "rebase local pending edits",
        ),
        step(
            "IN_FLIGHT_AND_BUFFER",
            "IN_FLIGHT",
            "advance canonical version",
        ),
    ],
}];
