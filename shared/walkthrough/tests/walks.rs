//! What a walk promises, on the toy.
#![allow(clippy::unwrap_used)]

mod toy;

use anyhow::Result;
use aws_sdk_dynamodb::types::AttributeValue::S;
use cloud::tables::{Attribute, Table};
use toy::ARCHETYPE;
use walkthrough::{
    Action, Archetype, BoxFuture, Calls, Entry, Machine, Resource, Step, Story, Transcript,
    Transition, walk_for_tests,
};

async fn toy_walk() -> Transcript {
    walk_for_tests(&ARCHETYPE).await.unwrap()
}

async fn why_it_fails(archetype: Archetype) -> String {
    format!("{:#}", walk_for_tests(&archetype).await.unwrap_err())
}

fn step(transcript: &Transcript, number: usize) -> &Step {
    transcript
        .steps()
        .find(|step| step.number == number)
        .unwrap()
}

#[tokio::test]
async fn a_step_shows_its_layers_its_calls_what_changed_and_its_cost() {
    let transcript = toy_walk().await;
    let text = transcript.text();
    for line in [
        "  2  increment → CounterState, EventState (one transaction)",
        "     The first count.",
        "     abstract  overwrite, guarded; append child event",
        "     calls     TransactWriteItems → ok",
        "                 Update counters counter_id=counter-0001",
        "                   do   SET amount = amount + 1, status = OPEN",
        "                   if   status = OPEN AND amount < most",
        "                 Put events counter_id=counter-0001, event_id=event-0001",
        "     changed   counters counter_id=counter-0001: amount 0 → 1",
        "               + events counter_id=counter-0001, event_id=event-0001: at 1767225601000",
        "     cost      0 RCU, 4 WCU · $2.50 per million · counters 2 WCU, events 2 WCU",
        "     ✓ the first count is taken",
        "               - events counter_id=counter-0001, event_id=event-0001",
    ] {
        assert!(
            text.lines().any(|other| other == line),
            "not there: {line}\n{text}"
        );
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
}

#[tokio::test]
async fn a_step_whose_calls_are_not_declared_fails() {
    const READ: Action = Action {
        calls: &[Calls {
            when: "by index",
            sequence: &["Query counters/by-status"],
        }],
        ..toy::READ
    };
    let error = why_it_fails(Archetype {
        actions: &[toy::CREATE, READ, toy::INCREMENT, toy::RESET],
        ..ARCHETYPE
    })
    .await;
    assert_eq!(
        error,
        "step 5, read counter: it called what it does not declare. Called: GetItem counters. \
         Declared 'by index': Query counters/by-status"
    );
}

#[tokio::test]
async fn a_step_of_an_unknown_action_fails() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { story.step("count twice", "", async { Ok(()) }).await })
    }
    let error = why_it_fails(Archetype { story, ..ARCHETYPE }).await;
    assert!(
        error.starts_with("there is no action 'count twice': toy declares create counter, "),
        "{error}"
    );
}

#[tokio::test]
async fn an_action_that_is_never_walked_fails_the_walk() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let cloud = story.cloud().clone();
            story
                .step("create counter", "", toy::create(&cloud, "a", 1))
                .await
        })
    }
    let error = why_it_fails(Archetype { story, ..ARCHETYPE }).await;
    assert_eq!(
        error,
        "the story never walks: read counter, increment, reset"
    );
}

#[tokio::test]
async fn an_undeclared_attribute_fails_the_walk() {
    const ATTRIBUTES: [Attribute; 3] = [
        toy::COUNTERS.attributes[0],
        toy::COUNTERS.attributes[1],
        toy::COUNTERS.attributes[3],
    ];
    const COUNTERS: Table = Table {
        attributes: &ATTRIBUTES,
        ..toy::COUNTERS
    };
    let error = why_it_fails(Archetype {
        tables: &[COUNTERS, toy::EVENTS],
        ..ARCHETYPE
    })
    .await;
    assert_eq!(
        error,
        "step 1, create counter: an item of counters has the attribute 'most', which the table does not declare"
    );
}

#[tokio::test]
async fn a_write_to_an_undeclared_table_fails_the_walk() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            story.cloud().create_tables(&[toy::EVENTS]).await?;
            toy::story(story).await
        })
    }
    let archetype = Archetype {
        tables: &[toy::COUNTERS],
        story,
        ..ARCHETYPE
    };
    let error = why_it_fails(archetype).await;
    assert_eq!(
        error,
        "step 2, increment: TransactWriteItems writes to the table 'events', which toy does not declare"
    );
}

#[tokio::test]
async fn a_scan_fails_the_walk_even_between_the_steps() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            toy::story(story).await?;
            let cloud = story.cloud();
            let scan = cloud
                .dynamodb()
                .scan()
                .table_name(cloud.names().table("counters"));
            scan.send().await?;
            Ok(())
        })
    }
    let error = why_it_fails(Archetype { story, ..ARCHETYPE }).await;
    assert_eq!(
        error,
        "between the steps: it called Scan counters: a Scan reads and bills the whole table"
    );
}

