//! The story: every action of the documents, run for real, with what it costs.

use crate::api::COMMANDS;
use crate::broadcast::News;
use crate::client::Replica;
use crate::domain::Entry;
use crate::objects::BUCKET_RESOURCE;
use crate::ot::Operation;
use crate::presence::Person;
use crate::protocol::{FromClient, FromServer};
use crate::tables::{ACTIONS, MACHINES, TABLES};
use crate::{Compaction, DocumentService, Edit, EditOutcome, NewDocument, Settings};
use anyhow::{Context, Result, bail};
use walkthrough::{Archetype, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "doc-editor",
        title: "Doc editor: shared mutable subject",
        question: "How do two people type in one line?",
        tables: TABLES,
        resources: &[BUCKET_RESOURCE],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: COMMANDS,
    }
}

/// For each edit: one in fifty is overtaken by another node, one in two hundred makes a snapshot; documents are
/// opened now and then.
const WORKLOAD: Workload = Workload {
    unit: "edits",
    mix: &[
        share("submit edit", 0.98),
        share("advance canonical version", 0.02).when("another node was faster"),
        share("load document", 0.05).when("short text"),
        share("create document", 0.001),
        share("snapshot / compact", 0.005).when("short text"),
        share("view history", 0.001),
    ],
    skew: &[
        Skew {
            resource: "documents",
            action: "",
            hottest: 0.05,
            why: "a meeting's notes take a twentieth of all edits",
        },
        Skew {
            resource: "operations",
            action: "",
            hottest: 0.05,
            why: "its log is one item collection",
        },
    ],
    kept_days: 365,
};

/// A snapshot after eight operations, so that the story has some; the last four operations stay.
const SETTINGS: Settings = Settings {
    snapshot_every: 8,
    retain: 4,
    inline_bytes: 1_000,
    held: 4,
};

/// One window of the story, and the node it is connected to.
struct Window {
    replica: Replica,
    node: DocumentService,
    client: &'static str,
}

impl Window {
    async fn open(node: &DocumentService, document: &str, client: &'static str) -> Result<Self> {
        let mut replica = Replica::new(document, client, client);
        replica.connected();
        replica.take_outgoing().context("it joins")?;
        let loaded = node.load_document(document).await?;
        replica.receive(FromServer::Welcome {
            version: loaded.version,
            text: loaded.text,
        });
        Ok(Self {
            replica,
            node: node.clone(),
            client,
        })
    }

    /// Types at a place, and gives what goes to the server, if nothing is under way.
    fn types(&mut self, at: usize, text: &str) -> Result<()> {
        let rest = self.replica.len() - at;
        let typed = Operation::new().retain(at).insert(text).retain(rest);
        Ok(self.replica.local_edit(&typed)?)
    }

    /// The edit that leaves.
    fn leaving(&mut self, document: &str) -> Result<Edit> {
        let Some(FromClient::Edit {
            base,
            sequence,
            operation,
        }) = self.replica.take_outgoing()
        else {
            bail!("{} has nothing to send", self.client);
        };
        Ok(Edit {
            document_id: document.to_owned(),
            client_id: self.client.to_owned(),
            sequence,
            base,
            operation,
            undoes: None,
        })
    }

    fn receives(&mut self, entry: &Entry) {
        self.replica.receive(FromServer::Operation(entry.clone()));
    }

    async fn sends(&mut self, document: &str) -> Result<Entry> {
        let edit = self.leaving(document)?;
        match self.node.submit_edit(&edit).await? {
            EditOutcome::Applied(entry) => {
                // From the node's memory: what came before it, and itself.
                let behind = self.replica.version();
                let entries = self.node.entries_after(document, behind).await?;
                for entry in entries.unwrap_or_default() {
                    self.receives(&entry);
                }
                Ok(entry)
            }
            other => bail!("{} was told {other:?}", self.client),
        }
    }
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    // Two nodes. Each holds the documents its windows have open; neither owns one.
    let east = DocumentService::with(cloud.clone(), SETTINGS);
    let west = DocumentService::with(cloud.clone(), SETTINGS);
    let id = cloud.ids().next("doc");
    let id = id.as_str();

