//! A toy archetype: counters that count up to a limit, each count with its event.
#![allow(dead_code, clippy::unwrap_used)]

use anyhow::{Result, bail};
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table, attribute};
use cloud::{Cloud, Guard, Guarded, GuardedTransaction, Transaction};
use std::time::Duration;
use walkthrough::{
    Action, Archetype, BoxFuture, Calls, Command, Machine, Skew, Story, Transition, Workload, share,
};

pub const COUNTERS: Table = Table {
    name: "counters",
    entity: "CounterState",
    why: "One item is one counter, so that one condition guards it.",
    partition: Key::S("counter_id"),
    sort: None,
    indexes: &[Index {
        name: "by-status",
        scope: Scope::Global,
        partition: Key::S("status"),
        sort: Some(Key::S("counter_id")),
        projection: Projection::KeysOnly,
        why: "Which counters are full?",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("counter_id", "counter-0001", "the identity"),
        attribute("amount", "2", "how often it was counted"),
        attribute("most", "3", "where it is full"),
        attribute("status", "OPEN", "OPEN or FULL"),
    ],
};

pub const EVENTS: Table = Table {
    name: "events",
    entity: "EventState",
    why: "Every count leaves an event, in the order it happened.",
    partition: Key::S("counter_id"),
    sort: Some(Key::S("event_id")),
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[
        attribute("counter_id", "counter-0001", "whose event"),
        attribute("event_id", "event-0001", "the identity; sorts by time"),
        attribute("at", "1767225600000", "when"),
    ],
};

pub const CREATE: Action = Action {
    name: "create counter",
    entities: &["CounterState"],
    abstract_layer: "create target",
    concrete_layer: "PutItem into counters, only if the counter does not exist",
    calls: &[Calls {
        when: "",
        sequence: &["PutItem counters if"],
    }],
};

pub const READ: Action = Action {
    name: "read counter",
    entities: &["CounterState"],
    abstract_layer: "read source",
    concrete_layer: "GetItem on counters by counter_id",
    calls: &[Calls {
        when: "",
        sequence: &["GetItem counters"],
    }],
};

pub const INCREMENT: Action = Action {
    name: "increment",
    entities: &["CounterState", "EventState"],
    abstract_layer: "overwrite, guarded; append child event",
    concrete_layer: "TransactWriteItems: Update counters only while OPEN and below the limit | Put the event",
    calls: &[Calls {
        when: "one transaction",
        sequence: &["TransactWriteItems [Update counters if, Put events if]"],
    }],
};

pub const RESET: Action = Action {
    name: "reset",
    entities: &["CounterState", "EventState"],
    abstract_layer: "state transition, guarded; remove children",
    concrete_layer: "UpdateItem on counters back to OPEN, then Query events and DeleteItem each",
    calls: &[
        Calls {
            when: "with its events",
            sequence: &[
                "UpdateItem counters if",
                "Query events",
                "DeleteItem events *",
            ],
        },
        Calls {
            when: "refused",
            sequence: &["UpdateItem counters if"],
        },
    ],
};

pub const ARCHETYPE: Archetype = Archetype {
    name: "toy",
    title: "Toy: a counter with a limit",
    question: "How does one count to three and no further, however many count at once?",
    tables: &[COUNTERS, EVENTS],
    resources: &[],
    actions: &[CREATE, READ, INCREMENT, RESET],
    machines: &[Machine {
        entity: "CounterState",
        states: &["OPEN", "FULL"],
        transitions: &[
            Transition {
                from: "",
                to: "OPEN",
                action: "create counter",
            },
            Transition {
                from: "OPEN",
                to: "OPEN",
                action: "increment",
            },
            Transition {
                from: "OPEN",
                to: "FULL",
                action: "increment",
            },
            Transition {
                from: "FULL",
                to: "OPEN",
                action: "reset",
            },
        ],
    }],
    workload: Workload {
        unit: "counts",
        mix: &[
            share("increment", 1.0),
            share("read counter", 4.0),
            share("create counter", 0.01),
        ],
        skew: &[Skew {
            resource: "counters",
            action: "increment",
            hottest: 0.5,
            why: "one counter is the popular one",
        }],
        kept_days: 30,
    },
    story,
    commands: &[Command {
        name: "count",
        about: "Count once, on a counter of its own",
        args: |command| command.arg(clap::Arg::new("most").long("most").default_value("3")),
        run: |cloud, matches| {
            Box::pin(async move {
                let most: u32 = matches.get_one::<String>("most").unwrap().parse()?;
                let id = cloud.ids().next("counter");
                create(&cloud, &id, most).await?;
                println!("counted: {}", increment(&cloud, &id).await?);
                Ok(())
            })
        },
    }],
};

pub fn story(story: &mut Story) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let cloud = story.cloud().clone();
        story.section(
            "Counting",
            "A counter is made, and counted up to its limit of two.",
        );
        let id = cloud.ids().next("counter");
        story
            .step(
                "create counter",
                "Nothing can be counted before.",
                create(&cloud, &id, 2),
            )
            .await?;
        story.say("The limit stands in the item itself, so that the condition can see it.");
        cloud.clock().advance(Duration::from_secs(1));
        let counted = story
            .step("increment", "The first count.", increment(&cloud, &id))
            .await?;
        story.check(counted, "the first count is taken")?;
        story
            .step(
                "increment",
                "The second count fills it.",
                increment(&cloud, &id),
            )
            .await?;
        let counted = story
            .step(
                "increment",
                "A third is one too many.",
                increment(&cloud, &id),
            )
            .await?;
        story.check(!counted, "a full counter refuses")?;
        story.section("Starting over", "");
        let amount = story
            .step("read counter", "How far is it?", read(&cloud, &id))
            .await?;
        story.check(amount == 2, "it stands at two")?;
        story
            .step(
                "reset",
                "Back to nothing, and the events go.",
                reset(&cloud, &id),
            )
            .await?;
        let again = story
            .step("reset", "It is open already.", reset(&cloud, &id))
            .await?;
        story.check(!again, "an open counter is not reset")
    })
}

