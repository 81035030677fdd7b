//! Schema first: the tables with one sample item each, and the actions as data.
//!
//! The same data creates the tables, fills the README, and is what the walkthrough holds the real
//! calls against.

use cloud::tables::{Attribute, Billing, Index, Key, Projection, Scope, Table, attribute};
use walkthrough::Resource;

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
        "FileHeadState: SHA-256 of the whole file",
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
        attribute("fingerprint", "9f86…", "SHA-256 of the whole file"),
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
            "acme/blobs/session-0001/2c26…",
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
        attribute("fingerprint", "9f86…", "SHA-256 of the whole file"),
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
            "acme/blobs/session-0001/2c26…",
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
