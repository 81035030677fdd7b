//! One page that needs nothing from elsewhere: no script, no font, no picture, no style sheet.

use crate::archetype::Archetype;
use crate::cost::dollars;
use crate::diagram;
use crate::terminal::{call_head, call_lines, short};
use crate::transcript::{Change, Entry, SeenCall, Step, Transcript};
use cloud::tap::Outcome;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// Text that is safe between tags and inside quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

fn tag(name: &str, class: &str, text: &str) -> String {
    match class {
        "" => format!("<{name}>{}</{name}>", escape(text)),
        _ => format!("<{name} class=\"{class}\">{}</{name}>", escape(text)),
    }
}

/// A paragraph; what stands between backticks is code.
fn prose(class: &str, text: &str) -> String {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    let mut inner = String::new();
    let parts: Vec<_> = text.split('`').collect();
    let paired = parts.len() % 2 == 1;
    for (at, part) in parts.iter().enumerate() {
        match (paired, at % 2) {
            (true, 1) => inner.push_str(&tag("code", "", part)),
            (true, _) => inner.push_str(&escape(part)),
            (false, 0) if at == 0 => inner.push_str(&escape(part)),
            (false, _) => inner.push_str(&escape(&format!("`{part}"))),
        }
    }
    format!("<p{class}>{inner}</p>")
}

/// The page.
pub fn page(transcript: &Transcript, archetype: &Archetype) -> String {
    let title = escape(&transcript.title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <nav aria-label=\"Contents\">\n{contents}</nav>\n<main>\n\
         <header>\n<h1>{title}</h1>\n{question}\n{sums}</header>\n\
         {states}{story}{cost}</main>\n</body>\n</html>\n",
        contents = contents(transcript, archetype),
        question = prose("question", &transcript.question),
        sums = sums(transcript),
        states = states(archetype),
        story = story(transcript),
        cost = costs(transcript),
    )
}

fn contents(transcript: &Transcript, archetype: &Archetype) -> String {
    let mut out = String::from("<ol>\n");
    if !archetype.machines.is_empty() {
        out.push_str("<li><a href=\"#states\">States</a></li>\n");
    }
    let mut open = false;
    let mut sections = 0;
    for entry in &transcript.entries {
        match entry {
            Entry::Section { title, .. } => {
                sections += 1;
                if open {
                    out.push_str("</ol></li>\n");
                }
                let _ = writeln!(
                    out,
                    "<li><a href=\"#section-{sections}\">{}</a><ol>",
                    escape(title)
                );
                open = true;
            }
            Entry::Step(step) => {
                let number = step.number;
                let _ = writeln!(
                    out,
                    "<li class=\"to-step\"><a href=\"#step-{number}\"><span>{number}</span>{}</a></li>",
                    escape(&step.action)
                );
            }
            _ => {}
        }
    }
    if open {
        out.push_str("</ol></li>\n");
    }
    out.push_str("<li><a href=\"#cost\">Cost</a></li>\n</ol>\n");
    out
}

fn sums(transcript: &Transcript) -> String {
    let cost = transcript.cost();
    let calls: usize = transcript.steps().map(Step::call_count).sum();
    let checks = transcript
        .entries
        .iter()
        .filter(|entry| matches!(entry, Entry::Check(_)))
        .count();
    let mut out = String::from("<ul class=\"sums\">");
    for (count, of) in [
        (transcript.steps().count().to_string(), "steps"),
        (calls.to_string(), "calls"),
        (checks.to_string(), "checks held"),
        (cost.read().to_string(), "read units"),
        ((cost.write() + cost.refused()).to_string(), "write units"),
    ] {
        let _ = write!(out, "<li><b>{count}</b> {of}</li>");
    }
    out.push_str("</ul>\n");
    out
}

fn states(archetype: &Archetype) -> String {
    if archetype.machines.is_empty() {
        return String::new();
    }
    let mut out = String::from("<section id=\"states\">\n<h2>States</h2>\n");
    for (at, machine) in archetype.machines.iter().enumerate() {
        let _ = writeln!(
            out,
            "<figure>{}<div class=\"picture\">{}</div></figure>",
            tag("figcaption", "", machine.entity),
            diagram::svg(machine, &format!("machine-{at}"))
        );
    }
    out + "</section>\n"
}

fn story(transcript: &Transcript) -> String {
    let mut out = String::from("<section>\n");
    let mut sections = 0;
    for entry in &transcript.entries {
        match entry {
            Entry::Section { title, text } => {
                sections += 1;
                let _ = writeln!(
                    out,
                    "</section>\n<section id=\"section-{sections}\">\n{}",
                    tag("h2", "", title)
                );
                if !text.is_empty() {
                    let _ = writeln!(out, "{}", prose("", text));
                }
            }
            Entry::Say(text) => {
                let _ = writeln!(out, "{}", prose("", text));
            }
            Entry::Check(claim) => {
                let _ = writeln!(out, "{}", prose("check", claim));
            }
            Entry::Step(step) => out.push_str(&card(step)),
        }
    }
    out + "</section>\n"
}

