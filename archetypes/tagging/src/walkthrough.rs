//! The story: every action of the documents, run for real, with what it costs.

use crate::api::SERVE;
use crate::domain::{BadInput, ContentId, TagName, TenantId};
use crate::follow_stream::Follower;
use crate::heat::HEAT;
use crate::items::Edge;
use crate::merge::Merged;
use crate::search::Search;
use crate::tables::{ACTIONS, MACHINES, TABLES};
use crate::windows::Window;
use crate::{Attached, Created, Detached, Raised, Tagging, TaggingError};
use anyhow::{Result, anyhow};
use cloud::Cloud;
use std::time::Duration;
use walkthrough::{Archetype, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "tagging",
        title: "Tagging: relation with hot spots",
        question: "How is a relation kept once, found from both sides, and written to faster than one key allows?",
        tables: TABLES,
        resources: &[],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &[SERVE, HEAT],
    }
}

/// A photo service: for each attach, ten views of a tag and five of a content's tags. The definition
/// is read for every attach here; `Tagging::remembering_definitions` spares that.
const WORKLOAD: Workload = Workload {
    unit: "attaches",
    mix: &[
        share("attach tag to content", 1.0).when("new"),
        share("detach tag from content", 0.1).when("there"),
        share("view content by tag", 10.0),
        share("tags of a content", 5.0),
        share("create tag", 0.01),
    ],
    skew: &[
        Skew {
            resource: "content_tag_by_tag",
            action: "",
            hottest: 0.05,
            why: "one viral tag takes a fifth of all attaches and views, over four buckets",
        },
        Skew {
            resource: "tags",
            action: "",
            hottest: 0.2,
            why: "its definition is one item; attaches can take it from memory, views cannot",
        },
        Skew {
            resource: "tag_gates",
            action: "",
            hottest: 0.05,
            why: "as spread as the buckets",
        },
        Skew {
            resource: "contents/by_shard",
            action: "",
            hottest: 0.125,
            why: "eight shards",
        },
        Skew {
            resource: "tags/by_name",
            action: "",
            hottest: 0.25,
            why: "four shards",
        },
    ],
    kept_days: 365,
};

/// What the story's cursors are signed with.
const CURSOR_KEY: &[u8] = b"the key of the story";

fn name(text: &str) -> Result<TagName> {
    Ok(TagName::new(text)?)
}

fn content(id: &str) -> Result<ContentId> {
    Ok(ContentId::new(id)?)
}

/// A little later: the contents of the story are tagged one after the other.
fn later(cloud: &Cloud) {
    cloud.clock().advance(Duration::from_secs(60));
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    let tagging = Tagging::new(cloud.clone(), CURSOR_KEY);
    let acme = TenantId::new("acme")?;
    let rust = name("Rust")?;

    names(story, &tagging, &acme).await?;
    attaching(story, &tagging, &acme).await?;

    story.section(
        "The tag goes viral",
        "Every attach writes a row into one of B keys, and one key takes 1,000 units a second. B can be \
         raised while everybody goes on: rows stay where they are, new ones spread, and readers look \
         at all buckets.",
    );
    let raised = story
        .step(
            "raise buckets",
            "From two to four. A writer that still holds the old number writes to a bucket that is \
             read anyway; the number never falls.",
            async { Ok(tagging.raise_buckets(&acme, &rust, 4).await?) },
        )
        .await?;
    story.check(
        matches!(raised, Raised::Done(tag) if tag.buckets == 4),
        "it has four buckets, and nothing was moved",
    )?;
    for id in ["photo-4", "photo-5", "photo-6"] {
        later(&cloud);
        tagging.attach(&acme, &content(id)?, &rust).await?;
    }

    viewing(story, &tagging, &acme).await?;
    detaching(story, &tagging, &acme).await?;
    counting(story, &tagging, &acme).await?;
    mending(story, &tagging, &acme).await?;
    beyond(story, &tagging, &acme).await
}

