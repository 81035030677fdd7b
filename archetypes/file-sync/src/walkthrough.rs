//! The story: every action of the documents, run for real, with what it costs.

use crate::chunking::{Chunked, Chunker, Sizes};
use crate::commands::COMMANDS;
use crate::domain::{DELETED_KEPT, SESSION_KEPT, SESSION_LASTS};
use crate::tables::{ACTIONS, BUCKET_RESOURCE, MACHINES, TABLES};
use crate::{
    Actor, ChunkHash, ChunkRef, Confirmed, Created, Deletion, EntryId, FileSync, FileSyncError,
    Moved, Permission, Publication, Started, Target, UploadRequest,
};
use anyhow::{Context, Result, bail, ensure};
use aws_sdk_s3::presigning::PresigningConfig;
use cloud::{Backend, Cloud, as_actor};
use reqwest_middleware::ClientWithMiddleware;
use std::net::SocketAddr;
use std::time::Duration;
use walkthrough::{Archetype, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "file-sync",
        title: "File sync: versioned namespace and immutable content",
        question: "How do many devices edit the same files without losing an edit, and send and keep every byte once?",
        tables: TABLES,
        resources: &[BUCKET_RESOURCE],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &COMMANDS,
    }
}

/// An office, for each edit: two chunks are sent, another device looks ten times and fetches once, and one
/// edit in fifty comes too late.
/// A cut comes 64 KiB after the minimum on average ([`Sizes::DEFAULT`]); the chunks of the walk are tiny.
const CHUNK_BYTES: u64 = (256 + 64) << 10;

const WORKLOAD: Workload = Workload {
    unit: "edits",
    mix: &[
        share("dedup existing chunks", 1.0),
        share("upload missing chunk", 1.0).storing(CHUNK_BYTES),
        share("advance file head", 0.98).when("from the base it saw"),
        share("advance file head", 0.02).when("a conflict copy"),
        share("create new file version", 0.1),
        share("rename or move file", 0.05),
        share("sync file", 10.0).when("from a cursor"),
        share("download file", 1.0).when("one's own"),
        share("download file", 0.2).when("shared"),
        share("view shared files", 0.05),
        share("delete entry", 0.03),
        share("restore version", 0.005),
    ],
    skew: &[
        Skew {
            resource: "namespaces",
            action: "",
            hottest: 0.01,
            why: "one user in a hundred makes the changes of the moment",
        },
        Skew {
            resource: "changes",
            action: "",
            hottest: 0.01,
            why: "that user's feed",
        },
        Skew {
            resource: "chunks",
            action: "",
            hottest: 0.01,
            why: "a tenant is spread over sixteen keys",
        },
    ],
    kept_days: 365,
};

/// What addresses are called here: the port of a store on this machine differs in every run.
const STORE: &str = "store.test";

/// The device's way to the store.
async fn client(cloud: &Cloud) -> Result<(FileSync, ClientWithMiddleware)> {
    let sync = FileSync::new(cloud.clone());
    if cloud.backend() != Backend::Embedded {
        return Ok((sync, cloud.http(reqwest::Client::new())));
    }
    let minute = PresigningConfig::expires_in(Duration::from_secs(60))?;
    let get = cloud.s3().get_object().bucket("any").key("any");
    let url: url::Url = get.presigned(minute).await?.uri().parse()?;
    let port = url.port().context("the store has a port")?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let http = reqwest::Client::builder().resolve(STORE, address).build()?;
    Ok((sync.with_addresses_on(STORE), cloud.http(http)))
}

/// A text that is the same in every run, of some chunks.
fn report() -> Vec<u8> {
    let line = |number: u32| {
        let word = number.wrapping_mul(2_654_435_761) >> 8;
        format!("{number:03} the measurement of that day was {word}\n")
    };
    (0..24).map(line).collect::<String>().into_bytes()
}

fn cut(bytes: &[u8]) -> Result<Chunked> {
    let chunker = Chunker {
        threads: 1,
        ..Chunker::new(Sizes::TINY)
    };
    Ok(chunker.chunk(bytes)?)
}

fn bytes_of<'a>(content: &'a [u8], file: &Chunked, hash: &ChunkHash) -> Result<&'a [u8]> {
    let mut placed = file.placed();
    let found = placed.find(|(_, chunk)| chunk.hash == *hash);
    let (at, chunk) = found.context("it is a chunk of this file")?;
    Ok(&content[at as usize..at as usize + chunk.length as usize])
}