    story.section(
        "A document",
        "A document is a text and the one order of operations that led to it. The item that everybody \
         writes is small: a title, a version, where the newest snapshot is. The text is elsewhere, since \
         a write is charged by the size of the whole item.",
    );
    let new = NewDocument {
        document_id: id.to_owned(),
        title: "Shopping list".into(),
        text: "bread".into(),
    };
    let made = story
        .step("create document", "The document and its first snapshot, together. Should the answer be lost, the same call finds its own document.", async {
            Ok(east.create_document(&new).await?)
        })
        .await?;
    story.check(made.version == 0, "version 0 is the text it began with")?;
    let loaded = story
        .step("load document", "Ann opens it, on the node in the east: where it stands, the newest snapshot, what came since.", async {
            Ok(east.load_document(id).await?)
        })
        .await?;
    story.check(loaded.text == "bread", "the text is \"bread\"")?;
    let mut ann = Window::open(&east, id, "ann").await?;
    let mut ben = Window::open(&west, id, "ben").await?;

    story.section(
        "An edit",
        "Ann types. Her window shows it at once, and sends what she typed, the version she typed it on, and her \
         own number of it. The server gives it the next version. Version, operation and the remembered edit are \
         one transaction: no version without its operation, no operation that could be made twice.",
    );
    ann.types(5, " and milk")?;
    let first = story
        .step("submit edit", "The condition says: still the version that I decided on. That is the order of edits and the fence against a second owner in one.", async {
            ann.sends(id).await
        })
        .await?;
    story.check(
        first.version == 1 && ann.replica.is_settled(),
        "Ann's edit is version 1, and acknowledged by its place in the order",
    )?;
    let held = story
        .step("update current document state", "The node applied it to the text it holds. Nothing is written for that: snapshot and log already say it.", async {
            Ok(east.entries_after(id, 0).await?)
        })
        .await?;
    story.check(
        held.as_ref()
            .is_some_and(|entries| entries.as_slice() == [first.clone()]),
        "who follows the document on this node is served from memory",
    )?;
    story
        .step("broadcast remote change", "The other nodes are told over Redis, each document on a channel of its own. It is a hint: nobody decides on it.", async {
            Ok(east.broadcast("node-east", id, &News::Operation(first.clone())).await?)
        })
        .await?;
    story
        .step("broadcast remote change", "The node in the west hears it. It is the next version, so it is taken in without a read.", async {
            Ok(west.hear(id, first.clone()).await?)
        })
        .await?;

    story.section(
        "Two type in one line",
        "Ben has not seen that yet. He writes at the same place, on version 0. Both texts will be kept, and both \
         windows will show them in the same order.",
    );
    ben.types(5, ", butter")?;
    let under_way = ben.leaving(id)?;
    story
        .step("rebase local pending edits", "Ann's edit reaches Ben's window while his own is under way. His is rewritten to come after hers, hers to be shown in a text that has his.", async {
            ben.receives(&first);
            Ok(())
        })
        .await?;
    story.check(
        ben.replica.text() == "bread and milk, butter",
        "Ben sees \"bread and milk, butter\": whoever is first in the order stands first",
    )?;
    let outcome = story
        .step("transform concurrent edit", "His edit arrives as it was sent, on version 0. The server rewrites it the same way, and gives it version 2.", async {
            Ok(west.submit_edit(&under_way).await?)
        })
        .await?;
    let EditOutcome::Applied(second) = outcome else {
        bail!("Ben was told {outcome:?}");
    };
    ben.receives(&second);
    story.check(
        second.version == 2 && second.operation.base_len() == 14,
        "version 2, made for the text that has Ann's edit",
    )?;

