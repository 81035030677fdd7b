//! A bad day, by seed: thousands of payments with faults on every path, and then both books are laid
//! side by side. `cargo run -p payments -- simulate`
//!
//! Requests, answers and the store's own answers get lost; processes die between any two calls; the
//! processor declines, hangs up, decides later, is away; notices come late and twice; merchants refuse
//! webhooks. Then everything comes to rest, and every payment is held against the processor's book.
//!
//! One thing happens after the other, so that a seed is a history. What happens *at once* is run in
//! every order by the tests.

use crate::domain::{AUTHORIZATION_MS, CaptureMethod, IntentStatus, Movement, PaymentIntentState};
use crate::idempotency::Key;
use crate::ledger::{RECEIVABLE, Side};
use crate::processor::{Mood, NOTICE_SECRET};
use crate::reconcile::Decided;
use crate::sandbox::Sandbox;
use crate::tables::SHARDS;
use crate::{NewPayment, Payments, signature};
use anyhow::{Context, Result, ensure};
use axum::http::StatusCode;
use chaos::Faults;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::tap::KillFrom;
use cloud::{Backend, Clock, Cloud, Millis};
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The seed: the same one gives the same day.
    pub seed: u64,
    /// How many payments were asked for.
    pub payments: usize,
    /// How many were made: some clients die before they have asked.
    pub made: usize,
    /// How they ended.
    pub statuses: BTreeMap<String, usize>,
    /// How many processes died.
    pub deaths: usize,
    /// How many faults befell calls, by kind.
    pub faults: BTreeMap<String, usize>,
    /// How many requests the processor got, and how many charges it approved.
    pub orders: usize,
    /// Charges the processor approved.
    pub charges: usize,
    /// What reconcilers decided.
    pub decisions: BTreeMap<String, usize>,
    /// Where the two books differ, in words. There should be nothing here.
    pub discrepancies: Vec<String>,
}

/// How many payments are on their way at a time.
const CROWD: usize = 20;

/// How many days go on side by side, each with a store and a processor of its own, so that a seed is
/// still a history whatever the machine.
const LANES: u64 = 4;

/// Runs several days side by side, and adds up what came of them.
async fn simulate_lanes(seed: u64, count: usize, bar: &ProgressBar) -> Result<Report> {
    let mut days = tokio::task::JoinSet::new();
    for lane in 0..LANES {
        let share = count / LANES as usize + usize::from((lane as usize) < count % LANES as usize);
        let bar = bar.clone();
        days.spawn(async move {
            let cloud = cloud::connect_for_tests().await?;
            crate::archetype().create(&cloud).await?;
            simulate(&cloud, seed + lane, share, || bar.inc(1)).await
        });
    }
    let mut all = Report::of(seed);
    while let Some(day) = days.join_next().await {
        all.add(day??);
    }
    all.discrepancies.sort();
    Ok(all)
}

/// Runs one day.
pub async fn simulate(
    cloud: &Cloud,
    seed: u64,
    count: usize,
    progress: impl Fn(),
) -> Result<Report> {
    let world = Sandbox::open(cloud.clone()).await?;
    let mut day = Day {
        random: StdRng::seed_from_u64(seed),
        world,
        seed,
        names: Vec::new(),
        deaths: 0,
    };
    let faults = Arc::new(
        Faults::seeded(seed)
            .throttle(0.01)
            .lose_request(0.01)
            .lose_answer(0.02)
            .stale_read(0.05)
            .sparing("rest"),
    );
    {
        let _plan = cloud.tap().install(faults.clone());
        for number in 0..count {
            day.begin(number).await?;
            day.something_happens().await?;
            progress();
        }
        for _ in 0..CROWD {
            day.something_happens().await?;
        }
    }
    let mut report = cloud::as_actor("rest", day.rest(count)).await?;
    report.faults = faults
        .injected()
        .into_iter()
        .map(|(fault, times)| (fault.to_string(), times))
        .collect();
    Ok(report)
}

struct Day {
    random: StdRng,
    world: Sandbox,
    seed: u64,
    /// The keys of the payments so far.
    names: Vec<(String, NewPayment)>,
    deaths: usize,
}