/// One device of one user.
struct Device {
    sync: FileSync,
    http: ClientWithMiddleware,
    actor: Actor,
    name: &'static str,
}

impl Device {
    async fn start(&self, file: &Chunked) -> Result<Started> {
        let request = UploadRequest::from(file);
        let start = self.sync.start_upload(&self.actor, self.name, &request);
        Ok(as_actor(self.name, Box::pin(start)).await?)
    }

    /// Uploads these chunks one after the other.
    async fn upload(
        &self,
        session: &str,
        content: &[u8],
        file: &Chunked,
        chunks: &[ChunkRef],
    ) -> Result<()> {
        let hashes: Vec<_> = chunks.iter().map(|chunk| chunk.hash).collect();
        let work = async {
            let addresses = self.sync.upload_addresses(&self.actor, session, &hashes);
            for address in addresses.await? {
                let bytes = bytes_of(content, file, &address.hash)?.to_vec();
                let mut put = self.http.put(&address.url).body(bytes);
                for (name, value) in &address.headers {
                    put = put.header(name, value);
                }
                let answer = put.send().await?;
                ensure!(answer.status().is_success(), "S3 said {}", answer.status());
            }
            for hash in &hashes {
                let confirmed = self
                    .sync
                    .confirm_chunks(&self.actor, session, &[*hash])
                    .await?;
                ensure!(
                    confirmed == [(*hash, Confirmed::Present)],
                    "it is not there: {confirmed:?}"
                );
            }
            Ok(())
        };
        as_actor(self.name, Box::pin(work)).await
    }

    async fn publish(&self, session: &str, target: &Target) -> Result<Publication> {
        let publish = self.sync.publish(&self.actor, session, target);
        Ok(as_actor(self.name, Box::pin(publish)).await?)
    }

    async fn download(&self, entry: &EntryId) -> Result<Vec<u8>> {
        let work = async {
            let plan = self.sync.download(&self.actor, entry, None).await?;
            let hashes: Vec<_> = plan.manifest.distinct();
            let hashes: Vec<_> = hashes.iter().map(|chunk| chunk.hash).collect();
            let version = plan.version.version;
            let addresses = self
                .sync
                .download_addresses(&self.actor, entry, version, &hashes);
            let mut got = std::collections::HashMap::new();
            for address in addresses.await? {
                let bytes = self.http.get(&address.url).send().await?.bytes().await?;
                ensure!(ChunkHash::of(&bytes) == address.hash, "other bytes");
                got.insert(address.hash, bytes);
            }
            let mut whole = Vec::new();
            for chunk in &plan.manifest.chunks {
                whole.extend(got.get(&chunk.hash).context("fetched")?);
            }
            Ok(whole)
        };
        as_actor(self.name, Box::pin(work)).await
    }
}

/// Who and what the story is about, as far as it has come.
struct Cast {
    cloud: Cloud,
    sync: FileSync,
    laptop: Device,
    phone: Device,
    tablet: Device,
    root: EntryId,
    content: Vec<u8>,
    first: Chunked,
    edited: Vec<u8>,
    papers: EntryId,
    id: EntryId,
    copy: EntryId,
}

const TENANT: &str = "acme";

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    let (sync, http) = client(&cloud).await?;
    let device = |user: &str, name: &'static str| Device {
        sync: sync.clone(),
        http: http.clone(),
        actor: Actor::new(TENANT, user),
        name,
    };
    let content = report();
    let mut cast = Cast {
        laptop: device("alice", "laptop"),
        phone: device("alice", "phone"),
        tablet: device("bob", "tablet"),
        root: EntryId::root(),
        first: cut(&content)?,
        edited: [b"Draft\n".as_slice(), &content].concat(),
        content,
        papers: EntryId::root(),
        id: EntryId::root(),
        copy: EntryId::root(),
        cloud,
        sync,
    };
    // Each part on the heap: together they are more than a thread's stack takes.
    Box::pin(a_folder(story, &mut cast)).await?;
    Box::pin(an_upload(story, &mut cast)).await?;
    Box::pin(the_other_device(story, &mut cast)).await?;
    Box::pin(two_edits(story, &mut cast)).await?;
    Box::pin(names(story, &mut cast)).await?;
    Box::pin(somebody_else(story, &mut cast)).await?;
    Box::pin(deleted_and_restored(story, &mut cast)).await?;
    Box::pin(what_nobody_needs(story, &mut cast)).await?;
    Ok(())
}

