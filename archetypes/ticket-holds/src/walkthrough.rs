//! The story, told twice: with DynamoDB alone, and with a lease layer before it; then what both
//! cost, side by side, and what goes beyond the documents.

use crate::api::SERVE;
use crate::bench::BENCH;
use crate::domain::{HOLD_MS, TicketStatus};
use crate::sandbox_cards::{DECLINED_CARD, SandboxCards};
use crate::tables::{ACTIONS, MACHINES, TABLES};
use crate::{
    BookingState, BoxOffice, Cancelling, Confirming, Creation, Expiry, Extension, NewAdmissions,
    NewBooking, NewEvent, NewSection, OfficeError, Over, Purchase, Realization, Rejection,
    Reserved, Seat, Tickets,
};
use anyhow::{Result, bail};
use cloud::tap::{Plan, Request, Verdict};
use cloud::{Cloud, as_actor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use walkthrough::{Archetype, BoxFuture, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "ticket-holds",
        title: "Ticket holds: time-bounded exclusive allocation",
        question: "How is a seat mine for ten minutes, and then nobody's?",
        tables: TABLES,
        resources: &[],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &[SERVE, BENCH],
    }
}

/// An on-sale, for each hold: nine who come too late, a quarter of the holds given up. Looks at sections are
/// not in it: a server reads a section once a second, however many look.
const WORKLOAD: Workload = Workload {
    unit: "holds",
    mix: &[
        share("reserve seat", 1.0).when("pure"),
        share("reject competing reserver", 9.0).when("pure"),
        share("confirm purchase", 0.75).when("pure"),
        share("release stale hold", 0.25).when("pure"),
    ],
    skew: &[
        Skew {
            resource: "tickets",
            action: "",
            hottest: 0.1,
            why: "everybody wants the front sections: one of them takes a tenth",
        },
        Skew {
            resource: "tickets/by_change",
            action: "",
            hottest: 0.1,
            why: "a local index shares its table's partition key",
        },
        Skew {
            resource: "bookings/due",
            action: "",
            hottest: 0.25,
            why: "four shards",
        },
    ],
    kept_days: 30,
};

const MINUTE: Duration = Duration::from_secs(60);

/// The event of the story: five seats in A, and a floor.
fn proms(cloud: &Cloud) -> NewEvent {
    let section = |name: &str, tickets, price| NewSection {
        name: name.into(),
        tickets,
        price,
    };
    NewEvent {
        event_id: cloud.ids().next("event"),
        name: "Night of the proms".into(),
        sections: vec![
            section("A", Tickets::Seats(5), 85_00),
            section("Floor", Tickets::Admissions(100), 40_00),
        ],
    }
}

fn seat(number: u32) -> Seat {
    Seat {
        section: "A".into(),
        number,
    }
}

/// A booking under a fresh id.
fn ask(cloud: &Cloud, event_id: &str, user_id: &str, seats: &[u32]) -> NewBooking {
    NewBooking {
        booking_id: cloud.ids().next("booking"),
        event_id: event_id.to_owned(),
        user_id: user_id.to_owned(),
        seats: seats.iter().copied().map(seat).collect(),
    }
}

