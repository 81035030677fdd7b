//! The documents' literal words, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod drive;

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::presigning::PresigningConfig;
use chaos::{Interleave, World};
use cloud::item::{n, s};
use drive::client::*;
use drive::*;
use file_sync::{ChunkHash, ChunkRef, Confirmed, EntryId, Publication, UploadRequest, tables};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The documents' service: plain puts, updates and deletes.
struct Literal<'a>(&'a Drive);

impl Literal<'_> {
    fn shard(&self) -> AttributeValue {
        s(format!("{}#0", self.0.tenant))
    }

    fn table(&self, name: &str) -> String {
        self.0.cloud().names().table(name)
    }

    /// A version, with its chunks.
    async fn put_version(&self, key: &str, chunks: &[&str]) {
        let chunks = chunks.iter().map(|piece| s(chunk(piece).hash.to_string()));
        let put = self.0.cloud().dynamodb().put_item();
        put.table_name(self.table("versions"))
            .item("tenant_shard", self.shard())
            .item("version_key", s(key))
            .item("chunks", AttributeValue::L(chunks.collect()))
            .send()
            .await
            .unwrap();
    }

    async fn head(&self) -> u64 {
        let get = self.0.cloud().dynamodb().get_item();
        let found = get
            .table_name(self.table("entries"))
            .key("tenant_shard", self.shard())
            .key("entry_id", s("file"))
            .consistent_read(true)
            .send()
            .await
            .unwrap();
        let version = found.item.unwrap().remove("version").unwrap();
        version.as_n().unwrap().parse().unwrap()
    }

    /// UpdateItem head → new version.
    async fn set_head(&self, version: u64) {
        let update = self.0.cloud().dynamodb().update_item();
        update
            .table_name(self.table("entries"))
            .key("tenant_shard", self.shard())
            .key("entry_id", s("file"))
            .update_expression("SET #version = :version")
            .expression_attribute_names("#version", "version")
            .expression_attribute_values(":version", n(version))
            .send()
            .await
            .unwrap();
    }

    /// What all versions list.
    async fn listed(&self) -> BTreeSet<String> {
        let mut listed = BTreeSet::new();
        for item in self.query("versions").await {
            let Some(AttributeValue::L(chunks)) = item.get("chunks") else {
                panic!("a version without chunks");
            };
            listed.extend(chunks.iter().map(|hash| hash.as_s().unwrap().clone()));
        }
        listed
    }

    async fn query(&self, table: &str) -> Vec<cloud::Item> {
        let query = self.0.cloud().dynamodb().query();
        let found = query
            .table_name(self.table(table))
            .key_condition_expression("tenant_shard = :shard")
            .expression_attribute_values(":shard", self.shard())
            .consistent_read(true)
            .send()
            .await;
        found.unwrap().items.unwrap()
    }

    /// ContentChunk: it exists, the client says.
    async fn put_chunk(&self, piece: &str) {
        let put = self.0.cloud().dynamodb().put_item();
        put.table_name(self.table("chunks"))
            .item("tenant_shard", self.shard())
            .item("hash", s(chunk(piece).hash.to_string()))
            .send()
            .await
            .unwrap();
    }

    async fn has_chunk(&self, piece: &str) -> bool {
        let get = self.0.cloud().dynamodb().get_item();
        let found = get
            .table_name(self.table("chunks"))
            .key("tenant_shard", self.shard())
            .key("hash", s(chunk(piece).hash.to_string()))
            .consistent_read(true)
            .send()
            .await;
        found.unwrap().item.is_some()
    }

    /// Deletes the unreferenced.
    async fn collect(&self) -> usize {
        let listed = self.listed().await;
        let mut gone = 0;
        for item in self.query("chunks").await {
            if listed.contains(item["hash"].as_s().unwrap()) {
                continue;
            }
            let delete = self.0.cloud().dynamodb().delete_item();
            delete
                .table_name(self.table("chunks"))
                .key("tenant_shard", self.shard())
                .key("hash", item["hash"].clone())
                .send()
                .await
                .unwrap();
            gone += 1;
        }
        gone
    }
}