async fn names(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    story.section(
        "A name gets its meaning",
        "A tag is a name with an id. The name is normalized as Unicode compares identifiers: width, \
         case and what is not seen do not matter. The tenant is part of every key.",
    );
    let created = story
        .step(
            "create tag",
            "The key is the name, so a name means one thing.",
            async { Ok(tagging.create_tag(acme, &name("Rust")?, 2).await?) },
        )
        .await?;
    let again = story
        .step(
            "create tag",
            "Somebody else creates ` #ＲＵＳＴ `. It is the same name; they get the tag that is there.",
            async { Ok(tagging.create_tag(acme, &name(" #ＲＵＳＴ ")?, 8).await?) },
        )
        .await?;
    story.check(
        matches!(&again, Created::Before(tag) if *tag == created.clone().definition()),
        "one tag, with two buckets as its creator wanted",
    )?;
    let tag = story
        .step(
            "read tag metadata",
            "By any spelling of its name …",
            async { Ok(tagging.read_tag(acme, &name("RUST")?).await?) },
        )
        .await?;
    let by_id = story
        .step("read tag metadata", "… or by its id.", async {
            Ok(tagging.tag_by_id(acme, &tag.tag_id).await?)
        })
        .await?;
    story.check(by_id == Some(tag), "both are the same")
}

async fn attaching(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    let cloud = tagging.cloud().clone();
    let rust = name("rust")?;
    story.section(
        "A content gets the tag",
        "The documents have three writes here: the edge, the index row, the event. Done one after the \
         other, whoever dies in between leaves a row without an edge or an edge without a row. Here \
         they are one transaction, and the event is the edge's own record in the table's stream.",
    );
    let attached = story
        .step(
            "attach tag to content",
            "Edge if not there, row, count below the cap: all or nothing. Afterwards a look at the \
             bucket's gate: has the tag been merged away meanwhile?",
            async { Ok(tagging.attach(acme, &content("photo-1")?, &rust).await?) },
        )
        .await?;
    story.check(
        matches!(&attached, Attached::Now(edge) if edge.version == 1),
        "version 1: the edge's first change",
    )?;
    later(&cloud);
    story
        .step(
            "update reverse index by tag",
            "The same call for another content. The row's key is bucket, moment and content; the edge \
             keeps all three, so that a detach knows which row to delete.",
            async { Ok(tagging.attach(acme, &content("photo-2")?, &rust).await?) },
        )
        .await?;
    later(&cloud);
    story
        .step(
            "publish relation change",
            "And another. DynamoDB writes the stream record with the edge: one attach, one event.",
            async { Ok(tagging.attach(acme, &content("photo-3")?, &rust).await?) },
        )
        .await?;
    let again = story
        .step(
            "attach tag to content",
            "The first client heard nothing and asks again. The guard on the edge refuses; the edge \
             that comes back is live: done already, no second event.",
            async { Ok(tagging.attach(acme, &content("photo-1")?, &rust).await?) },
        )
        .await?;
    story.check(matches!(again, Attached::Before(_)), "it was there")?;
    let tags = story
        .step(
            "tags of a content",
            "The tag is the edge's sort key, so a content's tags are one query.",
            async { Ok(tagging.tags_of(acme, &content("photo-1")?).await?) },
        )
        .await?;
    story.check(
        tags.iter().map(|edge| &*edge.tag_name_norm).eq(["rust"]),
        "photo-1 has one tag",
    )
}