pub async fn create(cloud: &Cloud, id: &str, most: u32) -> Result<()> {
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("counters"))
        .item("counter_id", S(id.to_owned()))
        .item("amount", N("0".into()))
        .item("most", N(most.to_string()))
        .item("status", S("OPEN".into()))
        .condition_expression("attribute_not_exists(counter_id)");
    match put.send().await.guarded()? {
        Guard::Passed(_) => Ok(()),
        Guard::Failed(_) => bail!("{id} exists"),
    }
}

pub async fn read(cloud: &Cloud, id: &str) -> Result<u32> {
    let got = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .consistent_read(true)
        .send()
        .await?;
    Ok(got.item.unwrap()["amount"].as_n().unwrap().parse()?)
}

/// Whether it was counted.
pub async fn increment(cloud: &Cloud, id: &str) -> Result<bool> {
    let amount = read(&cloud.beside_tap(), id).await?;
    let full = if amount == 1 { "FULL" } else { "OPEN" };
    let count = Update::builder()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .update_expression("SET amount = amount + :one, #status = :next")
        .condition_expression("#status = :open AND amount < most")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":one", N("1".into()))
        .expression_attribute_values(":open", S("OPEN".into()))
        .expression_attribute_values(":next", S(full.into()))
        .build()?;
    let event = Put::builder()
        .table_name(cloud.names().table("events"))
        .item("counter_id", S(id.to_owned()))
        .item("event_id", S(cloud.ids().next("event")))
        .item("at", N(cloud.now().to_string()))
        .condition_expression("attribute_not_exists(event_id)")
        .build()?;
    let done = cloud
        .dynamodb()
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().update(count).build())
        .transact_items(TransactWriteItem::builder().put(event).build())
        .send()
        .await
        .guarded(&["counter", "event"])?;
    Ok(matches!(done, Transaction::Committed(_)))
}

/// Whether it was full.
pub async fn reset(cloud: &Cloud, id: &str) -> Result<bool> {
    let update = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .update_expression("SET amount = :zero, #status = :open")
        .condition_expression("#status = :full")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":zero", N("0".into()))
        .expression_attribute_values(":open", S("OPEN".into()))
        .expression_attribute_values(":full", S("FULL".into()));
    if let Guard::Failed(_) = update.send().await.guarded()? {
        return Ok(false);
    }
    let events = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("events"))
        .key_condition_expression("counter_id = :id")
        .expression_attribute_values(":id", S(id.to_owned()))
        .send()
        .await?;
    for event in events.items() {
        cloud
            .dynamodb()
            .delete_item()
            .table_name(cloud.names().table("events"))
            .key("counter_id", event["counter_id"].clone())
            .key("event_id", event["event_id"].clone())
            .send()
            .await?;
    }
    Ok(true)
}
