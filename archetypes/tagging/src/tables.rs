//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{
    Attribute, Billing, Index, Key, Projection, Scope, StreamView, Table, attribute,
};
use walkthrough::{Action, Calls, Machine, step};

/// How many keys the list of a tenant's tag names is spread over. Autocomplete asks each of them.
pub const NAME_SHARDS: u32 = 4;

/// How many keys the list of a tenant's contents is spread over. Repair asks each of them; a content is
/// written to one of them, once, with its first tag. Four would let in 4,000 new contents a second, and
/// no number of buckets would help against that: `heat` shows it.
pub const CONTENT_SHARDS: u32 = 8;

/// TagDefinitionState.
pub const TAGS: Table = Table {
    name: "tags",
    entity: "TagDefinitionState",
    why: "The name is the key, normalized: two spellings of one word cannot be two tags.",
    partition: Key::S("tag_key"),
    sort: None,
    indexes: &[
        Index {
            name: "by_id",
            scope: Scope::Global,
            partition: Key::S("tag_id_key"),
            sort: None,
            projection: Projection::All,
            why: "Which tag has this id?",
        },
        Index {
            name: "by_name",
            scope: Scope::Global,
            partition: Key::S("name_shard"),
            sort: Some(Key::S("tag_name_norm")),
            projection: Projection::Include(&["tag_id", "display_name", "buckets"]),
            why: "Which names does a tenant have, and which begin with these letters? Sharded: one key for each tenant would take every creation",
        },
    ],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "tag_key",
            "acme#rust",
            "identity: tenant and normalized name",
        ),
        attribute("tenant_id", "acme", "whose"),
        attribute("tag_name_norm", "rust", "the name as it is compared"),
        attribute("display_name", "Rust", "the name as its creator wrote it"),
        attribute(
            "tag_id",
            "tag-0001",
            "what edges carry: a name may become another name for something else",
        ),
        attribute("tag_id_key", "acme#tag-0001", "key of by_id"),
        attribute("name_shard", "acme#3", "key of by_name"),
        attribute("buckets", "4", "B: only ever rises"),
        attribute("status", "ACTIVE", "ACTIVE, MERGING or REDIRECT"),
        attribute(
            "redirect_to",
            "rustlang",
            "for another name of a tag: that tag's normalized name",
        ),
        attribute(
            "aliases",
            "[rustlang]",
            "its other names: a merge takes them along",
        ),
        attribute(
            "merge_bucket",
            "2",
            "while MERGING: how far the walk has come",
        ),
        attribute(
            "merge_position",
            "8232774399999#photo-1",
            "while MERGING: how far in that bucket",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
    ],
};

/// ContentTagUniqueState: the truth.
pub const CONTENT_TAG_UNIQUE: Table = Table {
    name: "content_tag_unique",
    entity: "ContentTagUniqueState, and TagEvent as its stream record",
    why: "One item for each pair, so a pair exists once. The tag is the sort key, so a content's tags are one query.",
    partition: Key::S("content_key"),
    sort: Some(Key::S("tag_id")),
    indexes: &[],
    ttl: None,
    stream: Some(StreamView::NewImage),
    billing: Billing::OnDemand,
    attributes: EDGE_ATTRIBUTES,
};

const EDGE_ATTRIBUTES: &[Attribute] = &[
    attribute("content_key", "acme#photo-1", "identity, with tag_id"),
    attribute("tag_id", "tag-0001", "identity"),
    attribute("tenant_id", "acme", "whose"),
    attribute("content_id", "photo-1", "what is tagged"),
    attribute(
        "tag_name_norm",
        "rust",
        "so that listing tags needs no second read",
    ),
    attribute(
        "live",
        "true",
        "a detached edge stays, for its version: attached again, it counts on",
    ),
    attribute(
        "version",
        "1",
        "counts the changes; odd while live. What orders events that arrive in any order",
    ),
    attribute(
        "created_at",
        "1767225600000",
        "epoch ms of the attach; half of the index row's key, so that detach knows it",
    ),
    attribute(
        "bucket",
        "2",
        "the rest of the index row's key: B may have risen since",
    ),
    attribute("changed_at", "1767225600000", "epoch ms of the last change"),
    attribute(
        "change_id",
        "change-0001",
        "who made the last change: a lost answer is found by it",
    ),
];