fn card(step: &Step) -> String {
    let number = step.number;
    let mut out = format!(
        "<article id=\"step-{number}\">\n<h3><span class=\"number\">{number}</span> {} <span class=\"entities\">{}</span></h3>\n",
        escape(&step.action),
        escape(&step.entities.join(", "))
    );
    let _ = writeln!(out, "{}\n<dl>", prose("why", &step.why));
    let mut row = |name: &str, body: &str| {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{body}</dd>");
    };
    row("abstract", &escape(&step.abstract_layer));
    row("concrete", &escape(&step.concrete_layer));
    let way = if step.when.is_empty() {
        String::new()
    } else {
        tag("p", "way", &step.when)
    };
    let calls: String = step.calls.iter().map(call).collect();
    let calls = if calls.is_empty() {
        "none".to_owned()
    } else {
        format!("<ol class=\"calls\">{calls}</ol>")
    };
    row("calls", &(way + &calls));
    let changes: String = step.changes.iter().map(change).collect();
    match changes.as_str() {
        "" => row("changed", "<span class=\"nothing\">nothing changed</span>"),
        changes => row("changed", &format!("<ul class=\"changes\">{changes}</ul>")),
    }
    let each = step.cost.charges.iter().map(|(resource, charge)| {
        let written = charge.write + charge.refused;
        format!("{resource}: {} RCU, {written} WCU", charge.read)
    });
    let each: Vec<_> = each.collect();
    let mut cost = format!(
        "{} · {} per million",
        escape(&step.cost.text()),
        dollars(step.cost.dollars_per_million())
    );
    if each.len() > 1 {
        let _ = write!(cost, "<br>{}", tag("small", "", &each.join(" · ")));
    }
    row("cost", &cost);
    out + "</dl>\n</article>\n"
}

fn call(call: &SeenCall) -> String {
    let class = if call.outcome == Outcome::Ok {
        "ok"
    } else {
        "refused"
    };
    let mut out = String::from("<li>");
    if call.actor != "main" {
        let _ = write!(out, "{} ", tag("span", "actor", &call.actor));
    }
    let _ = write!(
        out,
        "<code class=\"head\">{}</code>",
        escape(&call_head(call))
    );
    if call.times > 1 {
        let _ = write!(out, " <span class=\"times\">×{}</span>", call.times);
    }
    let _ = write!(out, " {}", tag("span", class, &call.outcome.to_string()));
    for (depth, word, text) in call_lines(call) {
        let word = if word.is_empty() {
            String::new()
        } else {
            tag("b", "", word)
        };
        let _ = write!(
            out,
            "<code class=\"line in-{depth}\">{word}{}</code>",
            escape(&text)
        );
    }
    out + "</li>"
}

fn change(change: &Change) -> String {
    let kind = change.kind();
    let word = if kind == "changed" { "" } else { kind };
    let mut out = format!(
        "<li class=\"{kind}\"><span class=\"item\">{word} <code>{} {}</code></span>",
        escape(&change.table),
        escape(&change.key),
    );
    let attributes = change.attributes();
    if change.kind() != "deleted" && !attributes.is_empty() {
        out.push_str("<table><tbody>");
        for (name, before, after) in attributes {
            let value = |value: Option<String>| match value {
                Some(value) => tag("code", "", &short(&value)),
                None => "<span class=\"nothing\">absent</span>".to_owned(),
            };
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&name));
            if change.kind() == "changed" {
                let _ = write!(out, "<td>{}</td><td>→</td>", value(before));
            }
            let _ = write!(out, "<td>{}</td></tr>", value(after));
        }
        out.push_str("</tbody></table>");
    }
    out + "</li>"
}

fn costs(transcript: &Transcript) -> String {
    let mut out = String::from(
        "<section id=\"cost\">\n<h2>Cost</h2>\n<div class=\"picture\"><table class=\"costs\">\n<thead><tr><th></th><th>action</th>\
         <th>calls</th><th>RCU</th><th>WCU</th><th>refused WCU</th><th>per million</th></tr></thead>\n<tbody>\n",
    );
    for step in transcript.steps() {
        let way = if step.when.is_empty() {
            String::new()
        } else {
            format!(" {}", tag("small", "", &step.when))
        };
        let _ = writeln!(
            out,
            "<tr><td>{number}</td><td><a href=\"#step-{number}\">{}</a>{way}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&step.action),
            step.call_count(),
            step.cost.read(),
            step.cost.write(),
            step.cost.refused(),
            dollars(step.cost.dollars_per_million()),
            number = step.number,
        );
    }
    let sum = transcript.cost();
    let calls: usize = transcript.steps().map(Step::call_count).sum();
    let _ = writeln!(
        out,
        "</tbody>\n<tfoot><tr><td></td><td>all</td><td>{calls}</td><td>{}</td><td>{}</td><td>{}</td><td></td></tr></tfoot>\n</table></div>",
        sum.read(),
        sum.write(),
        sum.refused()
    );
    out.push_str(
        "<p class=\"note\">Units are those DynamoDB reported for these very calls. A refused write is charged \
         too, but not reported; its units are worked out from the size of the item.</p>\n</section>\n",
    );
    out
}
