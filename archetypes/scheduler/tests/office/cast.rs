//! Who acts in the stories of the interleavings, and again where a guard is taken away.
#![allow(dead_code, clippy::unwrap_used)]

use super::*;
use chaos::Interleave;
use scheduler::change_job::Change;
use scheduler::{Enqueued, Misfire};

pub type Desks = Interleave<Desk, String>;
pub type Offices = Interleave<Office, String>;

pub fn desks(job: NewJob) -> Desks {
    Interleave::of(move || desk(job.clone()))
}

/// An office whose job is due at this hour, and not dispatched.
pub async fn due_office(job: NewJob) -> Office {
    let office = with_job(job).await;
    office.advance(HOUR);
    office
}

pub fn due(job: NewJob) -> Offices {
    Interleave::of(move || due_office(job.clone()))
}

/// After each order the invariants hold, and after some rounds of life everything has ended once.
pub fn desks_end_well(actors: Desks) -> Desks {
    actors.check(|desk, told| async move {
        ends_well(&desk.office, "job", 3).await?;
        Ok(label(&told))
    })
}

pub fn offices_end_well(actors: Offices) -> Offices {
    actors.check(|office, told| async move {
        ends_well(&office, "job", 3).await?;
        Ok(label(&told))
    })
}

/// The invariants alone: where the orders are many, and nobody is left to finish anything.
pub fn shortly(actors: Desks) -> Desks {
    actors.check(|desk, told| async move {
        desk.office.invariants("job").await?;
        Ok(label(&told))
    })
}

pub fn claimer(actors: Desks, name: &'static str) -> Desks {
    actors.actor(name, move |desk| async move {
        let did = desk.try_claim(name, false).await;
        desk.through(name);
        did
    })
}

pub fn worker(actors: Desks, name: &'static str) -> Desks {
    actors.actor(name, move |desk| async move { desk.work(name).await })
}

pub fn changer(actors: Desks, name: &'static str, change: Change) -> Desks {
    actors.actor(name, move |desk| {
        let change = change.clone();
        async move {
            let changed = desk
                .office
                .scheduler
                .change_job("acme/job", &change, name)
                .await;
            desk.through(name);
            changed.map_or_else(|error| error.to_string(), |_| "done".to_owned())
        }
    })
}

pub fn office_changer(actors: Offices, name: &'static str, change: Change) -> Offices {
    actors.actor(name, move |office| {
        let change = change.clone();
        async move {
            let changed = office.scheduler.change_job("acme/job", &change, name).await;
            changed.map_or_else(|error| error.to_string(), |_| "done".to_owned())
        }
    })
}

pub fn scanner(actors: Offices, name: &'static str) -> Offices {
    actors.actor(name, |office| async move {
        let found = office.scheduler.enqueue(&id("job", HOUR)).await.unwrap();
        match found {
            Enqueued::Sent { .. } => "sent".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    })
}

/// One has claimed; to the other, whose clock is ahead, the lease has expired.
pub fn claimed(job: NewJob) -> Desks {
    Interleave::of(move || {
        let job = job.clone();
        async move {
            let mut desk = desk(job).await;
            desk.run = Some(desk.claim("first").await);
            desk
        }
    })
}

pub fn taker(actors: Desks) -> Desks {
    actors.actor(
        "second",
        |desk| async move { desk.work_late("second").await },
    )
}

pub fn completer(actors: Desks) -> Desks {
    actors.actor("first", |desk| async move { desk.complete().await })
}

/// Two executions of a job are in the queue at once, and neither is missed; both messages are in hand.
pub async fn two_due(overlap: Overlap) -> Desk {
    let mut desk = desk(NewJob {
        overlap,
        misfire: Misfire::RunAll,
        ..every("job", HOUR)
    })
    .await;
    desk.office.advance(HOUR);
    desk.office.scan().await;
    desk.second = desk.office.receive().await;
    desk
}

/// Both want to begin.
pub fn starts(overlap: Overlap) -> Desks {
    let actors = claimer(Interleave::of(move || two_due(overlap)), "one");
    actors.actor("other", |desk| async move {
        desk.try_claim("other", true).await
    })
}

/// One has begun and ends; the other wants to begin.
pub fn end_and_start(overlap: Overlap) -> Desks {
    let begun = Interleave::of(move || async move {
        let mut desk = two_due(overlap).await;
        desk.run = Some(desk.claim("one").await);
        desk
    });
    let actors = begun.actor("one", |desk| async move { desk.complete().await });
    actors.actor("other", |desk| async move {
        let worker = desk.office.worker("other");
        let message = desk.second.as_ref().unwrap();
        word(&desk.office.handle(&worker, message).await)
    })
}