/// ContentTagByTagIndexState: the index, bucketed.
pub const CONTENT_TAG_BY_TAG: Table = Table {
    name: "content_tag_by_tag",
    entity: "ContentTagByTagIndexState",
    why: "A tag's contents, newest first, over B keys: one key takes 1,000 units a second, a viral tag needs more.",
    partition: Key::S("bucket_key"),
    sort: Some(Key::S("position")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("bucket_key", "acme#tag-0001#2", "tenant, tag and bucket"),
        attribute(
            "position",
            "8232774399999#photo-1",
            "9999999999999 - created_at, padded, and the content: newest first, then by content",
        ),
        attribute("content_id", "photo-1", "what a view shows"),
        attribute("tag_id", "tag-0001", "for repair"),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute("version", "1", "of the edge it was made from, for repair"),
    ],
};

/// A content's count of tags.
pub const CONTENTS: Table = Table {
    name: "contents",
    entity: "ContentState (beyond the documents: the cap)",
    why: "A condition cannot count the items beside it: the cap needs a number to look at. A table of its own, so that the edges' stream holds nothing but edges.",
    partition: Key::S("content_key"),
    sort: None,
    indexes: &[Index {
        name: "by_shard",
        scope: Scope::Global,
        partition: Key::S("content_shard"),
        sort: Some(Key::S("content_id")),
        projection: Projection::Include(&["tenant_id"]),
        why: "Which contents does a tenant have? For repair. Sharded, and written with a content's first tag only: the count is not in it",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("content_key", "acme#photo-1", "identity"),
        attribute("tenant_id", "acme", "whose"),
        attribute("content_id", "photo-1", "which"),
        attribute("content_shard", "acme#1", "key of by_shard"),
        attribute(
            "tag_count",
            "3",
            "live edges: what the cap is compared with",
        ),
        attribute(
            "revision",
            "5",
            "counts the changes of its edges: repair recounts only if none came in between",
        ),
    ],
};

/// The gates of merged tags.
pub const TAG_GATES: Table = Table {
    name: "tag_gates",
    entity: "TagGateState (beyond the documents: merge)",
    why: "Whether a bucket of a tag still takes edges. Looked at after an attach, by key, as spread as the buckets are: a check on the definition would be one hot key for all of them.",
    partition: Key::S("bucket_key"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "bucket_key",
            "acme#tag-0002#0",
            "there only if it is closed",
        ),
        attribute(
            "into",
            "rust",
            "the normalized name of the tag that takes them now",
        ),
    ],
};

/// TagPopularityView.
pub const TAG_POPULARITY: Table = Table {
    name: "tag_popularity",
    entity: "TagPopularityView",
    why: "How many live edges a tag has, in all and by the window they were attached in. By tag, so that no key takes the counts of a whole tenant; a batch of a viral tag's edges is written as one change.",
    partition: Key::S("tag_id_key"),
    sort: Some(Key::S("window")),
    indexes: &[],
    ttl: Some("expires_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tag_id_key", "acme#tag-0001", "tenant and tag"),
        attribute("window", "DAY#2026-01-01", "ALL, a day or an hour"),
        attribute("live_edges", "42", "attached in that window and still live"),
        attribute(
            "revision",
            "57",
            "counts the changes of the row: an older copy never replaces a newer one in Redis. That of ALL changes with every count of the tag: a recount knows by it that nothing came in between",
        ),
        attribute(
            "expires_at",
            "1768003200",
            "epoch seconds; a day after the window is no longer asked for. All time has none",
        ),
    ],
};