impl Day {
    fn payments(&self) -> &Payments {
        &self.world.payments
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())].clone()
    }

    /// Does something, or dies at some call of it. Errors are what clients see, and shrug at: they ask
    /// again, or they do not.
    async fn live_or_die<T>(&mut self, work: impl Future<Output = T>) -> T {
        if !self.chance(0.1) {
            return cloud::as_actor("alive", work).await;
        }
        self.deaths += 1;
        let call = self.random.random_range(1..=8);
        let dying = KillFrom::call(call).of("dying");
        let tap = self.world.payments.cloud().tap().clone();
        let _plan = tap.install(Arc::new(dying));
        cloud::as_actor("dying", work).await
    }

    /// A client asks for a payment.
    async fn begin(&mut self, number: usize) -> Result<()> {
        let currency = self.pick(&["EUR", "JPY", "KWD", "USD"]);
        let request = NewPayment {
            amount: self.random.random_range(1..=500_00),
            currency: currency.to_owned().try_into().map_err(anyhow::Error::msg)?,
            card: self.card(),
            capture_method: match self.chance(0.3) {
                true => CaptureMethod::Manual,
                false => CaptureMethod::Automatic,
            },
        };
        let name = format!("order-{number}");
        self.names.push((name.clone(), request.clone()));
        self.ask(&name, &request).await;
        Ok(())
    }

    fn card(&mut self) -> String {
        // Nobody waits for a late answer here: a cut one is the same to us, and faster.
        let (name, mood) = self.pick(&Mood::CARDS);
        match mood {
            _ if self.chance(0.5) => "card-ok".to_owned(),
            Mood::Late => "card-cut-after".to_owned(),
            _ => name.to_owned(),
        }
    }

    async fn ask(&mut self, name: &str, request: &NewPayment) {
        let payments = self.payments().clone();
        let key = Key::new("shop", name);
        let asked = async move { payments.create_payment(&key, request).await };
        let _ = self.live_or_die(asked).await;
    }

    /// One of the last payments.
    fn recent(&mut self) -> Option<(String, NewPayment)> {
        let from = self.names.len().saturating_sub(CROWD);
        let recent = self.names[from..].to_vec();
        (!recent.is_empty()).then(|| self.pick(&recent))
    }

    /// Time passes, and somebody does something about one of the last payments, or about all.
    async fn something_happens(&mut self) -> Result<()> {
        let pause = self.pick(&[0, 10, 1_000, 6_000, 31_000, 61_000]);
        self.payments().cloud().clock().advance(ms(pause));
        let Some((name, request)) = self.recent() else {
            return Ok(());
        };
        let payments = self.payments().clone();
        match self.random.random_range(0..10) {
            // A client did not get its answer, and asks again.
            0..=2 => self.ask(&name, &request).await,
            // A merchant does something with a payment.
            3..=5 => self.move_money(&name).await?,
            6 => {
                let shard = self.random.random_range(0..SHARDS);
                let _ = self.live_or_die(payments.reconcile_due([shard])).await;
            }
            7 => self.notices().await,
            8 => {
                if self.chance(0.3) {
                    self.world.merchant.answer_next([StatusCode::BAD_GATEWAY]);
                }
                let shard = self.random.random_range(0..SHARDS);
                let told = async {
                    let _ = payments.relay_events([shard]).await;
                    let _ = payments.deliver_due([shard]).await;
                };
                self.live_or_die(told).await;
            }
            // The processor is away for a while.
            _ => {
                let down = self.chance(0.3);
                self.world.processor.set_down(down);
            }
        }
        Ok(())
    }

    /// What the payment of this key is, if it was made.
    async fn payment(&self, name: &str) -> Result<Option<PaymentIntentState>> {
        let beside = self.world.beside();
        let Some(state) = beside.read_key(&Key::new("shop", name)).await? else {
            return Ok(None);
        };
        Ok(Some(beside.read_intent(&state.payment_intent_id).await?))
    }

    async fn move_money(&mut self, name: &str) -> Result<()> {
        let Some(payment) = self.payment(name).await? else {
            return Ok(());
        };
        let most = payment.amount.max(1);
        let amount = match self.chance(0.5) {
            true => None,
            false => Some(self.random.random_range(1..=most)),
        };
        let card = self.card();
        let movement = match payment.status {
            IntentStatus::Retryable if self.chance(0.7) => Movement::Charge { card },
            IntentStatus::Authorized if self.chance(0.7) => Movement::Capture { amount },
            IntentStatus::Succeeded => Movement::Refund { amount },
            _ => Movement::Void,
        };
        // Capture, void and refund have no card: the processor's mood is its own.
        if self.chance(0.3) {
            let mood = self.pick(&[
                Mood::CutAfter,
                Mood::CutBefore,
                Mood::Decline,
                Mood::Pending,
            ]);
            self.world.processor.tell([mood]);
        }
        // Often the same wish under the same key, sometimes a new one.
        let wish = self.random.random_range(0..3);
        let key = Key::new("shop", &format!("{name}-wish-{wish}"));
        let payments = self.payments().clone();
        let id = payment.payment_intent_id;
        let moved = async move { payments.move_money(&key, &id, &movement).await };
        let _ = self.live_or_die(moved).await;
        Ok(())
    }

    /// The processor decides what it left open, and its notices arrive, or not, or twice.
    async fn notices(&mut self) {
        if self.chance(0.5) {
            self.world.processor.decide_pending();
        }
        for said in self.world.processor.take_notices() {
            let times = self.random.random_range(0..=2);
            for _ in 0..times {
                let payments = self.payments().clone();
                let text = serde_json::to_string(&said).unwrap_or_default();
                let signed = signature::sign(&[NOTICE_SECRET], &text, payments.cloud().now());
                let noticed = async move { payments.record_notice(&text, &signed).await };
                let _ = self.live_or_die(noticed).await;
            }
        }
    }

    /// Nothing more goes wrong. Everything comes to rest; then the books are compared.
    async fn rest(&mut self, count: usize) -> Result<Report> {
        let payments = self.payments().clone();
        self.world.processor.set_down(false);
        self.world.processor.forget_moods();
        // As long as the longest pause of the reconciler, and the longest of a delivery.
        for round in 0..5 {
            // At last, longer than anything is held.
            let pause = if round == 4 {
                AUTHORIZATION_MS
            } else {
                4 * 3_600_000
            };
            payments.cloud().clock().advance(ms(pause));
            for (id, ended) in payments.expire_authorizations(0..SHARDS).await? {
                ended.with_context(|| format!("expiring {id}"))?;
            }
            self.world.processor.decide_pending();
            self.world.processor.take_notices();
            for (id, looked) in payments.reconcile_due(0..SHARDS).await? {
                looked.with_context(|| format!("reconciling {id}"))?;
            }
            crate::service::deliver(&payments).await?;
        }
        let mut report = Report {
            payments: count,
            deaths: self.deaths,
            orders: self.world.processor.received(),
            charges: self.world.processor.authorizations().len(),
            ..Report::of(self.seed)
        };
        let mut theirs: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for held in self.world.processor.authorizations() {
            theirs.entry(held.reference.clone()).or_default().push(held);
        }
        for (name, _) in std::mem::take(&mut self.names) {
            let Some(payment) = self.payment(&name).await? else {
                continue;
            };
            report.made += 1;
            let status = payment.status.to_string();
            *report.statuses.entry(status).or_default() += 1;
            let held = theirs.remove(&payment.payment_intent_id);
            let differs = self
                .differs(&payment, &held.unwrap_or_default(), &mut report)
                .await?;
            report
                .discrepancies
                .extend(differs.map(|why| format!("seed {}, {name}: {why}", self.seed)));
        }
        let unknown = theirs
            .keys()
            .map(|id| format!("{id}: charged, and not ours"));
        report.discrepancies.extend(unknown);
        Ok(report)
    }

    /// How a payment differs from what the processor has, if it does.
    async fn differs(
        &self,
        payment: &PaymentIntentState,
        held: &[crate::processor::Authorization],
        report: &mut Report,
    ) -> Result<Option<String>> {
        let beside = self.world.beside();
        let id = &payment.payment_intent_id;
        if held.len() > 1 {
            return Ok(Some(format!("charged {} times", held.len())));
        }
        if let Some(open) = &payment.open_transaction {
            return Ok(Some(format!("{open} has not ended")));
        }
        let theirs = held.first().map_or((0, 0, 0), |held| {
            (held.authorized, held.captured, held.refunded)
        });
        let ours = (payment.authorized, payment.captured, payment.refunded);
        if ours != theirs {
            return Ok(Some(format!("{ours:?} here, {theirs:?} there")));
        }
        if !payment.is_sound() {
            return Ok(Some(format!("unsound: {payment:?}")));
        }
        let (mut debits, mut credits, mut receivable) = (0, 0, 0);
        for entry in beside.ledger_of(id).await? {
            let signed = match entry.side {
                Side::Debit => entry.amount,
                Side::Credit => -entry.amount,
            };
            debits += entry.amount.max(0) * i64::from(entry.side == Side::Debit);
            credits += entry.amount.max(0) * i64::from(entry.side == Side::Credit);
            if entry.account == RECEIVABLE {
                receivable += signed;
            }
        }
        if debits != credits || receivable != payment.captured - payment.refunded {
            return Ok(Some(format!(
                "booked {debits}, {credits}, {receivable} for {ours:?}"
            )));
        }
        for transaction in beside.transactions_of(id).await? {
            for decision in beside.decisions_of(&transaction.transaction_id).await? {
                if decision.decision == Decided::Discrepancy {
                    return Ok(Some(format!("{decision:?}")));
                }
                let word = format!("{:?}", decision.decision);
                *report.decisions.entry(word).or_default() += 1;
            }
        }
        let told = beside.deliveries_of(id).await?;
        let ended = told.iter().filter(|delivery| delivery.has_ended()).count();
        if ended as u64 != payment.version {
            return Ok(Some(format!(
                "of {} events {ended} were delivered or given up",
                payment.version
            )));
        }
        Ok(None)
    }
}

