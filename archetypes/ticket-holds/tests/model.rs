//! Random stories over every feature at once against an oracle: holds, admissions, the same again, extensions,
//! confirmations, good and bad cards, cancellations, sweeps, a Redis that forgets, time. With DynamoDB alone in bad
//! weather too; with leases in fair weather, since a lease whose release is lost keeps others away for a while.
//!
//! The oracle keeps sentences, not code: a seat is a buyer's if nobody owns it and no hold of it lasts; nobody has
//! more than three tickets; a hold that lasts can be extended once, confirmed, paid for or cancelled, and one
//! that is over can do nothing; the same request gets the same booking.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::{Faults, Weaken};
use cloud::Millis;
use futures::FutureExt;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use ticket_holds::domain::{EXTENSION_MS, HOLD_MS, TicketStatus};
use ticket_holds::sandbox_cards::DECLINED_CARD;
use ticket_holds::{
    BookingStatus, BoxOffice, Cancelling, Confirming, Extension, NewAdmissions, NewBooking,
    Purchase, Realization, Reserved, Rules,
};
use venue::{ADMISSIONS, SEATS, Venue, open_alone, patient, seat};

in_both_realizations!(
    random_stories_agree_with_the_oracle,
    the_oracle_finds_a_planted_bug,
);

const USERS: [&str; 3] = ["alice", "bob", "carol"];
const LIMIT: u32 = 3;

#[derive(Debug, Clone)]
enum Step {
    Hold { user: usize, seats: Vec<u32> },
    Floor { user: usize, count: u32 },
    Again { which: usize },
    Extend { which: usize },
    Confirm { which: usize },
    Pay { which: usize, good: bool },
    Cancel { which: usize },
    Sweep,
    Forget,
    Pass { minutes: u64 },
}

fn tales() -> impl Strategy<Value = Vec<Step>> {
    let user = || 0..USERS.len();
    let which = || 0..8_usize;
    let seats = proptest::sample::subsequence((1..=SEATS).collect::<Vec<_>>(), 1..=2);
    let step = prop_oneof![
        6 => (user(), seats).prop_map(|(user, seats)| Step::Hold { user, seats }),
        2 => (user(), 1..=LIMIT).prop_map(|(user, count)| Step::Floor { user, count }),
        2 => which().prop_map(|which| Step::Again { which }),
        2 => which().prop_map(|which| Step::Extend { which }),
        2 => which().prop_map(|which| Step::Confirm { which }),
        6 => (which(), any::<bool>()).prop_map(|(which, good)| Step::Pay { which, good }),
        2 => which().prop_map(|which| Step::Cancel { which }),
        1 => Just(Step::Sweep),
        1 => Just(Step::Forget),
        3 => (1..8_u64).prop_map(|minutes| Step::Pass { minutes }),
    ];
    proptest::collection::vec(step, 15..40)
}

#[derive(Debug, Clone)]
struct Kept {
    id: String,
    user: &'static str,
    seats: Vec<u32>,
    floor: u32,
    until: Millis,
    extended: bool,
    status: BookingStatus,
    paid: bool,
}

impl Kept {
    fn lasts(&self, now: Millis) -> bool {
        self.status == BookingStatus::InProgress && self.until > now
    }

    /// Whether it counts for its user.
    fn counts(&self, now: Millis) -> bool {
        self.status == BookingStatus::Confirmed || self.lasts(now)
    }

    fn tickets(&self) -> u32 {
        self.seats.len() as u32 + self.floor
    }
}

/// A client that gets no answer sends the same again.
async fn until_answered<T, E: std::fmt::Display>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    for _ in 0..100 {
        if let Ok(answer) = ask().await {
            return answer;
        }
    }
    panic!("no answer in a hundred tries");
}

struct Tale {
    venue: Venue,
    office: BoxOffice,
    kept: Vec<Kept>,
    refused: usize,
}

impl Tale {
    fn now(&self) -> Millis {
        self.venue.office.cloud().now()
    }