/// What of each edge the popularity has counted.
pub const POPULARITY_APPLIED: Table = Table {
    name: "popularity_applied",
    entity: "the version of each edge that TagPopularityView has counted",
    why: "Written in one transaction with the count: an event is counted once, and only if it is newer.",
    partition: Key::S("content_key"),
    sort: Some(Key::S("tag_id")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("content_key", "acme#photo-1", "the edge"),
        attribute("tag_id", "tag-0001", "the edge"),
        attribute("version", "1", "the newest version counted"),
        attribute("live", "true", "what it said"),
        attribute(
            "created_at",
            "1767225600000",
            "the windows it was counted in",
        ),
    ],
};

/// How far the consumer of the stream has come.
pub const STREAM_CHECKPOINTS: Table = Table {
    name: "stream_checkpoints",
    entity: "how far the consumer of the edges' stream has come",
    why: "Durable: a consumer that dies is followed by one that goes on. A record may be seen twice, none never.",
    partition: Key::S("stream"),
    sort: Some(Key::S("shard_id")),
    indexes: &[],
    ttl: Some("expires_at"),
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "stream",
            "content_tag_unique",
            "the table it is the stream of",
        ),
        attribute("shard_id", "shardId-0001", "which shard of the stream"),
        attribute(
            "sequence_number",
            "100000001",
            "the last record that was counted",
        ),
        attribute("ended", "false", "read to its end: its children may begin"),
        attribute(
            "revision",
            "7",
            "counts the changes: a slow consumer moves nothing back",
        ),
        attribute(
            "gap",
            "5",
            "the revision at which lost records were noticed, until a recount has made up for them",
        ),
        attribute(
            "expires_at",
            "1767830400",
            "epoch seconds; a week after the end of the shard",
        ),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[
    TAGS,
    CONTENT_TAG_UNIQUE,
    CONTENT_TAG_BY_TAG,
    CONTENTS,
    TAG_GATES,
    TAG_POPULARITY,
    POPULARITY_APPLIED,
    STREAM_CHECKPOINTS,
];