    story.section(
        "Two nodes at once",
        "The west has advanced the document, and its message to the east was lost. The node in the east still \
         believes in version 1. It is not asked to be right: its write says what it believes, and the store says no.",
    );
    ann.types(0, "rye ")?;
    let third = story
        .step("advance canonical version", "Refused: the version is 2. The node reads what it missed, rewrites Ann's edit against that too, and writes again.", async {
            ann.sends(id).await
        })
        .await?;
    story.check(
        third.version == 3 && ann.replica.text() == "rye bread and milk, butter",
        "Ann's edit is version 3, after Ben's: nothing was lost, nobody waited",
    )?;
    story
        .step("broadcast remote change", "The west hears of version 3, the one after its own. Had it missed one, it would read the log: versions have no gap, so a gap is noticed.", async {
            Ok(west.hear(id, third.clone()).await?)
        })
        .await?;
    ben.receives(&third);
    ann.types(26, ".")?;
    let fourth = ann.sends(id).await?;
    ben.types(0, "- ")?;
    let fifth = story
        .step("persist canonical operation", "Ben types on version 3 while Ann's full stop became version 4 in the east. The west writes under version 5 what it rewrote against 4.", async {
            west.hear(id, fourth.clone()).await?;
            ben.sends(id).await
        })
        .await?;
    ann.receives(&fifth);
    story.check(
        ann.replica.text() == ben.replica.text()
            && ann.replica.text() == "- rye bread and milk, butter.",
        "both windows show \"- rye bread and milk, butter.\"",
    )?;

    story.section(
        "Sent again",
        "A connection breaks after the edit and before the answer. The window does not know which, so it sends the \
         same edit again, under the same number.",
    );
    ann.types(29, " Tea")?;
    let unanswered = ann.leaving(id)?;
    let made = east.submit_edit(&unanswered).await?.version();
    let again = story
        .step(
            "retry edit",
            "To the same node: it has the operation in memory, by client and sequence.",
            async { Ok(east.submit_edit(&unanswered).await?) },
        )
        .await?;
    story.check(again.version() == made, "the version it had the first time")?;
    let again = story
        .step("retry edit", "To the other node, which knows nothing of it: the edit would have another version there, but its own key is taken. The refusal brings the version it became.", async {
            Ok(west.submit_edit(&unanswered).await?)
        })
        .await?;
    story.check(
        again == EditOutcome::Before(6),
        "an edit is in the order once, however often and wherever it is sent",
    )?;
    let entries = east.entries_after(id, 5).await?.unwrap_or_default();
    for entry in &entries {
        ann.receives(entry);
        ben.receives(entry);
    }

    story.section(
        "Who is here",
        "Cursors are not the document. They are in Redis with an end of their own, and a lost one is a cursor in the \
         wrong place for five seconds.",
    );
    let person = |client: &str, position| Person {
        client: client.to_owned(),
        name: client.to_owned(),
        version: 6,
        position,
        anchor: position,
    };
    story
        .step(
            "update cursor / presence",
            "Ann's cursor, for fifteen seconds, told to the other nodes.",
            async {
                east.update_presence(id, &person("ann", 33)).await?;
                Ok(east
                    .broadcast("node-east", id, &News::Present(person("ann", 33)))
                    .await?)
            },
        )
        .await?;
    west.update_presence(id, &person("ben", 2)).await?;
    let people = story
        .step(
            "update cursor / presence",
            "The node in the west lists who is here, on whichever node.",
            async { Ok(west.people(id).await?) },
        )
        .await?;
    story.check(people.len() == 2, "ann and ben")?;
    story
        .step("remove presence", "Ann closes her window.", async {
            east.remove_presence(id, "ann").await?;
            Ok(east
                .broadcast("node-east", id, &News::Left("ann".into()))
                .await?)
        })
        .await?;
    story.check(west.people(id).await?.len() == 1, "only ben is left")?;