async fn viewing(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    let rust = name("rust")?;
    story.section(
        "What has this tag?",
        "All buckets at once, each sorted newest first, merged lazily. The cursor is the last row that \
         was given and the buckets that have ended: in a total order, that is a position in every \
         bucket, also in those that are added later. It is signed, with the tenant and the tag.",
    );
    let first = story
        .step("view content by tag", "The first four of six.", async {
            Ok(tagging.view(acme, &rust, 4, None).await?)
        })
        .await?;
    let ids = |page: &crate::Page| -> Vec<String> {
        let contents = page.contents.iter();
        contents.map(|row| row.content_id.clone()).collect()
    };
    story.check(
        ids(&first) == ["photo-6", "photo-5", "photo-4", "photo-3"],
        "the last tagged first",
    )?;
    tagging.attach(acme, &content("photo-7")?, &rust).await?;
    let rest = story
        .step(
            "view content by tag",
            "Somebody tags photo-7 before the second page is asked for. It would be on the first; the \
             pages that follow are as they were.",
            async {
                let next = first.next.as_deref();
                Ok(tagging.view(acme, &rust, 4, next).await?)
            },
        )
        .await?;
    story.check(
        ids(&rest) == ["photo-2", "photo-1"] && rest.next.is_none(),
        "nothing twice, nothing missing, and that is all",
    )?;
    let globex = TenantId::new("globex")?;
    tagging.create_tag(&globex, &rust, 1).await?;
    let taken = tagging.view(&globex, &rust, 4, first.next.as_deref()).await;
    story.check(
        matches!(taken, Err(TaggingError::BadInput(BadInput::Cursor))),
        "another tenant cannot use the cursor",
    )
}

async fn detaching(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    let rust = name("rust")?;
    story.section(
        "A content loses the tag",
        "The edge says when it was attached and in which bucket, whatever B is by now: that is the \
         key of the row that must go. The edge itself stays, not live, for its version.",
    );
    later(tagging.cloud());
    let detached = story
        .step(
            "detach tag from content",
            "photo-2: edge, row and count in one transaction, if the edge is still the one that was read.",
            async { Ok(tagging.detach(acme, &content("photo-2")?, &rust).await?) },
        )
        .await?;
    story.check(
        matches!(&detached, Detached::Now(edge) if edge.version == 2),
        "version 2: odd while live, even while not",
    )?;
    story
        .step(
            "remove reverse index entry",
            "The same call for photo-5, which was attached when there were four buckets already.",
            async { Ok(tagging.detach(acme, &content("photo-5")?, &rust).await?) },
        )
        .await?;
    later(tagging.cloud());
    let back = story
        .step(
            "attach tag to content",
            "photo-2 again. The first try finds the old edge; the second goes on from its version.",
            async { Ok(tagging.attach(acme, &content("photo-2")?, &rust).await?) },
        )
        .await?;
    story.check(
        matches!(&back, Attached::Now(edge) if edge.version == 3),
        "version 3: whoever counts edges knows that this is later than both",
    )
}

async fn counting(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    story.section(
        "Which tags are popular?",
        "A consumer follows the stream of edges. Streams repeat, and a consumer that dies begins again \
         where its checkpoint says. So for each edge it keeps the version it has counted, in one \
         transaction with the count: an event counts once, and only if it is newer.",
    );
    let tag = tagging.read_tag(acme, &name("rust")?).await?;
    let mut follower = Follower::new(tagging.clone());
    story
        .step(
            "update popularity counts",
            "Everything since the beginning: ten changes of seven edges.",
            async { Ok(follower.follow().await?) },
        )
        .await?;
    let counts = tagging.popularity(&tag.tenant_id, &tag.tag_id).await?;
    story.check(
        counts.get(&Window::All) == Some(&6),
        "six edges are live, and six are counted",
    )?;
    let today = Window::day(tagging.cloud().now());
    story
        .step(
            "top tags",
            "Redis has a sorted set for each window. Asked for the first time, it is filled from the \
             table: what is not known to be whole is not believed.",
            async { Ok(tagging.top_tags(acme, today, 3).await?) },
        )
        .await?;
    let top = story
        .step("top tags", "From then on it is one question.", async {
            Ok(tagging.top_tags(acme, today, 3).await?)
        })
        .await?;
    story.check(
        matches!(top.as_slice(), [first] if first.live_edges == 6),
        "rust leads today",
    )?;
    story
        .step(
            "update popularity counts",
            "The consumer comes by again: nothing new, nothing counted twice.",
            async { Ok(follower.follow().await?) },
        )
        .await?;
    let counts = tagging.popularity(&tag.tenant_id, &tag.tag_id).await?;
    story.check(counts.get(&Window::All) == Some(&6), "still six")
}