fn booking(reserved: Reserved) -> Result<BookingState> {
    match reserved {
        Reserved::Held(booking) => Ok(booking),
        other => bail!("no hold was made: {other:?}"),
    }
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    story.section(
        "With DynamoDB alone",
        "A seat and its hold are one item, because a condition can look at nothing but the item it \
         writes. The hold carries its own end, `hold_expires_at`; from then on it holds nothing, \
         whether or not anybody has written that down.",
    );
    let office = BoxOffice::new(cloud.clone(), Realization::Pure);
    let event = proms(&cloud);
    story
        .step("create event", "Five seats and a floor. Each item is written only if it is not there: a repetition puts nothing back on sale.", async {
            Ok(office.create_event(&event).await?)
        })
        .await?;
    an_evening(story, &office, &event.event_id).await?;
    overtaken(story, &office, &event.event_id).await?;

    story.section(
        "The same with leases in Redis",
        "Redis says no first. A key for each held seat, its value the booking, its life the hold's: \
         a competitor is refused by one command. It is a shield and no judge: what DynamoDB says \
         under its guard decides, so a lost lease costs only what it would have saved.",
    );
    // The story waits for a slow machine, where an office would go on without Redis.
    let office = BoxOffice::new(cloud.clone(), Realization::Leased)
        .with_lease_patience(Duration::from_secs(5));
    let event = proms(&cloud);
    office.create_event(&event).await?;
    an_evening(story, &office, &event.event_id).await?;
    let view = story
        .step("view seat availability", "A free seat, on the other hand, is looked up in Redis too: somebody may be about to write what the table does not show yet.", async {
            Ok(office.view_seat(&event.event_id, &seat(5)).await?)
        })
        .await?;
    story.check(view.status == TicketStatus::Available, "A-5 is free")?;
    forgotten(story, &office, &event.event_id).await?;
    side_by_side(story)?;

    beyond(story, &cloud).await
}

/// The documents' actions, in either realization.
async fn an_evening(story: &mut Story, office: &BoxOffice, event_id: &str) -> Result<()> {
    let cloud = office.cloud().clone();
    let alice = story
        .step("reserve seat", "Alice wants two seats together: all or none, in one transaction. Each ticket's `fence` goes from 0 to 1, and her booking remembers it.", async {
            booking(office.reserve(&ask(&cloud, event_id, "alice", &[1, 2])).await?)
        })
        .await?;
    story.check(
        alice.hold_expires_at == cloud.now() + HOLD_MS,
        "both seats are hers for ten minutes",
    )?;
    let told = story
        .step(
            "reject competing reserver",
            "Bob wants one of them. The answer is no, with the time when it may be yes.",
            async { Ok(office.reserve(&ask(&cloud, event_id, "bob", &[2])).await?) },
        )
        .await?;
    story.check(
        matches!(&told, Reserved::Rejected(Rejection::Held { seat, .. }) if seat.number == 2),
        "Bob is told that A-2 is held",
    )?;
    let view = story
        .step("view seat availability", "What he sees when he looks at the seat. It is advice: the guard decides when he clicks.", async {
            Ok(office.view_seat(event_id, &seat(2)).await?)
        })
        .await?;
    story.check(view.status == TicketStatus::Held, "A-2 is held")?;
    cloud.clock().advance(MINUTE);
    let told = story
        .step("confirm purchase", "Alice buys. Booking and tickets change together, if each ticket still bears her booking and her fence, and her time is not over. Where there are leases, they say SOLD from then on.", async {
            Ok(office.confirm(&alice.booking_id).await?)
        })
        .await?;
    story.check(
        matches!(told, Confirming::Confirmed(_)),
        "A-1 and A-2 are sold, to one booking",
    )?;
    let carol = story
        .step(
            "reserve seat",
            "Carol takes two more, and her train enters a tunnel.",
            async {
                booking(
                    office
                        .reserve(&ask(&cloud, event_id, "carol", &[3, 4]))
                        .await?,
                )
            },
        )
        .await?;
    time_passes(office, event_id).await?;
    let map = story
        .step("view seat availability", "Ten minutes later. No sweeper has come, and A-3 and A-4 still say HELD; to whoever asks they are free.", async {
            Ok(office.seat_map(event_id, "A").await?)
        })
        .await?;
    let free: Vec<_> = map
        .seats
        .iter()
        .filter(|seat| seat.status == TicketStatus::Available)
        .map(|seat| seat.seat.as_str())
        .collect();
    story.check(free == ["A-3", "A-4", "A-5"], "A-3, A-4 and A-5 are free")?;
    let dave = story
        .step("reserve seat", "Dave takes A-3 as it is: HELD, and over. The fence goes from 1 to 2. He waits for nobody.", async {
            booking(office.reserve(&ask(&cloud, event_id, "dave", &[3])).await?)
        })
        .await?;
    story.check(
        dave.lines.iter().all(|line| line.fence == Some(2)),
        "Dave's hold is the second on A-3",
    )?;
    let late = story
        .step("release stale hold", "Now the sweeper. It reads Carol's booking and ends it; of her seats it touches only what is still hers.", async {
            Ok(office.expire_due().await)
        })
        .await?;
    let released = match office.realization {
        Realization::Pure => 1,
        Realization::Leased => 0,
    };
    story.check(
        matches!(late.as_slice(), [(id, Ok(Expiry::Expired(seats)))] if *id == carol.booking_id && *seats == released),
        "Carol's booking is EXPIRED, and Dave's A-3 is still Dave's",
    )?;
    let told = office.confirm(&carol.booking_id).await?;
    story.check(
        told == Confirming::Refused(Over::Expired),
        "when Carol's train leaves the tunnel, she cannot confirm any more",
    )?;
    let told = office.confirm(&dave.booking_id).await?;
    story.check(matches!(told, Confirming::Confirmed(_)), "Dave can")
}