async fn a_folder(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "A folder, and a file for it",
        "Alice has a laptop and a phone. What things are called and where they are is one thing, the \
         namespace; what is in them is another, immutable chunks. The first changes all the time, the second \
         never.",
    );
    let created = story
        .step(
            "create file entry",
            "A folder. Its name is an item of its own, and its key is what must be unique; the line of the \
             feed goes with it.",
            async { Ok(cast.sync.create_folder(&cast.laptop.actor, cast.laptop.name, &cast.root, "Papers").await?) },
        )
        .await?;
    let Created::Folder(papers) = created else {
        bail!("the folder is there already");
    };
    cast.papers = papers.entry_id;
    let first = story
        .step(
            "chunk file",
            "Where to cut is decided by the bytes themselves. Chunks are some 256 bytes here, and some 256 KiB \
             in life.",
            async { cut(&cast.content) },
        )
        .await?;
    story.check(
        first == cast.first && first.chunks.len() >= 3,
        "the file is cut into several chunks, each with its SHA-256",
    )?;
    let again = story
        .step(
            "fingerprint file",
            "The hash over the list of chunks: the same content has the same fingerprint, on every device.",
            async { cut(&cast.content) },
        )
        .await?;
    story.check(
        again.fingerprint == cast.first.fingerprint,
        "cut again, it is the same",
    )?;
    Ok(())
}

async fn an_upload(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "An upload that is interrupted",
        "The session remembers what is to be uploaded. Each chunk goes straight to S3, by an address that \
         carries its SHA-256; the service looks at the bytes before the chunk counts.",
    );
    let started = story
        .step(
            "start upload session",
            "Nobody has begun to upload this, and none of its chunks is there.",
            cast.laptop.start(&cast.first),
        )
        .await?;
    let session = started.session.session_id.clone();
    story.check(
        started.missing.len() == cast.first.chunks.len(),
        "all of it is missing",
    )?;
    story
        .step(
            "upload missing chunk",
            "The first chunk. The client wrote to a staging key; the bytes that were hashed are written to the \
             chunk's own key, for which no client ever has an address.",
            cast.laptop.upload(&session, &cast.content, &cast.first, &started.missing[..1]),
        )
        .await?;
    story.say("The train goes into a tunnel. Later the laptop has the file, and nothing else.");
    let resumed = story
        .step(
            "resume interrupted upload",
            "The fingerprint finds the session, and the session says what is still missing.",
            cast.laptop.start(&cast.first),
        )
        .await?;
    story.check(
        resumed.resumed
            && resumed.session.session_id == session
            && resumed.missing == started.missing[1..],
        "it is the same upload, and one chunk need not be sent again",
    )?;
    story
        .step(
            "upload missing chunk",
            "The rest.",
            cast.laptop
                .upload(&session, &cast.content, &cast.first, &resumed.missing),
        )
        .await?;
    let target = Target::New {
        parent: cast.papers.clone(),
        name: "Report.txt".into(),
    };
    let published = story
        .step(
            "create new file version",
            "All chunks are there and pinned by this session. Version, entry, name, session and line of the \
             feed are one transaction: nobody ever sees a file without its content.",
            cast.laptop.publish(&session, &target),
        )
        .await?;
    let Publication::Published { entry: file, .. } = published.clone() else {
        bail!("it was not published: {published:?}");
    };
    cast.id = file.entry_id;
    story.check(
        cast.laptop.publish(&session, &target).await? == published,
        "published again, because the answer was lost, it is the same publication",
    )?;
    Ok(())
}

async fn the_other_device(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "The other device",
        "The phone asks what has changed since it last looked, from the number of the last change it has \
         applied.",
    );
    let page = story
        .step("sync file", "It has never looked.", async {
            Ok(cast
                .sync
                .changes(&cast.phone.actor, cast.phone.name, 0)
                .await?)
        })
        .await?;
    story.check(
        page.cursor == 2 && page.changes[1].entry.name == "Report.txt",
        "the second change is the file",
    )?;
    let got = story
        .step(
            "download file",
            "From entry to head, from head to version, from version to manifest; then straight from S3.",
            cast.phone.download(&cast.id),
        )
        .await?;
    story.check(got == cast.content, "it reassembles byte for byte")?;
    let page = story
        .step(
            "sync file",
            "It has applied both. The cursor is kept here as well, so the service knows who is behind.",
            async { Ok(cast.sync.changes(&cast.phone.actor, cast.phone.name, page.cursor).await?) },
        )
        .await?;
    story.check(page.changes.is_empty(), "there is nothing new")?;
    Ok(())
}