#[tokio::test]
async fn a_claim_that_does_not_hold_fails_the_walk() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { story.check(1 > 2, "one is more than two") })
    }
    let error = why_it_fails(Archetype { story, ..ARCHETYPE }).await;
    assert_eq!(
        error,
        "the story claims what does not hold: one is more than two"
    );
}

#[tokio::test]
async fn a_step_that_fails_says_which_it_was() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let cloud = story.cloud().clone();
            story
                .step("create counter", "", toy::create(&cloud, "a", 1))
                .await?;
            story
                .step("create counter", "", toy::create(&cloud, "a", 1))
                .await
        })
    }
    let error = why_it_fails(Archetype { story, ..ARCHETYPE }).await;
    assert_eq!(error, "step 2, create counter: a exists");
}

#[tokio::test]
async fn the_transcript_is_the_same_twice() {
    let (one, other) = (toy_walk().await, toy_walk().await);
    assert_eq!(one.text(), other.text());
    assert_eq!(one.json(), other.json());
    assert_eq!(one.html(&ARCHETYPE), other.html(&ARCHETYPE));
}

#[tokio::test]
async fn a_failed_guard_shows_that_nothing_changed() {
    let transcript = toy_walk().await;
    let refused = step(&transcript, 4);
    assert!(refused.changes.is_empty());
    assert_eq!(
        refused.calls[0].outcome.to_string(),
        "cancelled [ConditionalCheckFailed, None]"
    );
    let text = transcript.text();
    let (_, after) = text.split_once("A third is one too many.").unwrap();
    assert!(
        after
            .split_once("cost")
            .unwrap()
            .0
            .contains("nothing changed"),
        "{after}"
    );
}

#[tokio::test]
async fn a_failed_guard_is_charged_though_it_is_not_reported() {
    let transcript = toy_walk().await;
    // Two items of less than 1 KB in a transaction: two units each.
    let cost = &step(&transcript, 4).cost;
    assert_eq!((cost.write().as_f64(), cost.refused().as_f64()), (0.0, 4.0));
    // One item by itself: one unit.
    let cost = &step(&transcript, 7).cost;
    assert_eq!((cost.write().as_f64(), cost.refused().as_f64()), (0.0, 1.0));
    assert!(
        transcript
            .text()
            .contains("0 RCU, 0 WCU + 1 WCU (charged, not reported) · $0.63 per million")
    );
}

#[tokio::test]
async fn the_capacity_of_an_index_is_told_apart_from_its_tables() {
    let transcript = toy_walk().await;
    let charges = &step(&transcript, 3).cost.charges;
    assert_eq!(charges["counters"].write.as_f64(), 2.0);
    assert_eq!(
        charges["counters/by-status"].write.as_f64(),
        2.0,
        "a changed index key is a delete and a put"
    );
}

#[tokio::test]
async fn equal_calls_in_a_row_are_shown_as_one() {
    const READ: Action = Action {
        calls: &[Calls {
            when: "",
            sequence: &["GetItem counters ×4"],
        }],
        ..toy::READ
    };
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let cloud = story.cloud().clone();
            story
                .step("create counter", "", toy::create(&cloud, "a", 1))
                .await?;
            let poll = async {
                for _ in 0..4 {
                    toy::read(&cloud, "a").await?;
                }
                Ok(())
            };
            story.step("read counter", "", poll).await
        })
    }
    let archetype = Archetype {
        actions: &[toy::CREATE, READ],
        machines: &[],
        workload: walkthrough::Workload {
            mix: &[],
            skew: &[],
            ..ARCHETYPE.workload
        },
        story,
        ..ARCHETYPE
    };
    let transcript = walk_for_tests(&archetype).await.unwrap();
    let read = step(&transcript, 2);
    assert_eq!(
        (read.calls.len(), read.calls[0].times, read.call_count()),
        (1, 4, 4)
    );
    assert_eq!(read.cost.read().as_f64(), 4.0);
    assert!(
        transcript
            .text()
            .contains("GetItem counters counter_id=a ×4 → ok")
    );
}

#[tokio::test]
async fn names_that_lead_nowhere_are_found_before_the_walk() {
    const MACHINE: Machine = Machine {
        entity: "CounterState",
        states: &["OPEN"],
        transitions: &[Transition {
            from: "OPEN",
            to: "SHUT",
            action: "reset",
        }],
    };
    let error = why_it_fails(Archetype {
        machines: &[MACHINE],
        ..ARCHETYPE
    })
    .await;
    assert_eq!(
        error,
        "CounterState has a transition at 'SHUT', which is none of its states"
    );
    let twice = Archetype {
        actions: &[toy::CREATE, toy::CREATE],
        machines: &[],
        ..ARCHETYPE
    };
    assert_eq!(
        why_it_fails(twice).await,
        "the action 'create counter' is declared twice"
    );
}

