//! A document on two nodes, in the east and in the west, the actors that meet there, and the invariants that every
//! end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use chaos::{Interleave, World};
use cloud::Cloud;
use doc_editor::domain::{Canon, Entry};
use doc_editor::ot::Operation;
use doc_editor::{Compaction, DocumentService, Edit, EditOutcome, NewDocument, Settings, Version};
use std::collections::HashSet;

/// Snapshots and pruning come early, so that a few edits meet them.
pub const SETTINGS: Settings = Settings {
    snapshot_every: 4,
    retain: 2,
    inline_bytes: 200,
    held: 8,
};

/// A document with this text, and two nodes that have it open.
pub struct Desk {
    pub east: DocumentService,
    pub west: DocumentService,
    pub id: String,
}

impl World for Desk {
    fn cloud(&self) -> &Cloud {
        self.east.cloud()
    }
}

pub const TEXT: &str = "one two";

pub async fn desk() -> Desk {
    let desk = cold_desk().await;
    desk.east.load_document(&desk.id).await.unwrap();
    desk.west.load_document(&desk.id).await.unwrap();
    desk
}

/// Neither node has it open.
pub async fn cold_desk() -> Desk {
    let cloud = cloud::connect_for_tests().await.unwrap();
    doc_editor::archetype().create(&cloud).await.unwrap();
    let id = cloud.ids().next("doc");
    let east = DocumentService::with(cloud.clone(), SETTINGS);
    east.create_document(&new(&id)).await.unwrap();
    Desk {
        west: DocumentService::with(cloud.clone(), SETTINGS),
        east: DocumentService::with(cloud, SETTINGS),
        id,
    }
}

pub fn new(id: &str) -> NewDocument {
    NewDocument {
        document_id: id.into(),
        title: "Notes".into(),
        text: TEXT.into(),
    }
}

/// Inserts at a place of a text of that length.
pub fn insert(at: usize, text: &str, length: usize) -> Operation {
    Operation::new().retain(at).insert(text).retain(length - at)
}

impl Desk {
    /// An edit on the first version: `text` at the beginning.
    pub fn edit(&self, client: &str, sequence: u64, text: &str) -> Edit {
        self.edit_on(client, sequence, 0, insert(0, text, TEXT.len()))
    }

    pub fn edit_on(
        &self,
        client: &str,
        sequence: u64,
        base: Version,
        operation: Operation,
    ) -> Edit {
        Edit {
            document_id: self.id.clone(),
            client_id: client.into(),
            sequence,
            base,
            operation,
            undoes: None,
        }
    }

    /// Types at the end of the newest version, on a node.
    pub async fn types(
        &self,
        node: &DocumentService,
        client: &str,
        sequence: u64,
        text: &str,
    ) -> Version {
        let now = node.load_document(&self.id).await.unwrap();
        let length = now.text.chars().count();
        let edit = self.edit_on(client, sequence, now.version, insert(length, text, length));
        node.submit_edit(&edit).await.unwrap().version().unwrap()
    }

    /// So many edits of one letter each.
    pub async fn typed(self, edits: u64) -> Self {
        for sequence in 1..=edits {
            self.types(&self.east, "typist", sequence, "x").await;
        }
        self.west.load_document(&self.id).await.unwrap();
        self
    }

    /// A node that knows nothing, and that no plan is in charge of.
    pub fn fresh(&self) -> DocumentService {
        DocumentService::with(self.east.cloud().beside_tap(), SETTINGS)
    }

    /// Everything that must hold, however the story went. Gives the whole history.
    pub async fn invariants(&self) -> Result<Vec<Entry>, String> {
        let node = self.fresh();
        let document = node.read_document(&self.id).await.unwrap().unwrap();
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };

        // Versions have no gap, in log and archive together.
        let all = node.entries_between(&self.id, 0, document.version).await;
        let all = all.map_err(|error| format!("the history cannot be read: {error}"))?;
        let versions: Vec<_> = all.iter().map(|entry| entry.version).collect();
        let expected: Vec<_> = (1..=document.version).collect();
        ensure(
            versions == expected,
            format!("the versions are {versions:?}, the document says {expected:?}"),
        )?;
        let log = node
            .read_log(&self.id, document.base_version, None)
            .await
            .unwrap();
        let kept: Vec<_> = log.iter().map(|entry| entry.version).collect();
        let expected: Vec<_> = (document.base_version + 1..=document.version).collect();
        ensure(
            kept == expected,
            format!("the log is {kept:?}, and should be {expected:?}"),
        )?;
        let keys: HashSet<_> = all.iter().map(|e| (&e.client_id, e.sequence)).collect();
        ensure(
            keys.len() == all.len(),
            "an edit is in the order twice".into(),
        )?;
        for entry in &all {
            let edit = Edit {
                sequence: entry.sequence,
                ..self.edit(&entry.client_id, 1, "")
            };
            let remembered = node.version_of(&edit).await.unwrap();
            ensure(
                remembered == Some(entry.version),
                format!(
                    "{} {} is version {}, remembered as {remembered:?}",
                    entry.client_id, entry.sequence, entry.version
                ),
            )?;
        }