fn ms(millis: Millis) -> Duration {
    Duration::from_millis(millis as u64)
}

/// The `simulate` command.
pub const SIMULATE: walkthrough::Command = walkthrough::Command {
    name: "simulate",
    about: "Run a bad day by seed, and compare our books with the processor's",
    args: simulate_args,
    run: |cloud, args| Box::pin(simulated(cloud, args)),
};

fn simulate_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("payments")
                .long("payments")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..=1_000_000))
                .default_value("10000")
                .help("How many payments"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("SEED")
                .value_parser(value_parser!(u64))
                .help("The same seed is the same day; a new one unless told"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the report as JSON"),
        )
}

async fn simulated(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let count = args.get_one::<u64>("payments").copied().unwrap_or(10_000) as usize;
    let seed = args.get_one::<u64>("seed").copied();
    let seed = seed.unwrap_or_else(|| cloud.now().unsigned_abs() % 1_000_000);
    let json = args.get_flag("json");
    // On a terminal, on standard error: what is printed is for scripts too.
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} payments, {eta} left")?;
    let bar = ProgressBar::new(count as u64).with_style(style);
    if !json {
        println!("seed {seed}");
    }
    let report = match cloud.backend() {
        Backend::Embedded => simulate_lanes(seed, count, &bar).await?,
        // One set of tables, one day. The clock is turned by hand: days pass in seconds.
        _ => {
            let cloud = cloud.with_clock(Clock::manual(cloud.now()));
            simulate(&cloud, seed, count, || bar.inc(1)).await?
        }
    };
    bar.finish_and_clear();
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    ensure!(
        report.discrepancies.is_empty(),
        "{} discrepancies; run it again with --seed {seed}",
        report.discrepancies.len()
    );
    Ok(())
}