/// Two at once, with DynamoDB alone: the loser's guard fails.
async fn overtaken(story: &mut Story, office: &BoxOffice, event_id: &str) -> Result<()> {
    let cloud = office.cloud().clone();
    story.section(
        "Two at once",
        "Erin and Frank want A-5, and both have read that it is free. One guard fails, and the \
         refusal brings the ticket as it is now: no second read, and the right answer.",
    );
    let frank = ask(&cloud, event_id, "frank", &[5]);
    let overtaking = cloud.tap().install(Arc::new(Overtake {
        office: office.clone(),
        new: frank.clone(),
        done: AtomicBool::new(false),
    }));
    let told = story
        .step(
            "reject competing reserver",
            "Erin reads; Frank reads and holds; Erin writes, and is told whose it is.",
            async {
                let new = ask(&cloud, event_id, "erin", &[5]);
                Ok(as_actor("erin", office.reserve(&new)).await?)
            },
        )
        .await?;
    drop(overtaking);
    story.check(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "Frank has it, Erin does not",
    )?;
    let told = office.confirm(&frank.booking_id).await?;
    story.check(
        matches!(told, Confirming::Confirmed(_)),
        "and Frank buys it",
    )
}

/// A lease that is lost, while the hold is not.
async fn forgotten(story: &mut Story, office: &BoxOffice, event_id: &str) -> Result<()> {
    let cloud = office.cloud().clone();
    story.section(
        "Redis forgets",
        "A failover, or somebody's FLUSHALL: every lease is gone, and Erin's hold is not. Frank's \
         SET NX succeeds, and DynamoDB says no. Without that, both would hold the seat.",
    );
    let erin = booking(office.reserve(&ask(&cloud, event_id, "erin", &[5])).await?)?;
    leases_end(office, event_id).await?;
    let told = story
        .step("reject competing reserver", "Frank takes the lease that should have been Erin's, reads HELD, and lets the lease go again.", async {
            Ok(office.reserve(&ask(&cloud, event_id, "frank", &[5])).await?)
        })
        .await?;
    story.check(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "Frank is refused",
    )?;
    let told = office.confirm(&erin.booking_id).await?;
    story.check(
        matches!(told, Confirming::Confirmed(_)),
        "and Erin buys: she never knew",
    )
}

