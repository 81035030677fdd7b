//! A guard that no longer guards.
//!
//! A test that passes with and without a guard does not test the guard. So take the guard away
//! and see that some test fails.

use crate::{Interleave, World};
use cloud::tap::{Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Always true, whatever the item. No table has an attribute of this name.
const TAUTOLOGY: &str = "attribute_exists(zz_) OR attribute_not_exists(zz_)";

/// A plan that makes the conditions on one table always true.
///
/// DynamoDB refuses a request with placeholders it does not use, so the condition stays and is
/// joined to a tautology by `OR`. Conditions of single writes and within transactions are
/// weakened alike, a `ConditionCheck` too. A recording shows the condition as it was sent. Several
/// of these may be in charge at once, one for each table.
///
/// Not for real AWS, whose signature covers the body.
#[derive(Debug)]
pub struct Weaken {
    table: String,
    containing: Option<String>,
    without: Option<String>,
    applied: AtomicUsize,
}

impl Weaken {
    /// Every condition on this table, by its name without prefix.
    pub fn guard_on(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            containing: None,
            without: None,
            applied: AtomicUsize::new(0),
        }
    }

    /// Only conditions with this text in them, as written or with placeholders filled in.
    pub fn containing(mut self, text: &str) -> Self {
        self.containing = Some(text.to_owned());
        self
    }

    /// Only this clause of a condition, as it is written in the expression (`end_time > :now`);
    /// the rest still guards. Conditions without the clause stay as they are. Not for a clause
    /// under `NOT`, which would become never true.
    pub fn without(mut self, clause: &str) -> Self {
        self.without = Some(spaced(clause));
        self
    }

    /// How many conditions were weakened: zero means that a test proved nothing.
    pub fn applied(&self) -> usize {
        self.applied.load(Ordering::SeqCst)
    }

    /// The condition without its force, if it is one of those meant.
    fn weakened(&self, condition: &str, filled: Option<&str>) -> Option<String> {
        let meant = |text: &String| {
            condition.contains(text) || filled.is_some_and(|filled| filled.contains(text))
        };
        if !self.containing.as_ref().is_none_or(meant) {
            return None;
        }
        let Some(clause) = &self.without else {
            return Some(format!("({condition}) OR {TAUTOLOGY}"));
        };
        // The clause may be broken over lines in the source.
        let condition = spaced(condition);
        let start = find_clause(&condition, clause)?;
        let (before, rest) = condition.split_at(start);
        let after = &rest[clause.len()..];
        let always = format!("({clause}) OR {TAUTOLOGY}");
        // DynamoDB refuses parentheses around parentheses.
        if before.ends_with('(') && after.starts_with(')') {
            return Some(format!("{before}{always}{after}"));
        }
        Some(format!("{before}({always}){after}"))
    }

    fn rewrite(&self, request: &Request) -> Option<Value> {
        if request.service != Service::DynamoDb {
            return None;
        }
        let mut body = request.body.clone();
        let parts: Vec<&mut Value> = if request.operation == "TransactWriteItems" {
            let parts = body.get_mut("TransactItems")?.as_array_mut()?.iter_mut();
            parts
                .filter_map(Value::as_object_mut)
                .flat_map(|part| part.values_mut())
                .collect()
        } else {
            vec![&mut body]
        };
        let mut applied = 0;
        // The tap lists the targets of a request in the order of its parts.
        for (part, target) in parts.into_iter().zip(&request.targets) {
            let Some(condition) = part.get("ConditionExpression").and_then(Value::as_str) else {
                continue;
            };
            if target.resource != self.table {
                continue;
            }
            if let Some(weakened) = self.weakened(condition, target.condition.as_deref()) {
                part["ConditionExpression"] = weakened.into();
                applied += 1;
            }
        }
        self.applied.fetch_add(applied, Ordering::SeqCst);
        (applied > 0).then_some(body)
    }
}

impl Plan for Weaken {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = self
            .rewrite(request)
            .map_or(Verdict::Pass, Verdict::Rewrite);
        Box::pin(async move { verdict })
    }
}

/// Runs these actors without a guard: some order must break, and `why` must be in what it says.
///
/// # Panics
/// If every order holds, if the guard was not met, or if it breaks for another reason.
pub async fn breaks<W: World, T: Send + 'static>(
    actors: Interleave<W, T>,
    weaken: Weaken,
    why: &str,
) {
    let weaken = Arc::new(weaken);
    let under = Arc::clone(&weaken);
    let broken = actors.under(move || Arc::clone(&under)).run().await;
    let broken = broken.expect_err("it holds without the guard");
    assert!(weaken.applied() > 0, "the guard was not met");
    assert!(broken.why.contains(why), "{broken:?}");
}

fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the clause stands whole: `a = :b` is not in `aa = :b`, nor in `a = :bb`.
fn find_clause(condition: &str, clause: &str) -> Option<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '#' | ':' | '.');
    let mut matches = condition.match_indices(clause).map(|(start, _)| start);
    matches.find(|start| {
        let before = condition[..*start].chars().next_back();
        let after = condition[start + clause.len()..].chars().next();
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_is_replaced_only_where_it_stands_whole() {
        let weaken = Weaken::guard_on("auctions").without("best < :new");
        let weakened = weaken.weakened("best < :newest\n AND best  < :new AND open", None);
        let expected = format!("best < :newest AND ((best < :new) OR {TAUTOLOGY}) AND open");
        assert_eq!(weakened.as_deref(), Some(expected.as_str()));
        assert_eq!(weaken.weakened("nbest < :new", None), None);
        let weakened = weaken.weakened("open AND (best < :new)", None);
        let expected = format!("open AND ((best < :new) OR {TAUTOLOGY})");
        assert_eq!(weakened.as_deref(), Some(expected.as_str()));
    }
}
