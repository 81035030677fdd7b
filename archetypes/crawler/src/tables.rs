//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{Attribute, Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, step};

/// How many shards each lane of the index is spread over. A sweep asks each of them.
pub const SHARDS: u32 = 4;

/// URLMetadataState.
pub const URL_METADATA: Table = Table {
    name: "url_metadata",
    entity: "URLMetadataState",
    why: "One row for each canonical URL, for ever: the frontier is those that are not finished. The key is a hash, which spreads the pages of a site over all partitions; the URL itself is kept beside it and compared.",
    partition: Key::S("url_hash"),
    sort: None,
    indexes: &[Index {
        name: "lanes",
        scope: Scope::Global,
        partition: Key::S("lane"),
        sort: Some(Key::N("lane_at")),
        projection: Projection::KeysOnly,
        why: "What must be looked at, what was fetched when, what failed? A lane is a kind and a shard, never a status alone. What is finished leaves `watch-N`, so a sweep reads and pays only for what is late",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: URL_ATTRIBUTES,
};

const URL_ATTRIBUTES: &[Attribute] = &[
    attribute(
        "url_hash",
        "5dee4dd60ba8b2a3…",
        "half of the SHA-256 of the canonical URL",
    ),
    attribute(
        "url",
        "http://site.test/",
        "the canonical URL; two of one hash are told apart by it",
    ),
    attribute(
        "origin",
        "http://site.test",
        "scheme, host and port: whose turn it needs",
    ),
    attribute("kind", "PAGE", "PAGE or SITEMAP"),
    attribute(
        "depth",
        "0",
        "links from a seed, by the shortest way found so far",
    ),
    attribute(
        "redirects",
        "0",
        "redirects in a row on the way, the fewest found so far",
    ),
    attribute("status", "FETCHING", "see the diagram"),
    attribute(
        "fence",
        "1",
        "claims so far, of both kinds; the fencing token",
    ),
    attribute(
        "fetch_attempts",
        "1",
        "fetches begun, without those that the host put off",
    ),
    attribute("parse_attempts", "0", "parses begun since the last fetch"),
    attribute(
        "waits",
        "0",
        "how often the host said \"later\", or the store failed, since the last fetch",
    ),
    attribute(
        "not_before",
        "1767225600000",
        "epoch ms; when the next attempt may begin",
    ),
    attribute(
        "lane",
        "watch-2",
        "`watch` while it is on its way, then `parsed` or `failed`; and the shard",
    ),
    attribute(
        "lane_at",
        "1767225630000",
        "epoch ms; by when it should have gone on; when it was fetched; when it failed",
    ),
    attribute("discovered_at", "1767225600000", "epoch ms"),
    attribute(
        "discovery_id",
        "find-0001",
        "which put it was: identity of a lost answer",
    ),
    attribute(
        "found_on",
        "5dee4dd60ba8b2a3…",
        "the page that led here first; none for a seed",
    ),
    attribute("lease_owner", "worker-1", "who has it, or had it last"),
    attribute("lease_expires_at", "1767225660000", "epoch ms; until when"),
    attribute("http_status", "200", "of the last answer that was kept"),
    attribute(
        "content_hash",
        "0f1bc26b43c8d5e3…",
        "what its bytes are stored under",
    ),
    attribute("content_type", "text/html", "how they are to be read"),
    attribute(
        "raw_blob_key",
        "0f1bc26b43c8d5e3…/raw.html",
        "where they are",
    ),
    attribute(
        "text_blob_key",
        "0f1bc26b43c8d5e3…/text.json",
        "where its text is",
    ),
    attribute("etag", "\"v1\"", "for the next time: If-None-Match"),
    attribute(
        "last_modified",
        "Thu, 01 Jan 2026 00:00:00 GMT",
        "for the next time: If-Modified-Since",
    ),
    attribute(
        "redirect_to",
        "http://site.test/new",
        "where it redirects: then this is its only link",
    ),
    attribute("fetched_at", "1767225601000", "epoch ms"),
    attribute("parsed_at", "1767225602000", "epoch ms"),
    attribute("links", "7", "how many it has"),
    attribute("reason", "status 404", "why it was tried again or given up"),
];

/// DomainPolicyState.
pub const DOMAIN_POLICIES: Table = Table {
    name: "domain_policies",
    entity: "DomainPolicyState",
    why: "What all workers must agree on about a host: whose turn it is, and what is allowed. One item, because a condition sees only one.",
    partition: Key::S("origin"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "origin",
            "http://site.test",
            "scheme, host and port, as RFC 9309 wants it",
        ),
        attribute(
            "next_allowed_at",
            "1767225601000",
            "epoch ms; nobody asks this host before: the turn and the pause after it in one number",
        ),
        attribute(
            "turn_id",
            "5dee4dd60ba8b2a3…#1#worker-1",
            "who has the turn, or had it last: only they end it",
        ),
        attribute(
            "turn_ends_at",
            "1767225630000",
            "epoch ms; only while somebody has the turn: a hint for those who wait",
        ),
        attribute("pages", "12", "URLs of it that were fetched at least once"),
        attribute("robots", "KNOWN", "KNOWN, ABSENT, UNREACHABLE or FORBIDDEN"),
        attribute(
            "robots_key",
            "robots/a1b2….txt",
            "where the robots.txt is: it may be larger than an item",
        ),
        attribute(
            "robots_expires_at",
            "1767312000000",
            "epoch ms; then it is asked for again",
        ),
        attribute(
            "robots_failures",
            "0",
            "how often in a row there was no answer",
        ),
        attribute(
            "crawl_delay_ms",
            "1000",
            "what it asked for between two requests",
        ),
        attribute("reason", "read", "what the robots.txt came to"),
    ],
};

/// URLArtifactState.
pub const ARTIFACTS: Table = Table {
    name: "artifacts",
    entity: "URLArtifactState",
    why: "Which contents are stored: by the hash of the bytes and not by URL, so that the same page under two addresses is stored once. A row means that the object is there.",
    partition: Key::S("content_hash"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "content_hash",
            "0f1bc26b43c8d5e3…",
            "half of the SHA-256 of content type and bytes",
        ),
        attribute(
            "raw_blob_key",
            "0f1bc26b43c8d5e3…/raw.html",
            "the bytes, in S3",
        ),
        attribute(
            "text_blob_key",
            "0f1bc26b43c8d5e3…/text.json",
            "title and text, in S3",
        ),
        attribute("content_type", "text/html", "as it was served"),
        attribute("bytes", "5123", "how many"),
        attribute(
            "first_url_hash",
            "5dee4dd60ba8b2a3…",
            "who brought it first",
        ),
        attribute("stored_at", "1767225601000", "epoch ms"),
    ],
};