/// Row 25. Two devices have version 1, and each publishes what it made of it: read the head, write the
/// version, update the head.
#[tokio::test]
async fn row_25_two_devices_publish_from_the_same_base_and_one_edit_vanishes() {
    let setup = || async {
        let drive = open().await;
        Literal(&drive).put_version("file#1", &["first"]).await;
        Literal(&drive).set_head(1).await;
        drive
    };
    let publishes = |edit: &'static str| {
        move |drive: Arc<Drive>| async move {
            let literal = Literal(&drive);
            let next = literal.head().await + 1;
            literal.put_version(&format!("file#{next}"), &[edit]).await;
            literal.set_head(next).await;
            "published"
        }
    };
    let broken = Interleave::of(setup)
        .actor("laptop", publishes("of the laptop"))
        .actor("phone", publishes("of the phone"))
        .check(|drive: Arc<Drive>, _| async move {
            let listed = Literal(&drive).listed().await;
            for edit in ["of the laptop", "of the phone"] {
                if !listed.contains(&chunk(edit).hash.to_string()) {
                    return Err(format!("published, and nowhere: the edit {edit}"));
                }
            }
            Ok("both".to_owned())
        })
        .run()
        .await
        .unwrap_err();
    assert!(broken.why.starts_with("published, and nowhere"), "{broken}");
    assert!(broken.explored > 0, "one after the other, both are there");
}

#[tokio::test]
async fn row_25_ours_keeps_the_later_edit_as_a_conflict_copy() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive
        .file(&alice, &EntryId::root(), "a.txt", &["first"])
        .await;
    let laptop = drive.upload(&alice, "laptop", &["of the laptop"]).await;
    let phone = drive.upload(&alice, "phone", &["of the phone"]).await;
    let publish = |session: String| {
        let (sync, alice, target) = (drive.sync.clone(), alice.clone(), edit_of(&file));
        async move { sync.publish(&alice, &session, &target).await.unwrap() }
    };
    let told = (publish(laptop).await, publish(phone).await);
    assert!(
        matches!(told.0, Publication::Published { version: 2, .. }),
        "{told:?}"
    );
    assert!(
        matches!(told.1, Publication::ConflictCopy { .. }),
        "{told:?}"
    );
    let desk = Desk::at(drive, vec![file]);
    for edit in ["of the laptop", "of the phone"] {
        desk.kept(&[edit]).await.unwrap();
    }
    desk.ends_well().await.unwrap();
}

/// So many that their hashes alone are more than an item may have.
fn many() -> UploadRequest {
    let chunks = (0..6_500_u32).map(|at| ChunkRef {
        hash: ChunkHash::of(&at.to_be_bytes()),
        length: 64 * 1024,
    });
    let chunks: Vec<_> = chunks.collect();
    UploadRequest {
        fingerprint: file_sync::domain::fingerprint(&chunks),
        size: 64 * 1024 * chunks.len() as u64,
        chunks,
    }
}

/// Row 26. The manifest as an item: a file of 400 MB has no version.
#[tokio::test]
async fn row_26_a_manifest_in_an_item_ends_at_400_kb() {
    let drive = open().await;
    let chunks = many().chunks.into_iter();
    let hashes = chunks.map(|chunk| s(chunk.hash.to_string()));
    let put = drive.cloud().dynamodb().put_item();
    let refused = put
        .table_name(Literal(&drive).table("versions"))
        .item("tenant_shard", Literal(&drive).shard())
        .item("version_key", s("file#1"))
        .item("chunks", AttributeValue::L(hashes.collect()))
        .send()
        .await
        .unwrap_err();
    let why = format!("{:?}", refused.into_service_error());
    assert!(
        why.contains("Item size has exceeded the maximum allowed size"),
        "{why}"
    );

    // Ours is an object.
    let sync = &drive.sync;
    let started = sync
        .start_upload(&drive.alice(), "laptop", &many())
        .await
        .unwrap();
    assert_eq!(started.missing.len(), many().chunks.len());
    let manifest = drive.object(&started.session.manifest_key).await.unwrap();
    assert_eq!(manifest.len(), 36 * many().chunks.len());
}