#[tokio::test]
async fn resources_are_created_before_the_story_and_unseen_by_it() {
    const MARK: Resource = Resource {
        name: "a counter that was there before",
        create: |cloud| Box::pin(async move { toy::create(&cloud, "before", 1).await }),
        remove: |_| Box::pin(async { Ok(()) }),
    };
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let there = toy::read(&story.cloud().beside_tap(), "before").await? == 0;
            story.check(there, "it was there before")?;
            toy::story(story).await
        })
    }
    let transcript = walk_for_tests(&Archetype {
        resources: &[MARK],
        story,
        ..ARCHETYPE
    })
    .await
    .unwrap();
    assert_eq!(transcript.steps().count(), 7);
}

#[tokio::test]
async fn json_has_the_items_before_and_after() {
    let json = toy_walk().await.json();
    let steps: Vec<_> = json["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["kind"] == "step")
        .collect();
    assert_eq!(steps.len(), 7);
    let change = &steps[1]["changes"][0];
    assert_eq!(change["before"]["amount"]["N"], "0");
    assert_eq!(change["after"]["amount"]["N"], "1");
    assert_eq!(
        steps[1]["calls"][0]["shape"],
        "TransactWriteItems [Update counters if, Put events if]"
    );
    assert_eq!(steps[1]["cost"]["dollars_per_million"], "2.50");
}

#[tokio::test]
async fn the_page_needs_nothing_from_elsewhere() {
    let page = toy_walk().await.html(&ARCHETYPE);
    for foreign in [
        "http:", "https:", "//", "<script", "<link", "<img", "@import", "url(h", "src=",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for part in [
        "<svg",
        "prefers-color-scheme: dark",
        "href=\"#step-7\"",
        "id=\"step-7\"",
        "id=\"cost\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[tokio::test]
async fn the_page_escapes_what_it_shows() {
    fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            story.section("<b>&", "\"</p>");
            let cloud = story.cloud().clone();
            story
                .step("create counter", "<i>", toy::create(&cloud, "<u>", 1))
                .await?;
            story.check(true, "<s> `a < b` and ` alone")?;
            story.say("`a < b`");
            let put = cloud
                .beside_tap()
                .dynamodb()
                .put_item()
                .table_name(cloud.names().table("counters"))
                .item("counter_id", S("x".into()));
            put.send().await?;
            toy::story(story).await
        })
    }
    let archetype = Archetype { story, ..ARCHETYPE };
    let page = walk_for_tests(&archetype).await.unwrap().html(&archetype);
    for raw in ["<b>&", "<i>", "<u>", "<s>"] {
        assert!(!page.contains(raw), "{raw}");
    }
    assert!(page.contains("counter_id=&lt;u&gt;"));
    assert!(page.contains("<p><code>a &lt; b</code></p>"));
    assert!(
        page.contains("&lt;s&gt; `a &lt; b` and ` alone"),
        "a lone backtick is a backtick"
    );
}

#[tokio::test]
async fn a_readme_is_filled_between_its_marks_and_nowhere_else() {
    let transcript = toy_walk().await;
    let filled = |text: &str| walkthrough::readme::filled(text, &ARCHETYPE, &transcript);
    let readme = "# Toy\n<!-- generated:tables -->old<!-- /generated -->\nmine\n\
                  <!-- generated:actions -->\n<!-- /generated -->\n<!-- generated:diagram --><!-- /generated -->end\n";
    let once = filled(readme).unwrap();
    assert!(
        once.starts_with("# Toy\n<!-- generated:tables -->\n\n**`counters`**"),
        "{once}"
    );
    assert!(
        once.contains("<!-- /generated -->\nmine\n<!-- generated:actions -->"),
        "{once}"
    );
    assert!(once.ends_with("end\n") && !once.contains("old"), "{once}");
    assert!(
        once.contains("*one transaction*: 0 RCU, 0–6 WCU + 0–4 WCU (charged, not reported)"),
        "{once}"
    );
    assert!(once.contains("below the limit \\| Put the event"), "{once}");
    assert!(
        once.contains("```mermaid\nstateDiagram-v2\n    [*] --> OPEN: create counter\n"),
        "{once}"
    );
    assert_eq!(
        filled(&once).unwrap(),
        once,
        "filling again changes nothing"
    );
    assert!(
        filled("<!-- generated:tables -->")
            .unwrap_err()
            .to_string()
            .contains("without '<!-- /generated -->'")
    );
    assert!(filled("<!-- generated:stories --><!-- /generated -->").is_err());
}

#[tokio::test]
async fn everything_told_is_in_the_transcript_in_its_order() {
    let transcript = toy_walk().await;
    let kinds: String = transcript
        .entries
        .iter()
        .map(|entry| match entry {
            Entry::Section { .. } => '#',
            Entry::Say(_) => 's',
            Entry::Check(_) => '✓',
            Entry::Step(_) => '.',
        })
        .collect();
    assert_eq!(kinds, "#.s.✓..✓#.✓..✓");
}