async fn two_edits(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "A small edit, and a late one",
        "The phone inserts a word at the beginning. Laptop and phone both began with version 1, and neither \
         knows of the other.",
    );
    let second = cut(&cast.edited)?;
    let started = story
        .step(
            "dedup existing chunks",
            "What is there is pinned by this session, if it is still there: from here on the collector leaves \
             it alone.",
            cast.phone.start(&second),
        )
        .await?;
    story.check(
        started.missing.len() == 1 && second.chunks.len() == cast.first.chunks.len(),
        "one chunk is new; the cuts after it are where they were",
    )?;
    cast.phone
        .upload(
            &started.session.session_id,
            &cast.edited,
            &second,
            &started.missing,
        )
        .await?;
    let annotated = [cast.content.as_slice(), b"Seen, A.\n"].concat();
    let third = cut(&annotated)?;
    let late = story
        .step(
            "build chunk manifest",
            "The laptop appended a line. The list of chunks is an object of its own: as an item it would end \
             at 400 KB.",
            cast.laptop.start(&third),
        )
        .await?;
    cast.laptop
        .upload(&late.session.session_id, &annotated, &third, &late.missing)
        .await?;
    let edit = Target::Existing {
        entry: cast.id.clone(),
        base_version: 1,
    };
    let published = story
        .step(
            "advance file head",
            "The phone is first. The head was version 1, as the edit says.",
            cast.phone.publish(&started.session.session_id, &edit),
        )
        .await?;
    story.check(
        matches!(published, Publication::Published { version: 2, .. }),
        "the head is version 2",
    )?;
    let published = story
        .step(
            "advance file head",
            "The laptop's edit began with version 1 as well. The head has moved on, so it becomes a file of \
             its own, beside the other.",
            cast.laptop.publish(&late.session.session_id, &edit),
        )
        .await?;
    let Publication::ConflictCopy { entry: copy, .. } = published else {
        bail!("it is no conflict copy: {published:?}");
    };
    story.check(
        copy.name == "Report (conflicted copy of laptop).txt",
        "both edits are there",
    )?;
    cast.copy = copy.entry_id;
    Ok(())
}

async fn names(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "Names",
        "Renaming and moving touch neither versions nor chunks.",
    );
    let moved = story
        .step(
            "rename or move file",
            "A better name for the copy.",
            async {
                let name = "Report, annotated.txt";
                let work = cast.sync.rename_or_move(
                    &cast.laptop.actor,
                    "laptop",
                    &cast.copy,
                    &cast.papers,
                    name,
                );
                Ok(work.await?)
            },
        )
        .await?;
    story.check(matches!(moved, Moved::Moved(_)), "it has it")?;
    let taken = cast
        .sync
        .rename_or_move(
            &cast.laptop.actor,
            "laptop",
            &cast.copy,
            &cast.papers,
            "REPORT.TXT",
        )
        .await?;
    story.check(
        matches!(taken, Moved::NameTaken(_)),
        "'REPORT.TXT' is refused: on half of all devices it is the same file as 'Report.txt'",
    )?;
    let moved = story
        .step("rename or move file", "And up to the top.", async {
            let work = cast.sync.rename_or_move(
                &cast.laptop.actor,
                "laptop",
                &cast.copy,
                &cast.root,
                "Annotated.txt",
            );
            Ok(work.await?)
        })
        .await?;
    story.check(
        matches!(moved, Moved::Moved(_)),
        "the folders' counts went with it",
    )?;
    Ok(())
}

