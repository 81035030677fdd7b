//! Actions and tables as the command line lists them.

use crate::archetype::Archetype;
use crate::terminal::{Look, wrapped};
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The actions, for scripts.
pub(crate) fn actions_json(archetype: &Archetype) -> Value {
    let each = archetype.actions.iter().map(|action| {
        let calls = action
            .calls
            .iter()
            .map(|calls| json!({"when": calls.when, "sequence": calls.sequence}));
        json!({
            "name": action.name,
            "entities": action.entities,
            "abstract": action.abstract_layer,
            "concrete": action.concrete_layer,
            "calls": calls.collect::<Vec<_>>(),
        })
    });
    each.collect()
}

/// A text under a label, wrapped.
fn labelled(out: &mut String, label: &str, text: &str, look: &Look) {
    let width = look.width.saturating_sub(12).max(20);
    for (at, line) in wrapped(text, width).iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        let _ = writeln!(out, "  {}{line}", look.quiet(&format!("{label:<10}")));
    }
}

/// The actions, for people.
pub(crate) fn actions(archetype: &Archetype, look: &Look) -> String {
    let mut out = String::new();
    for action in archetype.actions {
        let entities = look.quiet(&format!("→ {}", action.entities.join(", ")));
        let _ = writeln!(out, "{} {entities}", look.strong(action.name));
        labelled(&mut out, "abstract", action.abstract_layer, look);
        labelled(&mut out, "concrete", action.concrete_layer, look);
        for (at, calls) in action.calls.iter().enumerate() {
            let when = if calls.when.is_empty() {
                String::new()
            } else {
                format!("{}: ", calls.when)
            };
            let sequence = if calls.sequence.is_empty() {
                "none".to_owned()
            } else {
                calls.sequence.join("; ")
            };
            labelled(
                &mut out,
                if at == 0 { "calls" } else { "" },
                &format!("{when}{sequence}"),
                look,
            );
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn keys(partition: Key, sort: Option<Key>) -> String {
    let names: Vec<_> = [Some(partition), sort]
        .iter()
        .flatten()
        .map(|key| key.name())
        .collect();
    names.join(", ")
}

fn index_text(index: &Index) -> String {
    let scope = match index.scope {
        Scope::Global => "global",
        Scope::Local => "local",
    };
    let carries = match index.projection {
        Projection::KeysOnly => "keys only".to_owned(),
        Projection::All => "all attributes".to_owned(),
        Projection::Include(names) => format!("with {}", names.join(", ")),
    };
    format!(
        "{} ({scope}): {}; {carries}. {}",
        index.name,
        keys(index.partition, index.sort),
        index.why
    )
}

/// The tables, for people.
pub(crate) fn tables(archetype: &Archetype, look: &Look) -> String {
    let mut out = String::new();
    for table in archetype.tables {
        let _ = writeln!(
            out,
            "{} {}",
            look.strong(table.name),
            look.quiet(&format!("→ {}", table.entity))
        );
        labelled(&mut out, "why", table.why, look);
        labelled(&mut out, "key", &keys(table.partition, table.sort), look);
        for index in table.indexes {
            labelled(&mut out, "index", &index_text(index), look);
        }
        if let Some(attribute) = table.ttl {
            labelled(&mut out, "ttl", attribute, look);
        }
        if let Some(view) = table.stream {
            labelled(&mut out, "stream", &format!("{view:?}"), look);
        }
        out.push('\n');
        let widest = |of: fn(&cloud::tables::Attribute) -> &str| {
            table
                .attributes
                .iter()
                .map(|attribute| of(attribute).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (names, samples) = (widest(|a| a.name), widest(|a| a.sample));
        for attribute in table.attributes {
            let sample = look.quiet(&format!("{:samples$}", attribute.sample));
            let _ = writeln!(
                out,
                "  {:names$}  {sample}  {}",
                attribute.name, attribute.why
            );
        }
        out.push('\n');
    }
    for resource in archetype.resources {
        let _ = writeln!(out, "{}", resource.name);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The tables, for scripts.
pub(crate) fn tables_json(archetype: &Archetype) -> Value {
    archetype.tables.iter().map(table_json).collect()
}

fn table_json(table: &Table) -> Value {
    let key = |key: Key| {
        let kind = match key {
            Key::S(_) => "S",
            Key::N(_) => "N",
            Key::B(_) => "B",
        };
        json!({"name": key.name(), "type": kind})
    };
    let indexes = table.indexes.iter().map(|index| {
        json!({
            "name": index.name,
            "scope": match index.scope { Scope::Global => "global", Scope::Local => "local" },
            "partition": key(index.partition),
            "sort": index.sort.map(key),
            "projection": match index.projection {
                Projection::KeysOnly => json!("keys only"),
                Projection::All => json!("all"),
                Projection::Include(names) => json!(names),
            },
            "why": index.why,
        })
    });
    let attributes = table.attributes.iter().map(|attribute| {
        json!({"name": attribute.name, "sample": attribute.sample, "why": attribute.why})
    });
    json!({
        "name": table.name,
        "entity": table.entity,
        "why": table.why,
        "partition": key(table.partition),
        "sort": table.sort.map(key),
        "indexes": indexes.collect::<Vec<_>>(),
        "ttl": table.ttl,
        "stream": table.stream.map(|view| format!("{view:?}")),
        "billing": match table.billing {
            Billing::OnDemand => json!("on demand"),
            Billing::Provisioned { read, write } => json!({"read": read, "write": write}),
        },
        "attributes": attributes.collect::<Vec<_>>(),
    })
}