/// Row 27. The chunk exists, so it is not uploaded; the collector finds that nothing lists it; then the
/// version lists it.
#[tokio::test]
async fn row_27_the_collector_deletes_a_chunk_between_the_check_and_the_version() {
    let setup = || async {
        let drive = open().await;
        Literal(&drive).put_chunk("chunk").await;
        drive
    };
    let uploads = |drive: Arc<Drive>| async move {
        let literal = Literal(&drive);
        if !literal.has_chunk("chunk").await {
            literal.put_chunk("chunk").await;
        }
        literal.put_version("file#1", &["chunk"]).await;
        "published".to_owned()
    };
    let collects = |drive: Arc<Drive>| async move {
        let gone = Literal(&drive).collect().await;
        format!("{gone} deleted")
    };
    let broken = Interleave::of(setup)
        .actor("uploader", uploads)
        .actor("collector", collects)
        .check(|drive: Arc<Drive>, _| async move {
            match Literal(&drive).has_chunk("chunk").await {
                true => Ok("whole".to_owned()),
                false => Err("published, and its chunk is gone".to_owned()),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.why, "published, and its chunk is gone");
    assert!(broken.explored > 0, "one after the other, it is there");
}

/// Ours, a collector at each moment of an upload that finds its chunk: in `guards.rs` the pins that make
/// the difference are taken away.
#[tokio::test]
async fn row_27_ours_pins_the_chunk_or_uploads_it_again() {
    for collected_after in 0..3 {
        let drive = open().await;
        let alice = drive.alice();
        drive.upload(&alice, "laptop", &["chunk"]).await;
        let desk = Desk::at(drive, Vec::new());
        desk.later(file_sync::domain::SESSION_LASTS);
        let sync = desk.drive.beside();
        let tenant = desk.drive.tenant.clone();
        let mut condemned = 0;
        let mut session = String::new();
        for step in 0..3 {
            if step == collected_after {
                let done = sync.garbage_collect(&tenant, false).await.unwrap();
                condemned = done.condemned.len();
            }
            match step {
                0 => session = desk.drive.upload(&alice, "phone", &["chunk"]).await,
                1 => drop(sync.publish(&alice, &session, &new("a")).await.unwrap()),
                _ => {}
            }
        }
        assert_eq!(condemned, usize::from(collected_after == 0));
        desk.kept(&["chunk"]).await.unwrap();
        desk.ends_well().await.unwrap();
    }
}

/// Row 28. The client says what the hash is, and is believed: whoever has that chunk next does not upload
/// it, and reads what somebody else made of it.
#[tokio::test]
async fn row_28_a_wrong_hash_gives_everybody_else_other_bytes() {
    let drive = open().await;
    let cloud = drive.cloud();
    let hash = chunk("the contract").hash;
    let key = format!("{}/{hash}", drive.tenant);
    let bucket = cloud.names().bucket(tables::BUCKET);
    // An address without a checksum, for the key that everybody reads from.
    let put = cloud.s3().put_object().bucket(&bucket).key(&key);
    let lasting = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
    let address = put.presigned(lasting).await.unwrap();
    let http = cloud.http(reqwest::Client::new());
    let sent = http
        .put(address.uri())
        .body("a forgery")
        .send()
        .await
        .unwrap();
    assert_eq!(sent.status(), 200);
    Literal(&drive).put_chunk("the contract").await;

    // Another user has the true one, and is told that it need not be sent.
    assert!(Literal(&drive).has_chunk("the contract").await);
    let got = drive.object(&key).await.unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), "a forgery");
}

#[tokio::test]
async fn row_28_ours_refuses_the_forgery_and_asks_the_next_one_for_the_chunk() {
    let drive = open().await;
    let (mallory, sync) = (drive.actor("mallory"), &drive.sync);
    let started = sync
        .start_upload(&mallory, "laptop", &request(&["the contract"]))
        .await;
    let session = started.unwrap().session.session_id;
    let hash = chunk("the contract").hash;
    let addresses = sync
        .upload_addresses(&mallory, &session, &[hash])
        .await
        .unwrap();
    let http = drive.cloud().http(reqwest::Client::new());
    let mut put = http.put(&addresses[0].url).body("a forgery");
    for (name, value) in &addresses[0].headers {
        put = put.header(name, value);
    }
    assert!(put.send().await.unwrap().status().is_client_error());
    // The embedded store keeps what it refused. It does not count.
    let told = sync
        .confirm_chunks(&mallory, &session, &[hash])
        .await
        .unwrap();
    assert_ne!(told, [(hash, Confirmed::Present)]);

    let desk = Desk::at(drive, Vec::new());
    let told = desk
        .sends(&["the contract"], &new("contract.txt"))
        .await
        .unwrap();
    assert!(matches!(told, Publication::Published { .. }), "{told:?}");
    desk.ends_well().await.unwrap();
}