async fn somebody_else(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "Somebody else",
        "Bob works for the same company. Without a share he is told the same about what is Alice's as about \
         what does not exist.",
    );
    let nothing = cast.sync.view_entry(&cast.tablet.actor, &cast.id).await;
    story.check(
        matches!(nothing, Err(FileSyncError::NotFound(_))),
        "there is nothing for Bob",
    )?;
    story
        .step(
            "share file",
            "The folder, for reading: with all that is in it.",
            async {
                let share =
                    cast.sync
                        .share(&cast.laptop.actor, &cast.papers, "bob", Permission::Read);
                Ok(share.await?)
            },
        )
        .await?;
    let shared = story
        .step(
            "view shared files",
            "The index says where to look; the shares and entries themselves are read.",
            async { Ok(cast.sync.shared_with_me(&cast.tablet.actor).await?) },
        )
        .await?;
    story.check(
        shared.len() == 1 && shared[0].1.name == "Papers",
        "Bob sees the folder",
    )?;
    let got = story
        .step(
            "download file",
            "The way up from the file to the share is walked, and is good only if nothing was moved meanwhile.",
            cast.tablet.download(&cast.id),
        )
        .await?;
    story.check(got == cast.edited, "Bob has the current version")?;
    story
        .step("share file", "Taken back: one delete.", async {
            Ok(cast
                .sync
                .unshare(&cast.laptop.actor, &cast.papers, "bob")
                .await?)
        })
        .await?;
    story.check(
        cast.tablet.download(&cast.id).await.is_err(),
        "from then on there is nothing for Bob again",
    )?;
    Ok(())
}

async fn deleted_and_restored(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "Deleted, and restored",
        "A deletion leaves a tombstone: the name is free, the versions are there.",
    );
    let deleted = story
        .step(
            "delete entry",
            "The phone says which version it has seen; an edit it does not know of would not be deleted with \
             it.",
            async {
                let delete = cast.sync.delete_entry(&cast.phone.actor, "phone", &cast.id, Some(2));
                Ok(delete.await?)
            },
        )
        .await?;
    story.check(
        matches!(deleted, Deletion::Deleted(_)),
        "it is gone from the folder",
    )?;
    let restored = story
        .step(
            "restore version",
            "The first version again, as version 3: nothing is undone.",
            async {
                Ok(cast
                    .sync
                    .restore_version(&cast.phone.actor, "phone", &cast.id, 1)
                    .await?)
            },
        )
        .await?;
    story.check(
        restored.version == 3 && restored.fingerprint == Some(cast.first.fingerprint),
        "it is back, with its first content",
    )?;
    Ok(())
}

async fn what_nobody_needs(story: &mut Story, cast: &mut Cast) -> Result<()> {
    story.section(
        "What nobody needs",
        "An upload was begun and forgotten, and a file was deleted long ago. The collector reads which \
         sessions have ended, then what the versions reach, then the chunks, in that order.",
    );
    let forgotten = [b"Never published\n".as_slice(), &cast.content].concat();
    let fourth = cut(&forgotten)?;
    let started = cast.phone.start(&fourth).await?;
    cast.phone
        .upload(
            &started.session.session_id,
            &forgotten,
            &fourth,
            &started.missing,
        )
        .await?;
    let deleted = cast
        .sync
        .delete_entry(&cast.laptop.actor, "laptop", &cast.copy, None)
        .await?;
    ensure!(matches!(deleted, Deletion::Deleted(_)), "not deleted");
    let early = cast.sync.garbage_collect(TENANT, true).await?;
    story.check(
        early.condemned.is_empty() && early.pinned == 1,
        "an open upload holds its chunk, a tombstone its versions: nothing goes yet",
    )?;
    let month = DELETED_KEPT.max(SESSION_LASTS + SESSION_KEPT);
    cast.cloud
        .clock()
        .advance(Duration::from_millis(month as u64));
    story.say("Thirty days later.");
    let plan = story
        .step(
            "garbage collect orphaned chunks",
            "A dry run first: the same reads, and nothing is written.",
            async { Ok(cast.sync.garbage_collect(TENANT, true).await?) },
        )
        .await?;
    let done = story
        .step(
            "garbage collect orphaned chunks",
            "For real. A chunk's item goes only if its pins are still those of ended sessions, in one \
             transaction with a line that says which blob to delete.",
            async { Ok(cast.sync.garbage_collect(TENANT, false).await?) },
        )
        .await?;
    story.check(
        plan.condemned == done.condemned && done.condemned.len() == 2 && done.purged.len() == 1,
        "what the dry run said: the forgotten chunk, and the one that only the deleted copy had",
    )?;
    story.check(
        cast.phone.download(&cast.id).await? == cast.content,
        "and everything that can still be reached can be read",
    )?;
    Ok(())
}