/// All of them.
pub const TABLES: &[Table] = &[URL_METADATA, DOMAIN_POLICIES, ARTIFACTS];

const READ_URL: &str = "GetItem url_metadata";
const READ_HOST: &str = "GetItem domain_policies";
const CLAIM: &str = "TransactWriteItems [Update url_metadata if, Update domain_policies if]";
const MARK: &str = "UpdateItem url_metadata if";
const PUT: &str = "PutItem url_metadata if";
const TURN: &str = "UpdateItem domain_policies if";

/// What each action writes, in both layers, and the calls it may make. The names are the documents'.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "add seed URL",
        entities: &["URLFrontierState", "URLMetadataState"],
        abstract_layer: "create target, frontier append",
        concrete_layer: "Put on url_metadata with pk=url_hash, status=DISCOVERED, depth=0, if attribute_not_exists(url_hash); if it is there as FAILED, Update to DISCOVERED if it still is; then SendMessage to the frontier queue",
        calls: &[
            Calls {
                when: "new",
                sequence: &[PUT, "SendMessage frontier"],
            },
            Calls {
                when: "known",
                sequence: &[PUT],
            },
            Calls {
                when: "given up before",
                sequence: &[
                    PUT,
                    "UpdateItem domain_policies if",
                    "UpdateItem url_metadata if",
                    "SendMessage frontier",
                ],
            },
        ],
    },
    Action {
        name: "discover child URL",
        entities: &["URLFrontierState", "URLMetadataState"],
        abstract_layer: "create target, deduped frontier expansion",
        concrete_layer: "Put if attribute_not_exists(url_hash); if it is there by a longer way, Update of depth and redirects if they are those that were seen",
        calls: &[
            Calls {
                when: "new, or known by a way as short",
                sequence: &[PUT],
            },
            Calls {
                when: "a shorter way",
                sequence: &[PUT, MARK],
            },
            Calls {
                when: "a shorter way, parsed already",
                sequence: &[PUT, MARK, "SendMessage parse"],
            },
            Calls {
                when: "known to this process",
                sequence: &[],
            },
        ],
    },
    Action {
        name: "claim URL for fetch",
        entities: &["URLFetchRunState"],
        abstract_layer: "state transition, claim/lease",
        concrete_layer: "ReceiveMessage on the frontier queue; its visibility timeout is the lease as SQS sees it",
        calls: &[Calls {
            when: "any",
            sequence: &["ReceiveMessage frontier"],
        }],
    },
    Action {
        name: "read robots.txt",
        entities: &["DomainPolicyState"],
        abstract_layer: "read source under the host's turn (beyond the documents)",
        concrete_layer: "Update of next_allowed_at and turn_id if the turn is free, GET, then the rules if the turn is still ours",
        calls: &[
            Calls {
                when: "it was read",
                sequence: &[
                    TURN,
                    "GET {url}",
                    "PutObject artifacts/{key}",
                    "PutItem url_metadata if *",
                    "SendMessageBatch frontier *",
                    TURN,
                ],
            },
            Calls {
                when: "there is none, or no answer",
                sequence: &[TURN, "GET {url}", TURN],
            },
            Calls {
                when: "somebody else is at the host",
                sequence: &[TURN],
            },
        ],
    },
    Action {
        name: "mark URL fetching",
        entities: &["URLMetadataState", "URLFetchRunState", "DomainPolicyState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to FETCHING with lease, fence + 1 and fetch_attempts + 1 if fence and status are those read: DISCOVERED, RETRYING, or FETCHING with an expired lease; in one transaction with the host's turn",
        calls: &[
            Calls {
                when: "the host is free",
                sequence: &[READ_URL, READ_HOST, CLAIM],
            },
            Calls {
                when: "too early for the host, or its rules are not known",
                sequence: &[READ_URL, READ_HOST],
            },
            Calls {
                when: "held or an echo",
                sequence: &[READ_URL],
            },
            Calls {
                when: "not allowed, or no more of this host",
                sequence: &[READ_URL, READ_HOST, MARK],
            },
        ],
    },
    Action {
        name: "fetch page",
        entities: &["DomainPolicyState"],
        abstract_layer: "read source, then release of the host's turn (beyond the documents)",
        concrete_layer: "GET, then Update of next_allowed_at if the turn is ours",
        calls: &[Calls {
            when: "any",
            sequence: &["GET {url}", TURN],
        }],
    },
    Action {
        name: "store raw HTML",
        entities: &["URLArtifactState"],
        abstract_layer: "create target, durable artifact write",
        concrete_layer: "PutObject to S3 with key=content_hash/raw.html, then Put on artifacts if attribute_not_exists(content_hash)",
        calls: &[
            Calls {
                when: "new content",
                sequence: &[
                    "GetItem artifacts",
                    "PutObject artifacts/{key}",
                    "PutItem artifacts if",
                ],
            },
            Calls {
                when: "seen before",
                sequence: &["GetItem artifacts"],
            },
        ],
    },
    Action {
        name: "mark fetched",
        entities: &["URLMetadataState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to FETCHED with raw_blob_key and fetched_at if FETCHING under this fence",
        calls: &[Calls {
            when: "any",
            sequence: &[MARK],
        }],
    },
    Action {
        name: "mark retrying/failed",
        entities: &["URLMetadataState", "URLFrontierState"],
        abstract_layer: "state transition, guarded conditional update (beyond the documents)",
        concrete_layer: "Update to RETRYING or FAILED with the reason, under the same fence; SendMessage with the pause as DelaySeconds",
        calls: &[
            Calls {
                when: "again later",
                sequence: &[MARK, "SendMessage frontier"],
            },
            Calls {
                when: "given up, or the lease was lost",
                sequence: &[MARK],
            },
        ],
    },
    Action {
        name: "enqueue parse work",
        entities: &["URLParseRunState"],
        abstract_layer: "create target, next-stage claimable run",
        concrete_layer: "SendMessage to the parse queue with url_hash and blob_key",
        calls: &[Calls {
            when: "any",
            sequence: &["SendMessage parse"],
        }],
    },
    Action {
        name: "release fetch claim",
        entities: &["URLFetchRunState"],
        abstract_layer: "release claim / finalize run",
        concrete_layer: "DeleteMessage on the frontier queue",
        calls: &[Calls {
            when: "any",
            sequence: &["DeleteMessage frontier"],
        }],
    },
    Action {
        name: "claim parse run",
        entities: &["URLParseRunState", "URLMetadataState"],
        abstract_layer: "state transition, claim/lease",
        concrete_layer: "ReceiveMessage on the parse queue; Update to PARSING with lease and fence + 1 if fence and status are those read: FETCHED, or PARSING with an expired lease",
        calls: &[
            Calls {
                when: "free",
                sequence: &["ReceiveMessage parse", READ_URL, MARK],
            },
            Calls {
                when: "the same message again",
                sequence: &[READ_URL],
            },
        ],
    },
    Action {
        name: "store parsed text",
        entities: &["URLArtifactState"],
        abstract_layer: "create target, durable artifact write",
        concrete_layer: "GetObject of the bytes; PutObject to S3 with key=content_hash/text.json, then Update of artifacts",
        calls: &[
            Calls {
                when: "new content",
                sequence: &[
                    "GetObject artifacts/{key}",
                    "GetItem artifacts",
                    "PutObject artifacts/{key}",
                    "UpdateItem artifacts",
                ],
            },
            Calls {
                when: "seen before",
                sequence: &["GetObject artifacts/{key}", "GetItem artifacts"],
            },
        ],
    },
    Action {
        name: "expand frontier",
        entities: &["URLFrontierState", "URLMetadataState"],
        abstract_layer: "create target, deduped frontier expansion",
        concrete_layer: "for each link Put if attribute_not_exists(url_hash); SendMessageBatch of the new ones; all of it before PARSED",
        calls: &[Calls {
            when: "any",
            sequence: &["PutItem url_metadata if *", "SendMessageBatch frontier *"],
        }],
    },
    Action {
        name: "mark parsed",
        entities: &["URLMetadataState"],
        abstract_layer: "state transition, guarded conditional update",
        concrete_layer: "Update to PARSED with text_blob_key and parsed_at if PARSING under this fence, and by the way its links were expanded with; then DeleteMessage",
        calls: &[
            Calls {
                when: "any",
                sequence: &[MARK, "DeleteMessage parse"],
            },
            Calls {
                when: "the lease was lost",
                sequence: &[MARK],
            },
        ],
    },
    Action {
        name: "reclaim stalled work",
        entities: &["URLFetchRunState", "URLParseRunState", "URLMetadataState"],
        abstract_layer: "claim lease expiry, run becomes reclaimable",
        concrete_layer: "Query url_metadata/lanes, watch-N up to now; for each, move lane_at if it is the one seen, then SendMessage again",
        calls: &[
            Calls {
                when: "nothing is stalled",
                sequence: &["Query url_metadata/lanes ×4"],
            },
            Calls {
                when: "one is to be fetched",
                sequence: &[
                    "Query url_metadata/lanes *",
                    READ_URL,
                    MARK,
                    "SendMessage frontier",
                    "Query url_metadata/lanes *",
                ],
            },
            Calls {
                when: "one is to be parsed",
                sequence: &[
                    "Query url_metadata/lanes *",
                    READ_URL,
                    MARK,
                    "SendMessage parse",
                    "Query url_metadata/lanes *",
                ],
            },
        ],
    },
    Action {
        name: "recrawl",
        entities: &["URLMetadataState", "URLFrontierState"],
        abstract_layer: "state transition, another run of what is done (beyond the documents)",
        concrete_layer: "Query url_metadata/lanes, parsed-N up to an age; PARSED → DISCOVERED if still so; SendMessage. The fetch then asks with If-None-Match and If-Modified-Since",
        calls: &[Calls {
            when: "one page",
            sequence: &[
                "Query url_metadata/lanes *",
                READ_URL,
                MARK,
                "SendMessage frontier",
                "Query url_metadata/lanes *",
            ],
        }],
    },
];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[Machine {
    entity: "URLMetadataState",
    states: &[
        "DISCOVERED",
        "FETCHING",
        "RETRYING",
        "FETCHED",
        "PARSING",
        "PARSED",
        "FAILED",
    ],
    transitions: &[
        step("", "DISCOVERED", "add seed URL"),
        step("", "DISCOVERED", "discover child URL"),
        step("DISCOVERED", "FETCHING", "mark URL fetching"),
        step("DISCOVERED", "FAILED", "mark URL fetching"),
        step("RETRYING", "FETCHING", "mark URL fetching"),
        step("FETCHING", "FETCHING", "mark URL fetching"),
        step("FETCHING", "FETCHED", "mark fetched"),
        step("FETCHING", "RETRYING", "mark retrying/failed"),
        step("FETCHING", "FAILED", "mark retrying/failed"),
        step("FETCHED", "PARSING", "claim parse run"),
        step("PARSING", "PARSING", "claim parse run"),
        step("PARSING", "FAILED", "claim parse run"),
        step("PARSING", "PARSED", "mark parsed"),
        step("PARSED", "FETCHED", "discover child URL"),
        step("PARSED", "DISCOVERED", "recrawl"),
        step("FAILED", "DISCOVERED", "add seed URL"),
    ],
}];