        // Every snapshot is the replay from zero, and so is what a node loads.
        let snapshots = node.snapshots_from(&self.id, 0).await.unwrap();
        let first = node.snapshot_text(&snapshots[0]).await.unwrap();
        let mut canon = Canon::new(0, &first, 0);
        let mut next = snapshots.iter().peekable();
        for entry in [None].into_iter().chain(all.iter().map(Some)) {
            if let Some(entry) = entry {
                canon
                    .advance(entry.clone())
                    .map_err(|_| format!("version {} does not fit", entry.version))?;
            }
            if let Some(snapshot) = next.next_if(|s| s.version().unwrap() == canon.version()) {
                let text = node.snapshot_text(snapshot).await.unwrap();
                ensure(
                    text == canon.text().to_string(),
                    format!("snapshot {} is {text:?}", canon.version()),
                )?;
            }
        }
        ensure(
            next.next().is_none(),
            "a snapshot of a version that is not there".into(),
        )?;
        ensure(
            snapshots.last().unwrap().version().unwrap() == document.snapshot_version,
            format!(
                "the pointer is {}, not the newest snapshot",
                document.snapshot_version
            ),
        )?;
        let loaded = node.load_document(&self.id).await;
        let loaded = loaded.map_err(|error| error.to_string())?;
        ensure(
            loaded.text == canon.text().to_string() && loaded.version == document.version,
            format!("loaded {loaded:?}, replayed {}", canon.text()),
        )?;
        Ok(all)
    }

    pub async fn text(&self) -> String {
        self.fresh().load_document(&self.id).await.unwrap().text
    }
}

/// What an actor was told, whatever it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Edit(EditOutcome),
    Compacted(Compaction),
    Loaded(Version, String),
}

/// After every order the invariants must hold, and whoever was told a version must have it.
pub fn checked(actors: Interleave<Desk, Told>) -> Interleave<Desk, Told> {
    actors.check(|desk, told| async move {
        let all = desk.invariants().await?;
        let mut words = Vec::new();
        for (who, told) in &told {
            let word = match told {
                Told::Edit(outcome) => {
                    let version = outcome.version().ok_or(format!("{who}: {outcome:?}"))?;
                    let client = who.trim_end_matches("-again");
                    if !all
                        .iter()
                        .any(|e| e.client_id == client && e.version == version)
                    {
                        return Err(format!(
                            "{who} was told version {version}, which is another's"
                        ));
                    }
                    format!("{version}")
                }
                Told::Compacted(Compaction::Made { version, .. }) => format!("made {version}"),
                Told::Compacted(other) => format!("{other:?}"),
                Told::Loaded(version, text) => {
                    let then = desk.fresh().text_at(&desk.id, *version).await.unwrap();
                    if then != *text {
                        return Err(format!(
                            "{who} loaded {text:?} as version {version}, which is {then:?}"
                        ));
                    }
                    format!("saw {version}")
                }
            };
            words.push(format!("{who} {word}"));
        }
        Ok(words.join(", "))
    })
}

/// Adds one who sends an edit to the node in the east.
pub fn east(actors: Interleave<Desk, Told>, name: &'static str) -> Interleave<Desk, Told> {
    actors.actor(name, move |desk| async move {
        let edit = desk.edit(name.trim_end_matches("-again"), 1, "a");
        Told::Edit(desk.east.submit_edit(&edit).await.unwrap())
    })
}

/// The same in the west.
pub fn west(actors: Interleave<Desk, Told>, name: &'static str) -> Interleave<Desk, Told> {
    actors.actor(name, move |desk| async move {
        let edit = desk.edit(name.trim_end_matches("-again"), 1, "a");
        Told::Edit(desk.west.submit_edit(&edit).await.unwrap())
    })
}

/// Adds one who compacts, on a node of its own.
pub fn compactor(actors: Interleave<Desk, Told>, name: &'static str) -> Interleave<Desk, Told> {
    actors.actor(name, |desk| async move {
        let node = DocumentService::with(desk.east.cloud().clone(), SETTINGS);
        Told::Compacted(node.compact(&desk.id).await.unwrap())
    })
}

/// Adds one who opens the document on a node of its own.
pub fn reader(actors: Interleave<Desk, Told>, name: &'static str) -> Interleave<Desk, Told> {
    actors.actor(name, |desk| async move {
        let node = DocumentService::with(desk.east.cloud().clone(), SETTINGS);
        let loaded = node.load_document(&desk.id).await.unwrap();
        Told::Loaded(loaded.version, loaded.text)
    })
}