impl Report {
    fn of(seed: u64) -> Self {
        Self {
            seed,
            payments: 0,
            made: 0,
            statuses: BTreeMap::new(),
            deaths: 0,
            faults: BTreeMap::new(),
            orders: 0,
            charges: 0,
            decisions: BTreeMap::new(),
            discrepancies: Vec::new(),
        }
    }

    fn add(&mut self, other: Self) {
        self.payments += other.payments;
        self.made += other.made;
        self.deaths += other.deaths;
        self.orders += other.orders;
        self.charges += other.charges;
        for (to, from) in [
            (&mut self.statuses, other.statuses),
            (&mut self.faults, other.faults),
            (&mut self.decisions, other.decisions),
        ] {
            for (name, count) in from {
                *to.entry(name).or_default() += count;
            }
        }
        self.discrepancies.extend(other.discrepancies);
    }

    fn text(&self) -> String {
        let list = |counts: &BTreeMap<String, usize>| {
            let each: Vec<_> = counts
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            each.join(", ")
        };
        let mut text = format!(
            "payments       {} asked for, {} made: {}\n\
             trouble        {} processes died; {}\n\
             processor      {} orders received, {} charges approved\n\
             reconciler     {}\n\
             discrepancies  {}\n",
            self.payments,
            self.made,
            list(&self.statuses),
            self.deaths,
            list(&self.faults),
            self.orders,
            self.charges,
            list(&self.decisions),
            self.discrepancies.len(),
        );
        for line in &self.discrepancies {
            text.push_str("  ");
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}
