//! Every mix of conflict and failed condition for the first cancelled transaction, in every order of two that can
//! cancel each other.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Interleave, Mixed};
use office::cast::*;
use office::*;
use scheduler::change_job::Change;
use scheduler::{Overlap, Schedule};
use std::sync::Arc;

#[tokio::test]
async fn every_mix_of_reasons_gives_the_right_answer() {
    // No place, and all three, is a plain failure and a plain conflict.
    for mask in 1..7_u32 {
        let mixed = move || Arc::new(Mixed::at(mask));
        let run = async |actors: Desks| shortly(actors.under(mixed)).run().await.unwrap();
        let change = |actors: Offices, name, change| office_changer(actors, name, change);
        let judge = async |actors: Offices| {
            let actors = actors.under(mixed).check(|office, told| async move {
                office.invariants("job").await?;
                match told.iter().find(|(_, did)| did.contains("already")) {
                    Some((who, did)) => Err(format!("{who}: {did}")),
                    None => Ok(label(&told)),
                }
            });
            actors.run().await.unwrap()
        };
        // Claims beside claims, ends beside claims, a change beside both.
        run(starts(Overlap::QueueOne)).await;
        run(end_and_start(Overlap::QueueOne)).await;
        let actors = claimer(desks(every("job", HOUR)), "worker");
        run(changer(actors, "pauser", Change::Pause)).await;
        // A dispatch beside a change, two changes, two creations.
        let two_hours = Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR });
        let actors = scanner(due(every("job", HOUR)), "scanner");
        judge(change(actors, "changer", two_hours.clone())).await;
        let actors = change(due(every("job", HOUR)), "one", two_hours);
        judge(change(actors, "other", Change::Pause)).await;
        let create = |office: Arc<Office>| async move {
            let created = office.scheduler.create_job(every("job", HOUR)).await;
            created.map_or_else(|error| error.to_string(), |_| "created".to_owned())
        };
        let actors: Offices = Interleave::of(open);
        judge(actors.actor("one", create).actor("other", create)).await;
    }
}