    fn seats_of(&self, kept: &Kept) -> NewBooking {
        NewBooking {
            booking_id: kept.id.clone(),
            event_id: self.venue.event_id.clone(),
            user_id: kept.user.into(),
            seats: kept.seats.iter().copied().map(seat).collect(),
        }
    }

    async fn ask(&self, kept: &Kept) -> Reserved {
        if kept.floor == 0 {
            let new = self.seats_of(kept);
            return until_answered(async || self.office.reserve(&new).await).await;
        }
        let new = NewAdmissions {
            booking_id: kept.id.clone(),
            event_id: self.venue.event_id.clone(),
            user_id: kept.user.into(),
            section: "Floor".into(),
            count: kept.floor,
        };
        until_answered(async || self.office.reserve_admissions(&new).await).await
    }

    async fn hold(&mut self, number: usize, user: usize, seats: Vec<u32>, floor: u32) {
        let now = self.now();
        let new = Kept {
            id: format!("b-{number}"),
            user: USERS[user],
            seats,
            floor,
            until: now + HOLD_MS,
            extended: false,
            status: BookingStatus::InProgress,
            paid: false,
        };
        let counting = self
            .kept
            .iter()
            .filter(|kept| kept.user == new.user && kept.counts(now));
        let room = counting.map(Kept::tickets).sum::<u32>() + new.tickets() <= LIMIT;
        let taken = |seat: &u32| {
            let has = |kept: &Kept| kept.seats.contains(seat) && kept.counts(now);
            self.kept.iter().any(has)
        };
        let free = !new.seats.iter().any(taken);
        // Admissions come back when their hold is ended, which may be later than its time.
        let of_floor = |counts: &dyn Fn(&Kept) -> bool| {
            let taken = self.kept.iter().filter(|kept| counts(kept));
            ADMISSIONS - taken.map(|kept| kept.floor).sum::<u32>()
        };
        let ended = [BookingStatus::Expired, BookingStatus::Cancelled];
        let surely = of_floor(&|kept| !ended.contains(&kept.status)) >= floor;
        let perhaps = of_floor(&|kept| kept.counts(now)) >= floor;
        let told = self.ask(&new).await;
        match &told {
            Reserved::Held(booking) | Reserved::Before(booking) => {
                assert!(room && free && perhaps, "{new:?} was held");
                assert_eq!(booking.hold_expires_at, new.until);
                self.kept.push(new);
            }
            Reserved::Rejected(why) => {
                assert!(!(room && free && surely), "{new:?} was refused: {why}");
                self.refused += 1;
            }
        }
    }

