//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{
    Attribute, Billing, Index, Key, Projection, Scope, StreamView, Table, attribute,
};
use walkthrough::{Action, Machine};

/// How many keys the list of a tenant's tag names is spread over. Autocomplete asks each of them.
pub const NAME_SHARDS: u32 = 4;

/// How many keys the list of a tenant's contents is spread over. Repair asks each of them; a content
/// is written to one of them, once, with its first tag.
pub const CONTENT_SHARDS: u32 = 4;

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

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[];
