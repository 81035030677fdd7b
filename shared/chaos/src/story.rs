//! What the drivers share: asking plans beneath them, and telling what happened.

use cloud::tap::{Call, Plan, Request, Verdict};
use futures::FutureExt;
use std::any::Any;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A lock that survives a panic elsewhere: an actor that panics is part of what is tested.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the plans that one run is under.
pub(crate) type MakePlan = Box<dyn Fn() -> Arc<dyn Plan> + Send + Sync>;

/// Asks plans as the tap does: one that rewrites a call hands it on rewritten, and the first that
/// neither passes nor rewrites it decides.
pub(crate) async fn ask(plans: &[Arc<dyn Plan>], request: &Request) -> Verdict {
    let mut rewritten: Option<Request> = None;
    for plan in plans {
        match plan.before(rewritten.as_ref().unwrap_or(request)).await {
            Verdict::Pass => {}
            Verdict::Rewrite(body) => {
                let before = rewritten.unwrap_or_else(|| request.clone());
                rewritten = Some(Request { body, ..before });
            }
            // What was rewritten is still to be sent, with the fate that this plan decides on.
            verdict => {
                return match rewritten {
                    Some(request) => Verdict::RewriteAnd(request.body, Box::new(verdict)),
                    None => verdict,
                };
            }
        }
    }
    rewritten.map_or(Verdict::Pass, |request| Verdict::Rewrite(request.body))
}

/// Tells plans what became of a call.
pub(crate) async fn tell(plans: &[Arc<dyn Plan>], call: &Call) {
    for plan in plans {
        plan.after(call).await;
    }
}

/// A call in one line, with its keys and values: what a reader of a broken schedule needs.
pub(crate) fn told(call: &Call) -> String {
    let mut line = call.to_string();
    for target in &call.request.targets {
        let key = target.key.clone();
        let condition = target.condition.as_ref().map(|text| format!("if {text}"));
        let parts = [key, target.update.clone(), condition];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            let _ = write!(line, "  [{}]", parts.join(" | "));
        }
    }
    line
}

/// Numbered lines, for the errors.
pub(crate) fn numbered(f: &mut std::fmt::Formatter<'_>, lines: &[String]) -> std::fmt::Result {
    for (number, line) in (1..).zip(lines) {
        write!(f, "\n  {number:>3}  {line}")?;
    }
    Ok(())
}

/// The result of `work`, or what it said when it panicked.
pub(crate) async fn or_panic<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Why a run in which a call slipped past is worth nothing.
pub(crate) fn slipped(line: &str) -> String {
    format!(
        "a call was decided by a plan that stands before this one, so it was neither held nor \
         counted: {line}. Give that plan to `.under(…)` instead of installing it in the set-up"
    )
}