    async fn change(&mut self, number: usize, step: &Step, which: usize) {
        let (now, Some(mut kept)) = (self.now(), self.kept.get(which).cloned()) else {
            return;
        };
        let (office, id, lasts) = (&self.office, kept.id.clone(), kept.lasts(now));
        match step {
            Step::Again { .. } => match self.ask(&kept).await {
                Reserved::Before(there) => {
                    let over = kept.status == BookingStatus::InProgress && !lasts;
                    let fits = there.status == kept.status
                        || (over && there.status == BookingStatus::Expired);
                    assert!(fits, "{kept:?}: {there:?}");
                }
                // Its seat is another's by now, and that one's lease answers first.
                Reserved::Rejected(why) => assert!(!kept.counts(now), "{kept:?}: {why}"),
                Reserved::Held(booking) => panic!("made twice: {booking:?}"),
            },
            Step::Extend { .. } => {
                let told = until_answered(async || office.extend_hold(&id).await).await;
                match told {
                    Extension::Until(until) | Extension::Before(until) => {
                        assert!(lasts, "{kept:?}");
                        if !kept.extended {
                            kept.until += EXTENSION_MS;
                            kept.extended = true;
                        }
                        assert_eq!(until, kept.until);
                    }
                    Extension::Refused(over) => assert!(!lasts, "{kept:?}: {over}"),
                }
            }
            Step::Confirm { .. } => {
                let told = until_answered(async || office.confirm(&id).await).await;
                match told {
                    Confirming::Confirmed(_) | Confirming::Before(_) => {
                        assert!(kept.counts(now), "{kept:?}");
                        kept.status = BookingStatus::Confirmed;
                    }
                    Confirming::Refused(over) => assert!(!kept.counts(now), "{kept:?}: {over}"),
                }
            }
            Step::Pay { good, .. } => {
                let card = if *good { "card" } else { DECLINED_CARD };
                let payment = format!("p-{number}");
                let cards = &self.venue.cards;
                let told =
                    until_answered(async || office.purchase(cards, &id, &payment, card).await)
                        .await;
                match told {
                    Purchase::Bought(_) => {
                        assert!(lasts && *good, "it was bought: {kept:?}");
                        (kept.status, kept.paid) = (BookingStatus::Confirmed, true);
                    }
                    Purchase::Declined => {
                        assert!(lasts && !good, "a card was asked for: {kept:?}");
                    }
                    Purchase::Refused(over) => assert!(!lasts, "{kept:?}: {over}"),
                }
            }
            _ => {
                let told = until_answered(async || office.cancel(&id).await).await;
                match told {
                    Cancelling::Cancelled(_) | Cancelling::Over(BookingStatus::Cancelled) => {
                        assert_ne!(kept.status, BookingStatus::Expired, "{kept:?}");
                        kept.status = BookingStatus::Cancelled;
                    }
                    Cancelling::Over(status) => {
                        assert_eq!(status, BookingStatus::Expired);
                        assert!(!kept.counts(now), "{kept:?}");
                        kept.status = BookingStatus::Expired;
                    }
                }
            }
        }
        self.kept[which] = kept;
    }

    async fn sweep(&mut self) {
        let now = self.now();
        for (what, ended) in self.office.sweep(&self.venue.cards).await {
            let ours = self.kept.iter_mut().find(|kept| kept.id == what);
            if let (Some(kept), Ok(_)) = (ours, ended)
                && kept.status == BookingStatus::InProgress
                && !kept.lasts(now)
            {
                kept.status = BookingStatus::Expired;
            }
        }
    }

    /// Time passes, the sweeper comes, and everything is as the oracle says.
    async fn ends_as_it_must(&mut self) {
        let clock = self.venue.office.cloud().clock().clone();
        clock.advance(Duration::from_millis((HOLD_MS + EXTENSION_MS) as u64));
        self.sweep().await;
        for kept in &mut self.kept {
            if kept.status == BookingStatus::InProgress {
                kept.status = BookingStatus::Expired;
            }
            let there = self.office.booking(&kept.id).await.unwrap().unwrap();
            assert_eq!(there.status, kept.status, "{kept:?}");
            assert_eq!(there.due_shard, None, "{there:?}");
            let Some(key) = there.charge_key() else {
                assert!(!kept.paid, "{there:?}");
                continue;
            };
            let charge = self.venue.cards.charge(&key).await.unwrap().unwrap();
            let fits = match kept.status {
                BookingStatus::Confirmed => ["CAPTURED"].as_slice(),
                _ => ["VOIDED", "REFUNDED"].as_slice(),
            };
            assert!(fits.contains(&&*charge.status), "{kept:?}: {charge:?}");
        }
        let owned = self
            .kept
            .iter()
            .filter(|kept| kept.status == BookingStatus::Confirmed);
        let owned: Vec<_> = owned.collect();
        for number in 1..=SEATS {
            let owner = owned.iter().find(|kept| kept.seats.contains(&number));
            let ticket = self.venue.ticket(number).await;
            let sold = ticket.status == TicketStatus::Sold;
            assert_eq!(sold, owner.is_some(), "{ticket:?}");
            assert!(!sold || ticket.booking_id == owner.map(|kept| kept.id.clone()));
        }
        let of_floor: u32 = owned.iter().map(|kept| kept.floor).sum();
        let left = self
            .office
            .admissions_left(&self.venue.event_id, "Floor")
            .await;
        assert_eq!(left.unwrap(), i64::from(ADMISSIONS - of_floor));
        for user in USERS {
            let has = owned.iter().filter(|kept| kept.user == user);
            let has: u32 = has.map(|kept| kept.tickets()).sum();
            let counted = self
                .office
                .allowance(&self.venue.event_id, user)
                .await
                .unwrap();
            assert_eq!(counted.tickets_taken, i64::from(has), "{user}");
        }
    }
}