/// What each action writes, in both layers, and the calls it may make. The first nine are the
/// documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create tag",
        entities: &["TagDefinitionState"],
        abstract_layer: "create target, insert/create",
        concrete_layer: "PutItem on tags by tenant and normalized name, if attribute_not_exists(tag_key); the id is generated",
        calls: &[Calls {
            when: "any",
            sequence: &["PutItem tags if"],
        }],
    },
    Action {
        name: "read tag metadata",
        entities: &["TagDefinitionState"],
        abstract_layer: "read source",
        concrete_layer: "GetItem on tags by name, consistent; or Query on tags/by_id",
        calls: &[
            Calls {
                when: "by name",
                sequence: &["GetItem tags"],
            },
            Calls {
                when: "by id",
                sequence: &["Query tags/by_id"],
            },
        ],
    },
    Action {
        name: "attach tag to content",
        entities: &[
            "ContentTagUniqueState",
            "ContentTagByTagIndexState",
            "TagEvent",
        ],
        abstract_layer: "state transition, guarded add/remove",
        concrete_layer: "Put on content_tag_unique if it is not there (or not live and as seen), in one transaction with the index row and the count",
        calls: ATTACH,
    },
    Action {
        name: "update reverse index by tag",
        entities: &["ContentTagByTagIndexState"],
        abstract_layer: "create target, bucketed relation index write",
        concrete_layer: "Put on content_tag_by_tag in that transaction: bucket = hash(tag_id, content_id) mod B, position = newest first",
        calls: ATTACH,
    },
    Action {
        name: "publish relation change",
        entities: &["TagEvent"],
        abstract_layer: "create target, projection/update event",
        concrete_layer: "the stream record of the edge: DynamoDB writes it with the edge, once for each version",
        calls: ATTACH,
    },
    Action {
        name: "detach tag from content",
        entities: &[
            "ContentTagUniqueState",
            "ContentTagByTagIndexState",
            "TagEvent",
        ],
        abstract_layer: "state transition, guarded add/remove",
        concrete_layer: "Put on content_tag_unique with live = false if the version is the one read, in one transaction with the index row and the count",
        calls: DETACH,
    },
    Action {
        name: "remove reverse index entry",
        entities: &["ContentTagByTagIndexState"],
        abstract_layer: "state transition, index maintenance",
        concrete_layer: "Delete on content_tag_by_tag in that transaction, by the bucket and the moment that the edge keeps",
        calls: DETACH,
    },
    Action {
        name: "view content by tag",
        entities: &["ContentTagByTagIndexState"],
        abstract_layer: "read projection",
        concrete_layer: "GetItem on tags for B, then Query on all buckets at once, merged lazily by (created_at desc, content_id)",
        calls: &[Calls {
            when: "any",
            sequence: &["GetItem tags", "Query content_tag_by_tag *"],
        }],
    },
    Action {
        name: "update popularity counts",
        entities: &["TagPopularityView"],
        abstract_layer: "overwrite, counter/projection update",
        concrete_layer: "DynamoDB Streams consumer with a checkpoint: the count and the version of the edge it comes from in one transaction, then Redis sorted sets by window",
        calls: &[
            Calls {
                when: "changes",
                sequence: &[
                    "ListStreams",
                    "DescribeStream content_tag_unique *",
                    "Query stream_checkpoints *",
                    "GetShardIterator content_tag_unique *",
                    "GetRecords",
                    "BatchGetItem [Get popularity_applied *]",
                    "TransactWriteItems [Put popularity_applied if *, Update tag_popularity *]",
                    "BatchGetItem [Get tag_popularity *]",
                    "PIPELINE [EVAL {key}:counts *]",
                    "PutItem stream_checkpoints if",
                    "GetRecords",
                ],
            },
            Calls {
                when: "nothing new",
                sequence: &[
                    "ListStreams",
                    "DescribeStream content_tag_unique *",
                    "Query stream_checkpoints *",
                    "GetRecords",
                ],
            },
        ],
    },
    Action {
        name: "top tags",
        entities: &["TagPopularityView"],
        abstract_layer: "read projection (beyond the documents)",
        concrete_layer: "the sorted set of the window in Redis; filled from the table when it is not there",
        calls: &[
            Calls {
                when: "in Redis",
                sequence: &["EVAL {key}:counts"],
            },
            Calls {
                when: "not in Redis yet",
                sequence: &[
                    "EVAL {key}:counts ×2",
                    "Query tags/by_name ×4",
                    "BatchGetItem [Get tag_popularity *] *",
                    "EVAL {key}:counts *",
                ],
            },
        ],
    },
    Action {
        name: "tags of a content",
        entities: &["ContentTagUniqueState"],
        abstract_layer: "read source (beyond the documents)",
        concrete_layer: "Query on content_tag_unique by content, consistent",
        calls: &[Calls {
            when: "any",
            sequence: &["Query content_tag_unique *"],
        }],
    },
    Action {
        name: "raise buckets",
        entities: &["TagDefinitionState"],
        abstract_layer: "overwrite, guarded raise (beyond the documents)",
        concrete_layer: "UpdateItem on tags if buckets is lower and the tag is ACTIVE; no row moves",
        calls: &[Calls {
            when: "any",
            sequence: &["UpdateItem tags if"],
        }],
    },
    Action {
        name: "repair",
        entities: &["ContentTagByTagIndexState", "ContentTagUniqueState"],
        abstract_layer: "rebuild a projection from its source (beyond the documents)",
        concrete_layer: "all contents and their edges, then all tags and their rows; each mend in a transaction with a ConditionCheck on the edge as it was read",
        calls: &[Calls {
            when: "any",
            sequence: &[REPAIR_CONTENTS, REPAIR_TAGS],
        }],
    },
    Action {
        name: "add synonym",
        entities: &["TagDefinitionState"],
        abstract_layer: "create target, redirect (beyond the documents)",
        concrete_layer: "Put on tags with redirect_to, in one transaction with a check that the target is a tag of its own",
        calls: &[Calls {
            when: "any",
            sequence: &[
                "GetItem tags *",
                "TransactWriteItems [Put tags if, Update tags if]",
            ],
        }],
    },
    Action {
        name: "merge tags",
        entities: &["TagDefinitionState", "ContentTagUniqueState"],
        abstract_layer: "state transition, rewrite of a relation (beyond the documents)",
        concrete_layer: "redirect, close the gates of its buckets, move each edge in a transaction; resumable",
        calls: &[Calls {
            when: "any",
            sequence: &[
                "GetItem tags *",
                "TransactWriteItems [Update tags if, Update tags if] *",
                "GetItem tags *",
                "PutItem tag_gates *",
                "BatchGetItem [Get tags] *",
                "Query content_tag_by_tag",
                "(GetItem content_tag_unique ×2; TransactWriteItems [Put content_tag_unique if, Delete content_tag_by_tag, Put content_tag_unique if, Put content_tag_by_tag, Update contents]; GetItem tag_gates) *",
                "UpdateItem tags *",
                "Query content_tag_by_tag *",
                "BatchGetItem [Get tags] *",
                "UpdateItem tags",
            ],
        }],
    },
    Action {
        name: "search contents",
        entities: &["ContentTagByTagIndexState", "ContentTagUniqueState"],
        abstract_layer: "read projection, AND / OR (beyond the documents)",
        concrete_layer: "OR merges the views; AND walks the rarest tag and reads the other edges in batches",
        calls: &[Calls {
            when: "all of them",
            sequence: &[
                "GetItem tags *",
                "BatchGetItem [Get tag_popularity *]",
                "Query content_tag_by_tag *",
                "BatchGetItem [Get content_tag_unique *] *",
            ],
        }],
    },
    Action {
        name: "autocomplete",
        entities: &["TagDefinitionState"],
        abstract_layer: "read projection by prefix (beyond the documents)",
        concrete_layer: "Query on tags/by_name, each shard, begins_with",
        calls: &[Calls {
            when: "any",
            sequence: &["Query tags/by_name ×4"],
        }],
    },
];

