//! The parts of a README that are generated, so that they cannot be wrong.

use crate::archetype::Archetype;
use crate::cost::range;
use crate::diagram;
use crate::terminal::Look;
use crate::transcript::{Step, Transcript};
use crate::workload::estimate;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;

/// The tables: keys, indexes, and every attribute with a sample and its reason.
pub fn tables(archetype: &Archetype) -> String {
    let each: Vec<_> = archetype
        .tables
        .iter()
        .map(|table| table.markdown())
        .collect();
    each.join("\n")
}

/// The actions: both layers, the calls each may make, and what the walk saw them cost.
pub fn actions(archetype: &Archetype, transcript: &Transcript) -> String {
    let mut out = String::from(
        "| action | entities | abstract | concrete | calls | cost |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for action in archetype.actions {
        let calls = action.calls.iter().map(|calls| {
            let sequence: Vec<_> = calls
                .sequence
                .iter()
                .map(|shape| format!("`{shape}`"))
                .collect();
            let sequence = if sequence.is_empty() {
                "none".to_owned()
            } else {
                sequence.join(", ")
            };
            match calls.when {
                "" => sequence,
                when => format!("*{when}*: {sequence}"),
            }
        });
        let costs = action.calls.iter().filter_map(|calls| {
            let taken = |step: &&Step| step.action == action.name && step.when == calls.when;
            let steps: Vec<_> = transcript.steps().filter(taken).collect();
            let cost = range(&steps).ok()?;
            Some(match calls.when {
                "" => cost,
                when => format!("*{when}*: {cost}"),
            })
        });
        let cells = [
            format!("**{}**", action.name),
            action.entities.join(", "),
            action.abstract_layer.to_owned(),
            action.concrete_layer.to_owned(),
            calls.collect::<Vec<_>>().join("<br>"),
            costs.collect::<Vec<_>>().join("<br>"),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// What the declared workload costs at 500 units a second, as `cost --rate 500` prints it.
pub fn cost(archetype: &Archetype, transcript: &Transcript) -> Result<String> {
    let estimate = estimate(archetype, transcript, 500.0)?;
    Ok(format!(
        "```text\n{}\n```\n",
        estimate.text(&Look::PLAIN).trim()
    ))
}

/// The README with everything between `<!-- generated:… -->` and `<!-- /generated -->` written
/// anew. There are `tables`, `actions`, `diagram` and `cost`.
pub fn filled(readme: &str, archetype: &Archetype, transcript: &Transcript) -> Result<String> {
    const BEGIN: &str = "<!-- generated:";
    const END: &str = "<!-- /generated -->";
    let mut out = String::new();
    let mut rest = readme;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (what, after) = after
            .split_once("-->")
            .with_context(|| format!("'{BEGIN}' without '-->'"))?;
        let what = what.trim();
        let (old, after) = after
            .split_once(END)
            .with_context(|| format!("'{BEGIN}{what} -->' without '{END}'"))?;
        if old.contains(BEGIN) {
            bail!("'{BEGIN}{what} -->' without '{END}'");
        }
        let new = match what {
            "tables" => tables(archetype),
            "actions" => actions(archetype, transcript),
            "diagram" => diagram::mermaid(archetype.machines),
            "cost" => cost(archetype, transcript)?,
            other => bail!("'{BEGIN}{other} -->': there are tables, actions, diagram and cost"),
        };
        let _ = write!(
            out,
            "{before}{BEGIN}{what} -->\n\n{}\n\n{END}",
            new.trim_end()
        );
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