async fn play(
    steps: &[Step],
    realization: Realization,
    seed: u64,
    bug: Option<Arc<Weaken>>,
) -> Tale {
    let venue = open_alone(realization).await;
    let rules = Rules {
        per_user_limit: LIMIT,
        ..Rules::default()
    };
    let cloud = venue.office.cloud().clone();
    let _planted = bug.map(|bug| cloud.tap().install(bug));
    let office = patient(BoxOffice::with_rules(cloud.clone(), realization, rules));
    office.event(&venue.event_id).await.unwrap();
    let mut tale = Tale {
        venue,
        office,
        kept: Vec::new(),
        refused: 0,
    };
    let faults = Faults::seeded(seed).throttle(0.05);
    let faults = faults.lose_request(0.05).lose_answer(0.05);
    let bad = realization == Realization::Pure;
    let weather = bad.then(|| cloud.tap().install(Arc::new(faults)));
    for (number, step) in steps.iter().enumerate() {
        match step.clone() {
            Step::Hold { user, seats } => tale.hold(number, user, seats, 0).await,
            Step::Floor { user, count } => tale.hold(number, user, Vec::new(), count).await,
            Step::Again { which }
            | Step::Extend { which }
            | Step::Confirm { which }
            | Step::Pay { which, .. }
            | Step::Cancel { which } => tale.change(number, step, which).await,
            Step::Sweep => tale.sweep().await,
            Step::Forget if realization == Realization::Leased => tale.venue.redis_forgets().await,
            Step::Forget => {}
            Step::Pass { minutes } => cloud.clock().advance(Duration::from_secs(60 * minutes)),
        }
    }
    drop(weather);
    tale.ends_as_it_must().await;
    tale
}

/// The same stories in every run.
fn random() -> TestRunner {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[23; 32]);
    TestRunner::new_with_rng(Config::default(), random)
}

async fn random_stories_agree_with_the_oracle(realization: Realization) {
    let mut runner = random();
    let (mut bought, mut expired, mut refused) = (0, 0, 0);
    for seed in 0..40 {
        let steps = tales().new_tree(&mut runner).unwrap().current();
        println!("seed {seed}: {steps:?}");
        let tale = play(&steps, realization, seed, None).await;
        let of = |status| tale.kept.iter().filter(move |kept| kept.status == status);
        bought += of(BookingStatus::Confirmed)
            .filter(|kept| kept.paid)
            .count();
        expired += of(BookingStatus::Expired).count();
        refused += tale.refused;
    }
    assert!(
        bought > 5 && expired > 20 && refused > 20,
        "{bought} {expired} {refused}"
    );
}

/// A model that never complains proves nothing. Under a guard that no longer guards, one of the same stories must
/// end in a complaint of the oracle, and about that.
async fn the_oracle_finds_a_planted_bug(realization: Realization) {
    let bugs = [
        ("allowances", "tickets_taken <= :room", "was held"),
        ("bookings", "hold_expires_at > :now", "a card was asked for"),
    ];
    for (table, clause, complaint) in bugs {
        let mut runner = random();
        let mut found = None;
        for seed in 0..40 {
            let steps = tales().new_tree(&mut runner).unwrap().current();
            let bug = Arc::new(Weaken::guard_on(table).without(clause));
            let told = AssertUnwindSafe(play(&steps, realization, seed, Some(bug.clone())));
            if let Err(panic) = told.catch_unwind().await {
                assert!(bug.applied() > 0, "{clause} was not met");
                found = panic.downcast_ref::<String>().cloned();
                break;
            }
        }
        let found = found.unwrap_or_default();
        assert!(found.contains(complaint), "without {clause}: '{found}'");
    }
}
