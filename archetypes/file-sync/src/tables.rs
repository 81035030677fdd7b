//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{Attribute, Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::{Action, Calls, Machine, Resource, step};

/// The bucket: manifests, staged uploads, and chunks.
pub const BUCKET: &str = "content";

/// The bucket, as the archetype declares it.
pub const BUCKET_RESOURCE: Resource = Resource {
    name: "bucket content",
    create: |cloud| Box::pin(async move { Ok(cloud.create_bucket(BUCKET).await?) }),
    remove: |cloud| Box::pin(async move { Ok(cloud.remove_bucket(BUCKET).await?) }),
};

/// NamespaceEntryState and FileHeadState.
pub const ENTRIES: Table = Table {
    name: "entries",
    entity: "NamespaceEntryState, and FileHeadState with it",
    why: "What a thing is called and which content it has change apart, each under its own guard; they \
          are one item because both end when it is deleted.",
    partition: Key::S("tenant_shard"),
    sort: Some(Key::S("entry_id")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: ENTRY_ATTRIBUTES,
};

const ENTRY_ATTRIBUTES: &[Attribute] = &[
    attribute(
        "tenant_shard",
        "acme#3",
        "tenant and a hash of the id: the collector lists a tenant without a Scan",
    ),
    attribute(
        "entry_id",
        "entry-0001",
        "identity; renaming and moving leave it",
    ),
    attribute("owner", "alice", "in whose namespace"),
    attribute("parent", "entry-0002", "the folder it is in, or root"),
    attribute("name", "Report.pdf", "as it was typed"),
    attribute("kind", "FILE", "FILE or FOLDER"),
    attribute("status", "LIVE", "LIVE, DELETED (a tombstone), PURGED"),
    attribute(
        "version",
        "2",
        "FileHeadState: the current version, and the guard of every edit",
    ),
    attribute(
        "size",
        "184320",
        "FileHeadState: bytes of the current version",
    ),
    attribute(
        "fingerprint",
        "9f86…",
        "FileHeadState: SHA-256 over the list of its chunks",
    ),
    attribute(
        "children",
        "3",
        "a folder's live entries: only an empty one can be deleted",
    ),
    attribute("updated_at", "1767225600000", "epoch ms"),
    attribute(
        "deleted_at",
        "1767225600000",
        "epoch ms, while it is a tombstone",
    ),
];

/// Unique names.
pub const NAMES: Table = Table {
    name: "names",
    entity: "NamespaceEntryState: which names a folder has",
    why: "The key is what must be unique: a folder, and a name without case and composition.",
    partition: Key::S("folder"),
    sort: Some(Key::S("folded")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute(
            "folder",
            "acme#entry-0002",
            "tenant and folder; a top folder is tenant#user#root",
        ),
        attribute("folded", "report.pdf", "the name, case-folded and in NFC"),
        attribute("name", "Report.pdf", "as it was typed"),
        attribute("entry_id", "entry-0001", "whose name it is"),
    ],
};

/// FileVersionState.
pub const VERSIONS: Table = Table {
    name: "versions",
    entity: "FileVersionState, with a pointer to its ChunkManifestState in S3",
    why: "Immutable. By tenant and shard as well, since the collector reads all of them, and an index \
          may lack the newest.",
    partition: Key::S("tenant_shard"),
    sort: Some(Key::S("version_key")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tenant_shard", "acme#3", "as the entry's"),
        attribute(
            "version_key",
            "entry-0001#0000000002",
            "padded: 10 sorts after 9",
        ),
        attribute("entry_id", "entry-0001", "of which file"),
        attribute("version", "2", "from 1"),
        attribute(
            "manifest_key",
            "acme/manifests/session-0001",
            "the list of chunks, in S3",
        ),
        attribute("manifest_hash", "51ab…", "SHA-256 of that list"),
        attribute("chunk_count", "3", "how long it is"),
        attribute("size", "184320", "bytes of the file"),
        attribute(
            "fingerprint",
            "9f86…",
            "SHA-256 over the list of its chunks",
        ),
        attribute("created_at", "1767225600000", "epoch ms"),
        attribute("created_by", "alice", "who"),
        attribute("device", "laptop", "where"),
        attribute("session_id", "session-0001", "by which upload"),
        attribute("restored_from", "1", "or from which older version"),
    ],
};

/// ContentChunk.
pub const CHUNKS: Table = Table {
    name: "chunks",
    entity: "ContentChunk",
    why: "A chunk that has an item is present and verified. Tenants share none, so nobody learns from \
          what is missing what another one has.",
    partition: Key::S("tenant_shard"),
    sort: Some(Key::S("hash")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tenant_shard", "acme#11", "tenant and a part of the hash"),
        attribute("hash", "2c26…", "SHA-256 of the bytes"),
        attribute("length", "61440", "how many bytes"),
        attribute(
            "blob_key",
            "acme/blobs/session-0001/LCa0…",
            "where the bytes are; a name is never used twice",
        ),
        attribute("stored_at", "1767225600000", "epoch ms"),
        attribute(
            "pins",
            "{session-0001}",
            "uploads that rely on it: while one of them is open, it stays",
        ),
    ],
};

/// UploadSessionState.
pub const UPLOAD_SESSIONS: Table = Table {
    name: "upload_sessions",
    entity: "UploadSessionState",
    why: "What an interrupted upload is resumed from, what pins its chunks, and what makes publishing \
          it twice one publication.",
    partition: Key::S("tenant_shard"),
    sort: Some(Key::S("session_id")),
    indexes: &[Index {
        name: "by_fingerprint",
        scope: Scope::Global,
        partition: Key::S("resume_key"),
        sort: None,
        projection: Projection::KeysOnly,
        why: "Is this file half uploaded already? Only open sessions have the key. A hint: the session \
              itself is read",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tenant_shard", "acme#1", "tenant and a hash of the id"),
        attribute("session_id", "session-0001", "identity"),
        attribute(
            "resume_key",
            "acme#alice#laptop#9f86…",
            "who, where and which content; only while OPEN",
        ),
        attribute("user", "alice", "whose"),
        attribute("device", "laptop", "from where"),
        attribute(
            "fingerprint",
            "9f86…",
            "SHA-256 over the list of its chunks",
        ),
        attribute("size", "184320", "bytes of the file"),
        attribute("chunk_count", "3", "chunks of the file"),
        attribute(
            "manifest_key",
            "acme/manifests/session-0001",
            "the list of chunks, in S3",
        ),
        attribute("manifest_hash", "51ab…", "SHA-256 of that list"),
        attribute(
            "new_entry_id",
            "entry-0001",
            "should it make an entry: chosen once, so that it makes one",
        ),
        attribute("status", "OPEN", "OPEN, then PUBLISHED or EXPIRED"),
        attribute("started_at", "1767225600000", "epoch ms"),
        attribute(
            "expires_at",
            "1767312000000",
            "epoch ms; then the collector may end it",
        ),
        attribute("target", "new root/Report.pdf", "what it was published as"),
        attribute("published_entry", "entry-0001", "what became of it"),
        attribute("published_version", "1", "what became of it"),
        attribute("as_copy", "false", "whether it became a conflict copy"),
        attribute("published_at", "1767225600000", "epoch ms"),
    ],
};

/// The counter of a namespace.
pub const NAMESPACES: Table = Table {
    name: "namespaces",
    entity: "the counter of a user's change feed",
    why: "A number without gaps needs one item that everybody waits for: it is one user's, so that only \
          that user's devices do.",
    partition: Key::S("namespace"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("namespace", "acme#alice", "tenant and user"),
        attribute("sequence", "7", "changes so far"),
        attribute(
            "moves",
            "1",
            "how often something went to another folder: what a look at ancestors was true for",
        ),
    ],
};

/// The change feed.
pub const CHANGES: Table = Table {
    name: "changes",
    entity: "the change feed: NamespaceEntryState and FileHeadState as they were after each change",
    why: "A device that was away reads from where it was. In order, without gaps, each line written with \
          what it tells.",
    partition: Key::S("namespace"),
    sort: Some(Key::N("sequence")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("namespace", "acme#alice", "tenant and user"),
        attribute("sequence", "7", "its place"),
        attribute("change", "UPDATED", "what happened"),
        attribute("entry", "{…}", "the entry afterwards"),
        attribute("device", "laptop", "who did it"),
        attribute("changed_at", "1767225600000", "epoch ms"),
        attribute(
            "operation",
            "operation-0007",
            "the identity of the write: one whose answer was lost finds itself here",
        ),
    ],
};

/// A cursor for each device.
pub const DEVICES: Table = Table {
    name: "devices",
    entity: "how far each device has read the feed",
    why: "Kept so that nobody has to trust a device to know who is behind.",
    partition: Key::S("namespace"),
    sort: Some(Key::S("device")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("namespace", "acme#alice", "tenant and user"),
        attribute("device", "laptop", "which device"),
        attribute(
            "applied",
            "7",
            "the last change it has applied; never goes back",
        ),
        attribute("seen_at", "1767225600000", "epoch ms"),
    ],
};

/// ShareRelationState.
pub const SHARES: Table = Table {
    name: "shares",
    entity: "ShareRelationState",
    why: "One item for an entry and a user, so that giving and taking away are one write, and a write \
          by a guest can check it in its own transaction.",
    partition: Key::S("shared"),
    sort: Some(Key::S("user")),
    indexes: &[Index {
        name: "by_user",
        scope: Scope::Global,
        partition: Key::S("user_key"),
        sort: Some(Key::S("shared")),
        projection: Projection::KeysOnly,
        why: "What is shared with me? A hint: share and entry are read",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("shared", "acme#entry-0002", "tenant and entry"),
        attribute("user", "bob", "with whom"),
        attribute("user_key", "acme#bob", "tenant and user"),
        attribute(
            "entry_id",
            "entry-0002",
            "what is shared, with all that is in it",
        ),
        attribute("permission", "WRITE", "READ or WRITE"),
        attribute("granted_by", "alice", "by whom"),
        attribute("granted_at", "1767225600000", "epoch ms"),
    ],
};

/// The epoch of a tenant's collector.
pub const COLLECTIONS: Table = Table {
    name: "collections",
    entity: "the epoch of the collector",
    why: "Two collectors at once would take each other's pins for none. The later one's number is in \
          every write's guard, so the earlier one cannot write any more.",
    partition: Key::S("tenant"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tenant", "acme", "whose chunks"),
        attribute("epoch", "12", "how often it was collected; the fence"),
    ],
};

/// Blobs to be deleted.
pub const GARBAGE: Table = Table {
    name: "garbage",
    entity: "blobs that no chunk names any more",
    why: "DynamoDB and S3 share no transaction. A chunk's item goes and this one comes in one; then the \
          blob is deleted, however often somebody dies on the way.",
    partition: Key::S("tenant"),
    sort: Some(Key::S("blob_key")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("tenant", "acme", "whose"),
        attribute(
            "blob_key",
            "acme/blobs/session-0001/LCa0…",
            "the object to delete",
        ),
        attribute("epoch", "12", "by which collection"),
    ],
};

/// All tables.
pub const TABLES: &[Table] = &[
    ENTRIES,
    NAMES,
    VERSIONS,
    CHUNKS,
    UPLOAD_SESSIONS,
    NAMESPACES,
    CHANGES,
    DEVICES,
    SHARES,
    COLLECTIONS,
    GARBAGE,
];

const PIN: &str = "TransactWriteItems [ConditionCheck upload_sessions if, Update chunks if *]";

/// The actions, as the documents name them; then those beyond.
pub const ACTIONS: &[Action] = &[
    Action {
        name: "create file entry",
        entities: &["NamespaceEntryState"],
        abstract_layer: "create target, create mutable namespace entry",
        concrete_layer: "one transaction: the entry, its name if attribute_not_exists, its folder if LIVE, the line of the feed if the counter is as it was read",
        calls: &[
            Calls {
                when: "at the top",
                sequence: &[
                    "GetItem namespaces",
                    "TransactWriteItems [Put entries, Put names if, Update namespaces if, Put changes]",
                ],
            },
            Calls {
                when: "in a folder",
                sequence: &[
                    "GetItem entries",
                    "GetItem namespaces",
                    "TransactWriteItems [Put entries, Put names if, Update entries if, Update namespaces if, Put changes]",
                ],
            },
        ],
    },
    Action {
        name: "fingerprint file",
        entities: &["FileFingerprintState"],
        abstract_layer: "derive immutable content identity candidate",
        concrete_layer: "the device hashes the list of the file's chunks; the service looks it up in an index of open sessions when the upload starts",
        calls: &[Calls {
            when: "on the device",
            sequence: &[],
        }],
    },
    Action {
        name: "chunk file",
        entities: &["ContentChunk"],
        abstract_layer: "derive immutable content-addressed units",
        concrete_layer: "the device cuts where the content says so (FastCDC) and hashes each chunk (SHA-256), in parallel and in bounded memory",
        calls: &[Calls {
            when: "on the device",
            sequence: &[],
        }],
    },
    Action {
        name: "start upload session",
        entities: &["UploadSessionState", "ChunkManifestState", "ContentChunk"],
        abstract_layer: "create target, create pending version/upload workflow",
        concrete_layer: "Query of open sessions by fingerprint; PutItem of the session and PutObject of its manifest; BatchGetItem of its chunks",
        calls: &[Calls {
            when: "nothing of it is there",
            sequence: &[
                "Query upload_sessions/by_fingerprint",
                "PutItem upload_sessions",
                "PutObject content/{key}",
                "BatchGetItem [Get chunks *]",
            ],
        }],
    },
    Action {
        name: "dedup existing chunks",
        entities: &["ContentChunk", "UploadSessionState"],
        abstract_layer: "read source on immutable content store to avoid re-upload",
        concrete_layer: "the same call; then a transaction that pins what is there: ADD pins :session if the chunk exists and the session is OPEN",
        calls: &[Calls {
            when: "some of it is there",
            sequence: &[
                "Query upload_sessions/by_fingerprint",
                "PutItem upload_sessions",
                "PutObject content/{key}",
                "BatchGetItem [Get chunks *]",
                PIN,
            ],
        }],
    },
    Action {
        name: "build chunk manifest",
        entities: &["ChunkManifestState"],
        abstract_layer: "create target, materialize immutable file-content composition",
        concrete_layer: "PutObject of the list of chunks, 36 bytes each, under the session's own name: an item would end at 400 KB",
        calls: &[Calls {
            when: "with the session",
            sequence: &[
                "Query upload_sessions/by_fingerprint",
                "PutItem upload_sessions",
                "PutObject content/{key}",
                "BatchGetItem [Get chunks *]",
                PIN,
            ],
        }],
    },
    Action {
        name: "upload missing chunk",
        entities: &["ContentChunk"],
        abstract_layer: "create target, add immutable content unit",
        concrete_layer: "PUT to a presigned address that carries the SHA-256; the service reads it back, hashes it, writes those bytes to the chunk's own key, and only then its item",
        calls: &[Calls {
            when: "each",
            sequence: &[
                "GetItem upload_sessions",
                "UpdateItem upload_sessions if *",
                "PUT {url} *",
                "(GetItem upload_sessions; BatchGetItem [Get chunks]; GetObject content/{key}; PutObject content/{key}; TransactWriteItems [ConditionCheck upload_sessions if, Update chunks]; DeleteObjects content) *",
            ],
        }],
    },
    Action {
        name: "resume interrupted upload",
        entities: &["UploadSessionState", "ContentChunk"],
        abstract_layer: "read pending upload state and continue filling immutable units",
        concrete_layer: "Query by fingerprint, GetItem of the session; its time begins again if it is OPEN; what it does not pin is missing",
        calls: &[Calls {
            when: "by fingerprint",
            sequence: &[
                "Query upload_sessions/by_fingerprint",
                "GetItem upload_sessions",
                "UpdateItem upload_sessions if",
                "BatchGetItem [Get chunks *]",
                "PutObject content/{key}",
            ],
        }],
    },
    Action {
        name: "create new file version",
        entities: &[
            "FileVersionState",
            "NamespaceEntryState",
            "UploadSessionState",
        ],
        abstract_layer: "create target, create immutable version node",
        concrete_layer: "one transaction: session PUBLISHED if OPEN, version, entry, name if attribute_not_exists, folder if LIVE, line of the feed",
        calls: &[Calls {
            when: "a new file",
            sequence: &[
                "GetItem upload_sessions",
                "GetObject content/{key}",
                "BatchGetItem [Get chunks *]",
                "GetItem entries *",
                "GetItem namespaces",
                "TransactWriteItems [Update upload_sessions if, Put versions, Put entries, Put names if, Update entries if *, Update namespaces if, Put changes]",
            ],
        }],
    },
    Action {
        name: "advance file head",
        entities: &["FileHeadState", "FileVersionState", "UploadSessionState"],
        abstract_layer: "state transition, move mutable head/pointer to new immutable version",
        concrete_layer: "one transaction: session PUBLISHED if OPEN, version, head if it is the base that the edit began with, line of the feed; otherwise the edit becomes a conflict copy",
        calls: &[
            Calls {
                when: "from the base it saw",
                sequence: &[
                    "GetItem upload_sessions",
                    "GetObject content/{key}",
                    "BatchGetItem [Get chunks *]",
                    "GetItem entries",
                    "GetItem namespaces",
                    "TransactWriteItems [Update upload_sessions if, Put versions, Update entries if, Update namespaces if, Put changes]",
                ],
            },
            Calls {
                when: "a conflict copy",
                sequence: &[
                    "GetItem upload_sessions",
                    "GetObject content/{key}",
                    "BatchGetItem [Get chunks *]",
                    "GetItem entries ×2",
                    "GetItem namespaces",
                    "TransactWriteItems [Update upload_sessions if, Put versions, Put entries, Put names if, Update entries if, Update namespaces if, Put changes]",
                ],
            },
        ],
    },
    Action {
        name: "rename or move file",
        entities: &["NamespaceEntryState"],
        abstract_layer: "overwrite/state transition, mutate namespace without mutating content",
        concrete_layer: "one transaction: entry if it is where it was, old name deleted, new name if attribute_not_exists, both folders' counts, line of the feed",
        calls: &[
            Calls {
                when: "renamed",
                sequence: &[
                    "GetItem entries",
                    "GetItem namespaces",
                    "TransactWriteItems [Update entries if, Delete names, Put names if, Update namespaces if, Put changes]",
                ],
            },
            Calls {
                when: "moved",
                sequence: &[
                    "GetItem entries",
                    "GetItem namespaces",
                    "GetItem entries *",
                    "TransactWriteItems [Update entries if, Delete names, Put names if, Update entries *, Update entries if *, Update namespaces if, Put changes]",
                ],
            },
        ],
    },
    Action {
        name: "download file",
        entities: &["FileHeadState", "FileVersionState", "ChunkManifestState"],
        abstract_layer: "read source, resolve mutable namespace/head to immutable version then fetch content units",
        concrete_layer: "GetItem of entry and version, GetObject of the manifest; the same again and BatchGetItem of chunks for addresses; GET of each chunk from S3, verified by the device",
        calls: &[
            Calls {
                when: "one's own",
                sequence: &[
                    "(GetItem entries; GetItem versions; GetObject content/{key}) ×2",
                    "BatchGetItem [Get chunks *]",
                    "GET {url} *",
                ],
            },
            Calls {
                when: "shared",
                sequence: &[
                    "(GetItem entries; GetItem namespaces; GetItem entries *; BatchGetItem [Get shares *]; GetItem namespaces; GetItem versions; GetObject content/{key}) ×2",
                    "BatchGetItem [Get chunks *]",
                    "GET {url} *",
                ],
            },
        ],
    },
    Action {
        name: "sync file",
        entities: &["FileHeadState", "FileVersionState"],
        abstract_layer: "read projection, compare namespace/version state and fetch missing immutable units",
        concrete_layer: "Query of the change feed after the device's cursor; the cursor is kept if it went forward",
        calls: &[
            Calls {
                when: "for the first time",
                sequence: &["Query changes"],
            },
            Calls {
                when: "from a cursor",
                sequence: &["Query changes", "UpdateItem devices if"],
            },
        ],
    },
    Action {
        name: "share file",
        entities: &["ShareRelationState"],
        abstract_layer: "create relation, grant another principal access to namespace entry/head",
        concrete_layer: "PutItem of the share; taking it back is DeleteItem, and ends access with it",
        calls: &[
            Calls {
                when: "given",
                sequence: &["GetItem entries", "PutItem shares"],
            },
            Calls {
                when: "taken back",
                sequence: &["GetItem entries", "DeleteItem shares"],
            },
        ],
    },
    Action {
        name: "view shared files",
        entities: &["ShareRelationState", "NamespaceEntryState"],
        abstract_layer: "read projection on sharing relation + namespace/head state",
        concrete_layer: "Query of the share index by user, then BatchGetItem of the shares themselves and of their entries",
        calls: &[Calls {
            when: "some",
            sequence: &[
                "Query shares/by_user",
                "BatchGetItem [Get shares *]",
                "BatchGetItem [Get entries *]",
            ],
        }],
    },
    Action {
        name: "delete entry",
        entities: &["NamespaceEntryState"],
        abstract_layer: "state transition, to a tombstone (beyond the documents)",
        concrete_layer: "one transaction: entry DELETED if it is the version that was seen and has no children, its name deleted, line of the feed",
        calls: &[Calls {
            when: "a file",
            sequence: &[
                "GetItem entries",
                "GetItem namespaces",
                "TransactWriteItems [Update entries if, Delete names, Update entries *, Update namespaces if, Put changes]",
            ],
        }],
    },
    Action {
        name: "restore version",
        entities: &["FileVersionState", "FileHeadState", "NamespaceEntryState"],
        abstract_layer: "create target and state transition: a new version with old content (beyond the documents)",
        concrete_layer: "one transaction: version, entry LIVE if it is as it was read, its name if attribute_not_exists, line of the feed",
        calls: &[Calls {
            when: "a deleted file",
            sequence: &[
                "GetItem entries",
                "GetItem versions",
                "GetItem namespaces",
                "TransactWriteItems [Put versions, Update entries if, Put names if *, Update entries if *, Update namespaces if, Put changes]",
            ],
        }],
    },
    Action {
        name: "garbage collect orphaned chunks",
        entities: &["ContentChunk", "UploadSessionState", "FileVersionState"],
        abstract_layer: "delete unreferenced immutable content units after retention window",
        concrete_layer: "a new epoch; sessions, then versions and manifests, then chunks are read; a chunk goes if no manifest has it and its pins are still only those of ended sessions; then its blob",
        calls: &[
            Calls {
                when: "dry run",
                sequence: &[
                    "Query upload_sessions ×4",
                    "Query entries ×8",
                    "(Query versions; GetObject content/{key} *) ×8",
                    "Query chunks ×16",
                ],
            },
            Calls {
                when: "for real",
                sequence: &[
                    "UpdateItem collections",
                    "Query upload_sessions ×4",
                    "TransactWriteItems [ConditionCheck collections if, Update upload_sessions if] *",
                    "(Query entries; TransactWriteItems [ConditionCheck collections if, Update entries if] *; Query versions *; DeleteObjects content *; DeleteItem versions *; DeleteItem entries *) ×8",
                    "(Query versions; GetObject content/{key} *) ×8",
                    "(Query chunks; TransactWriteItems [ConditionCheck collections if, Delete chunks if, Put garbage] *; TransactWriteItems [ConditionCheck collections if, Update chunks *] *) ×16",
                    "Query garbage",
                    "(DeleteObject content/{key}; DeleteItem garbage) *",
                    "(ListObjectsV2 content ×2; BatchGetItem [Get chunks *] *; DeleteObjects content *; TransactWriteItems [ConditionCheck collections if, Delete upload_sessions] *) *",
                ],
            },
        ],
    },
];

/// The states and what moves them.
pub const MACHINES: &[Machine] = &[
    Machine {
        entity: "NamespaceEntryState",
        states: &["LIVE", "DELETED", "PURGED"],
        transitions: &[
            step("", "LIVE", "create file entry"),
            step("", "LIVE", "create new file version"),
            step("LIVE", "LIVE", "advance file head"),
            step("LIVE", "LIVE", "rename or move file"),
            step("LIVE", "DELETED", "delete entry"),
            step("DELETED", "LIVE", "restore version"),
            step("DELETED", "PURGED", "garbage collect orphaned chunks"),
        ],
    },
    Machine {
        entity: "UploadSessionState",
        states: &["OPEN", "PUBLISHED", "EXPIRED"],
        transitions: &[
            step("", "OPEN", "start upload session"),
            step("OPEN", "OPEN", "resume interrupted upload"),
            step("OPEN", "PUBLISHED", "create new file version"),
            step("OPEN", "PUBLISHED", "advance file head"),
            step("OPEN", "EXPIRED", "garbage collect orphaned chunks"),
        ],
    },
];