/// Round trips and units of both, from what was really done above.
fn side_by_side(story: &mut Story) -> Result<()> {
    story.section(
        "Side by side",
        "The same evening, in round trips and units. A round trip to Redis is a fraction of one to \
         DynamoDB, and nobody charges for it by the unit.",
    );
    let row = |action: &str, way: &str| {
        let step = story
            .transcript()
            .steps()
            .find(|step| step.action == action && step.when == way);
        step.map(|step| {
            let redis = step
                .calls
                .iter()
                .filter(|call| call.service == cloud::tap::Service::Redis);
            let redis: usize = redis.map(|call| call.times).sum();
            let all: usize = step.calls.iter().map(|call| call.times).sum();
            (all - redis, redis, step.cost.read(), step.cost.write())
        })
    };
    let mut lines = Vec::new();
    let mut refused = Vec::new();
    for (action, pure, leased) in [
        ("reserve seat", "pure", "leased"),
        ("reject competing reserver", "pure", "leased"),
        ("confirm purchase", "pure", "leased"),
        ("release stale hold", "pure", "leased"),
    ] {
        let (Some(pure), Some(leased)) = (row(action, pure), row(action, leased)) else {
            bail!("'{action}' was not walked in both realizations");
        };
        if action == "reject competing reserver" {
            refused = vec![pure.2, leased.2];
        }
        lines.push(format!(
            "{action}. Pure: {} × DynamoDB, {} RCU, {} WCU. With leases: {} × DynamoDB, {} × Redis, {} RCU, {} WCU.",
            pure.0, pure.2, pure.3, leased.0, leased.1, leased.2, leased.3
        ));
    }
    for line in lines {
        story.say(&line);
    }
    story.say(
        "Leases do not make a hold cheaper: they make a refusal free, as long as they last. With ten \
         buyers for each seat, refusals are nine tenths of the traffic.",
    );
    story.check(
        refused.first() > refused.last(),
        "with leases, whoever comes too late costs DynamoDB nothing",
    )
}

/// What goes beyond the documents.
async fn beyond(story: &mut Story, cloud: &Cloud) -> Result<()> {
    let office = BoxOffice::new(cloud.clone(), Realization::Pure);
    let cards = SandboxCards::new(cloud.clone());
    let event = proms(cloud);
    office.create_event(&event).await?;
    let event_id = event.event_id.as_str();
    let as_of = cloud.now();

    story.section(
        "More time, once",
        "Grace looks for her card. One extension, while there still is time: booking and tickets get \
         the new end together.",
    );
    let grace = booking(office.reserve(&ask(cloud, event_id, "grace", &[1])).await?)?;
    cloud.clock().advance(MINUTE);
    let told = story
        .step("extend hold", "Five more minutes.", async {
            Ok(office.extend_hold(&grace.booking_id).await?)
        })
        .await?;
    story.check(
        told == Extension::Until(grace.hold_expires_at + 300_000),
        "her hold lasts fifteen minutes",
    )?;

    story.section(
        "Paying",
        "Never charge first. The booking says that a payment is open, the card is authorized, the \
         booking is confirmed, and only then is the money taken. Whoever dies on the way leaves the \
         booking in the sweeper's index.",
    );
    let pay = |payment_id: String, card: &'static str| {
        let (office, cards, id) = (office.clone(), cards.clone(), grace.booking_id.clone());
        async move { Ok(office.purchase(&cards, &id, &payment_id, card).await?) }
    };
    let told = story
        .step(
            "purchase with a card",
            "Her first card is declined. The hold stays.",
            pay(cloud.ids().next("payment"), DECLINED_CARD),
        )
        .await?;
    story.check(told == Purchase::Declined, "nothing was taken")?;
    cloud.clock().advance(MINUTE);
    let payment_id = cloud.ids().next("payment");
    let told = story
        .step(
            "purchase with a card",
            "The second is good: said, authorized, confirmed, captured, settled.",
            pay(payment_id.clone(), "card"),
        )
        .await?;
    story.check(matches!(told, Purchase::Bought(_)), "A-1 is Grace's")?;

    story.section(
        "Giving it back",
        "Grace cannot come. The seat is on sale again in the same moment; the refund is the \
         processor's time, and the sweeper sees to it.",
    );
    let told = story
        .step(
            "cancel booking",
            "CONFIRMED → CANCELLED, SOLD → AVAILABLE, and the payment is open again.",
            async { Ok(office.cancel(&grace.booking_id).await?) },
        )
        .await?;
    story.check(
        matches!(told, Cancelling::Cancelled(_)),
        "the seat is on sale",
    )?;
    story
        .step(
            "settle payment",
            "The sweeper finds the booking by its open payment.",
            async { Ok(office.sweep(&cards).await) },
        )
        .await?;
    let charge = cards
        .charge(&format!("{}#{payment_id}", grace.booking_id))
        .await?;
    story.check(
        charge.is_some_and(|charge| charge.status == "REFUNDED"),
        "the money is back",
    )?;

    story.section(
        "A floor without seats",
        "A hundred admissions that nobody can tell apart. One counter would be one hot item, so \
         there are ten, and a booking begins at the one its id points to.",
    );
    let heidi = story
        .step(
            "reserve general admission",
            "Heidi takes three from one counter.",
            async {
                booking(
                    office
                        .reserve_admissions(&NewAdmissions {
                            booking_id: cloud.ids().next("booking"),
                            event_id: event_id.to_owned(),
                            user_id: "heidi".into(),
                            section: "Floor".into(),
                            count: 3,
                        })
                        .await?,
                )
            },
        )
        .await?;
    story.check(heidi.tickets() == 3, "three are hers for ten minutes")?;

    story.section(
        "An office that dies while it creates",
        "A large event is made in passes, and its office may die after any call. Until all tickets are \
         there, the event is CREATING and nothing of it is on sale.",
    );
    let second = proms(cloud);
    let dying = cloud.tap().install(Arc::new(DiesCreating));
    let died = as_actor("organizer", office.create_event(&second)).await;
    drop(dying);
    let asked = office.event(&second.event_id).await;
    story.check(
        died.is_err() && matches!(asked, Err(OfficeError::NotOnSale(_))),
        "the event is announced, and not on sale",
    )?;
    cloud.clock().advance(MINUTE);
    let passes = story
        .step(
            "create event",
            "A sweeper finds it, and goes on where its office stopped.",
            async { Ok(office.create_due().await?) },
        )
        .await?;
    story.check(
        matches!(passes.as_slice(), [(_, Ok(Creation::OnSale))]),
        "now it is on sale",
    )?;

    story.section(
        "The map in the browser",
        "Twenty thousand seats are read once. After that a browser asks for what has changed.",
    );
    let changes = story
        .step(
            "view seat-map changes",
            "Everything above happened to one seat of section A.",
            async { Ok(office.seat_changes(event_id, "A", as_of).await?) },
        )
        .await?;
    story.check(
        changes.seats.len() == 1,
        "one seat, as it is now, not the four things that happened to it",
    )
}