const ATTACH: &[Calls] = &[
    Calls {
        when: "new",
        sequence: &[
            "GetItem tags",
            "TransactWriteItems [Put content_tag_unique if, Put content_tag_by_tag, Update contents if]",
            "GetItem tag_gates",
        ],
    },
    Calls {
        when: "was there and is again",
        sequence: &[
            "GetItem tags",
            "TransactWriteItems [Put content_tag_unique if, Put content_tag_by_tag, Update contents if] ×2",
            "GetItem tag_gates",
        ],
    },
];

/// What repair does first: each shard of contents, each content, its edges, their rows.
const REPAIR_CONTENTS: &str = "(Query contents/by_shard *; GetItem contents *; Query content_tag_unique *; BatchGetItem [Get content_tag_by_tag *] *; TransactWriteItems [ConditionCheck content_tag_unique if, Put content_tag_by_tag] *; UpdateItem contents if *) *";

/// And then: each shard of names, each tag, its rows, their edges.
const REPAIR_TAGS: &str = "(Query tags/by_name *; GetItem tags *; Query content_tag_by_tag *; BatchGetItem [Get content_tag_unique *] *; TransactWriteItems [ConditionCheck content_tag_unique if, Delete content_tag_by_tag] *) *";

const DETACH: &[Calls] = &[Calls {
    when: "there",
    sequence: &[
        "GetItem tags",
        "GetItem content_tag_unique",
        "TransactWriteItems [Put content_tag_unique if, Delete content_tag_by_tag, Update contents]",
    ],
}];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "ContentTagUniqueState",
        states: &["live", "not live"],
        transitions: &[
            step("", "live", "attach tag to content"),
            step("live", "not live", "detach tag from content"),
            step("not live", "live", "attach tag to content"),
        ],
    },
    Machine {
        entity: "TagDefinitionState",
        states: &["ACTIVE", "MERGING", "REDIRECT"],
        transitions: &[
            step("", "ACTIVE", "create tag"),
            step("ACTIVE", "ACTIVE", "raise buckets"),
            step("", "REDIRECT", "add synonym"),
            step("ACTIVE", "MERGING", "merge tags"),
            step("MERGING", "REDIRECT", "merge tags"),
        ],
    },
];