async fn mending(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    story.section(
        "The index is a copy",
        "Nothing here tears edge and row apart. A restore from two backups does. Repair rebuilds the \
         index from the edges while everybody goes on writing: each mend checks that the edge is \
         still the very one it looked at.",
    );
    let tag = tagging.read_tag(acme, &name("rust")?).await?;
    let edge = tagging
        .edge(acme, &content("photo-1")?, &tag.tag_id)
        .await?;
    let edge = edge.ok_or_else(|| anyhow!("photo-1 has no edge"))?;
    damage(tagging, &edge).await?;
    let mended = story
        .step(
            "repair",
            "photo-1 has lost its row, and there is a row of an edge that never was.",
            async { Ok(tagging.repair(acme).await?) },
        )
        .await?;
    story.check(
        mended.rows_written.len() == 1 && mended.rows_removed.len() == 1,
        "one row written, one removed, and it says which",
    )?;
    let again = tagging.repair(acme).await?;
    story.check(again.nothing(), "the second time there is nothing to do")
}

/// What a restore of one table does: a row is gone, and one is there that no edge has.
async fn damage(tagging: &Tagging, edge: &Edge) -> Result<()> {
    let cloud = tagging.cloud().beside_tap();
    let table = cloud.names().table("content_tag_by_tag");
    let delete = cloud.dynamodb().delete_item().table_name(&table);
    delete.set_key(Some(edge.row_key())).send().await?;
    let ghost = Edge {
        content_id: "photo-0".into(),
        ..edge.clone()
    };
    let item = crate::attach::row_item(&ghost)?;
    let put = cloud.dynamodb().put_item().table_name(&table);
    put.set_item(Some(item)).send().await?;
    Ok(())
}

async fn beyond(story: &mut Story, tagging: &Tagging, acme: &TenantId) -> Result<()> {
    let (rust, wasm) = (name("rust")?, name("WebAssembly")?);
    story.section(
        "Names that mean the same",
        "A synonym is a name that redirects. A merge makes one of a tag that has contents: first the \
         redirect, then the gates of its buckets, then its edges move, one transaction each.",
    );
    story
        .step(
            "add synonym",
            "`rustlang` is another name for `rust`.",
            async { Ok(tagging.add_synonym(acme, &name("rustlang")?, &rust).await?) },
        )
        .await?;
    tagging.create_tag(acme, &wasm, 1).await?;
    tagging.create_tag(acme, &name("wasm")?, 1).await?;
    tagging.attach(acme, &content("photo-1")?, &wasm).await?;
    let short = name("wasm")?;
    later(tagging.cloud());
    tagging.attach(acme, &content("photo-3")?, &short).await?;
    let merged = story
        .step(
            "merge tags",
            "`wasm` becomes another name for `webassembly`, and photo-3 moves over.",
            async { Ok(tagging.merge(acme, &short, &wasm).await?) },
        )
        .await?;
    story.check(
        merged == Merged::Done { moved: 1, both: 0 },
        "one content moved",
    )?;
    let both = story
        .step(
            "search contents",
            "Which contents have `rustlang` and `wasm`? Both names lead to their tags.",
            async {
                let names = [name("rustlang")?, name("wasm")?];
                Ok(tagging.search(acme, Search::All, &names, 10, None).await?)
            },
        )
        .await?;
    story.check(
        both.contents
            .iter()
            .map(|row| &*row.content_id)
            .eq(["photo-3", "photo-1"]),
        "photo-1 and photo-3",
    )?;
    let found = story
        .step("autocomplete", "Somebody types `W`.", async {
            Ok(tagging.autocomplete(acme, "W", 5).await?)
        })
        .await?;
    story.check(
        found
            .iter()
            .map(|found| &*found.tag_name_norm)
            .eq(["wasm", "webassembly"]),
        "both names are offered",
    )
}