    story.section(
        "A snapshot",
        "Whoever opens the document would replay it from its beginning. So after every so many operations (eight \
         here, two hundred in life) any node writes the text down, archives the operations that led to it, moves the \
         pointer, and only then takes old ones off the log.",
    );
    let outcome = story
        .step("snapshot / compact", "Six operations: not yet.", async {
            Ok(east.compact(id).await?)
        })
        .await?;
    story.check(outcome == Compaction::NotDue, "nothing to do")?;
    ben.types(0, "* ")?;
    ben.sends(id).await?;
    ben.types(0, "* ")?;
    ben.sends(id).await?;
    let outcome = story
        .step("snapshot / compact", "Eight. The snapshot and the pointer to it are one transaction, under the pointer that was read; nothing is pruned yet, because whoever is loading from the snapshot before needs all of it.", async {
            Ok(west.compact(id).await?)
        })
        .await?;
    story.check(
        outcome
            == Compaction::Made {
                version: 8,
                pruned: 0,
            },
        "a snapshot of version 8",
    )?;
    for _ in 0..7 {
        ben.types(0, "x")?;
        ben.sends(id).await?;
    }
    let rest = ben.replica.len();
    ben.types(rest, &"long ".repeat(300))?;
    ben.sends(id).await?;
    let outcome = story
        .step("snapshot / compact", "Eight more, and the text is too long for an item (a thousand bytes here): it goes to S3. What is older than the snapshot before is taken off the log.", async {
            Ok(west.compact(id).await?)
        })
        .await?;
    story.check(
        outcome
            == Compaction::Made {
                version: 16,
                pruned: 8,
            },
        "a snapshot of version 16, and eight operations pruned",
    )?;

    story.section(
        "A node dies",
        "What a node held is gone with it. Nothing of it was needed.",
    );
    let north = DocumentService::with(cloud.clone(), SETTINGS);
    let canon = story
        .step(
            "recover document session",
            "Another node takes the snapshot and what came since, and goes on.",
            async { Ok(north.recover(id).await?) },
        )
        .await?;
    story.check(
        canon.version() == 16 && canon.text().to_string() == ben.replica.text(),
        "the same version, the same text as in Ben's window",
    )?;
    let loaded = story
        .step(
            "load document",
            "Windows that come back load from it, or resume from the version they have.",
            async { Ok(north.load_document(id).await?) },
        )
        .await?;
    story.check(loaded.version == 16, "version 16")?;
    let late = story
        .step("retry edit", "Ann's laptop wakes up and sends its edit once more, made on a version that is no longer in the log. Before it is told to load the document again, it is asked whether it is known.", async {
            let ancient = Edit { base: 0, ..unanswered.clone() };
            Ok(north.submit_edit(&ancient).await?)
        })
        .await?;
    story.check(late == EditOutcome::Before(6), "it is: version 6")?;

    story.section(
        "Back in time",
        "Snapshots stay, each with the operations that led to it. So every version can be read, also those that are \
         no longer in the log.",
    );
    let text = story
        .step(
            "view history",
            "Version 12 is between two snapshots, and still in the log.",
            async { Ok(north.text_at(id, 12).await?) },
        )
        .await?;
    story.check(text.starts_with("xxxx* *"), "four x before it")?;
    let text = story
        .step(
            "view history",
            "Version 3 was pruned: the archive that came with the snapshot of version 8 has it.",
            async { Ok(north.text_at(id, 3).await?) },
        )
        .await?;
    story.check(text == "rye bread and milk, butter", "as both saw it then")?;
    let undone = story
        .step("undo edit", "Ben takes back his last edit. It is an edit like any other: the inverse, made on the version it takes back.", async {
            Ok(north.undo(id, "ben", 100).await?)
        })
        .await?;
    story.check(undone.version() == Some(17), "version 17")?;
    let text = north.load_document(id).await?.text;
    story.check(
        text == "xxxxxxx* * - rye bread and milk, butter. Tea",
        "the long line is gone, everything else is there",
    )
}