/// Ten minutes pass, and with them the leases. Redis's own clock cannot be turned, so the story ends
/// them as Redis would.
async fn time_passes(office: &BoxOffice, event_id: &str) -> Result<()> {
    let clock = office.cloud().clock();
    clock.advance(Duration::from_millis(HOLD_MS as u64 + 1));
    leases_end(office, event_id).await
}

async fn leases_end(office: &BoxOffice, event_id: &str) -> Result<()> {
    if office.realization == Realization::Pure {
        return Ok(());
    }
    let mut redis = office.cloud().beside_tap().redis().await?;
    let mut del = redis::cmd("DEL");
    for number in 1..=5 {
        let block = crate::domain::block_id(event_id, "A");
        del.arg(office.lease_key(&block, &seat(number).key()));
    }
    Ok(del.query_async(&mut redis).await?)
}

/// The organizer's office dies before its first tickets.
struct DiesCreating;

impl Plan for DiesCreating {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let dies = request.operation == "TransactWriteItems";
        Box::pin(async move { if dies { Verdict::Kill } else { Verdict::Pass } })
    }
}

/// Lets somebody else's hold in between a reserver's read and write.
struct Overtake {
    office: BoxOffice,
    new: NewBooking,
    done: AtomicBool,
}

impl Plan for Overtake {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async {
            let moment = &*request.actor == "erin" && request.operation == "TransactWriteItems";
            if moment && !self.done.swap(true, Ordering::SeqCst) {
                // A failure shows in the story: Erin would hold the seat.
                let _ = as_actor("frank", self.office.reserve(&self.new)).await;
            }
            Verdict::Pass
        })
    }
}
