//! A merchant to watch: a small receiver that checks signatures, puts duplicates aside, and prints what
//! it learns. `cargo run -p payments -- merchant`

use crate::signature;
use crate::view_payment::EventView;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use clap::{Arg, ArgAction, ArgMatches, Command};
use cloud::{Clock, Cloud};
use serving::{interrupted, listen, listen_arg};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Seen {
    received: Vec<EventView>,
    known: BTreeSet<(String, u64)>,
    refused: usize,
    answers: VecDeque<StatusCode>,
}

/// The receiver. Clones are the same one.
#[derive(Clone)]
pub struct Receiver {
    secrets: Arc<Vec<String>>,
    clock: Clock,
    seen: Arc<Mutex<Seen>>,
    says: fn(&str),
}

impl Receiver {
    /// One that knows these secrets.
    pub fn new(secrets: &[&str], clock: Clock) -> Self {
        Self {
            secrets: Arc::new(secrets.iter().map(ToString::to_string).collect()),
            clock,
            seen: Arc::default(),
            says: |_| {},
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the next messages with these, whatever they say.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = StatusCode>) {
        self.seen().answers.extend(answers);
    }

    /// What came with a good signature, in the order it came, duplicates too.
    pub fn received(&self) -> Vec<EventView> {
        self.seen().received.clone()
    }

    /// How many came without one.
    pub fn refused(&self) -> usize {
        self.seen().refused
    }

    /// Its API.
    pub fn app(&self) -> Router {
        Router::new()
            .route("/webhooks", post(webhook))
            .with_state(self.clone())
    }
}

async fn webhook(State(receiver): State<Receiver>, headers: HeaderMap, text: String) -> StatusCode {
    let signed = headers
        .get(signature::HEADER)
        .and_then(|header| header.to_str().ok())
        .unwrap_or_default();
    let secrets: Vec<&str> = receiver.secrets.iter().map(String::as_str).collect();
    if let Err(why) = signature::verify(&secrets, signed, &text, receiver.clock.now()) {
        receiver.seen().refused += 1;
        (receiver.says)(&format!("refused: {why}"));
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(event) = serde_json::from_str::<EventView>(&text) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut seen = receiver.seen();
    if let Some(answer) = seen.answers.pop_front()
        && !answer.is_success()
    {
        return answer;
    }
    let id = (event.payment.payment_intent_id.clone(), event.event_number);
    let again = if seen.known.insert(id) {
        ""
    } else {
        "  (again)"
    };
    (receiver.says)(&format!(
        "{} #{} {}: {} {}{again}",
        event.payment.payment_intent_id,
        event.event_number,
        event.kind,
        event.payment.status,
        event.payment.amount_text,
    ));
    seen.received.push(event);
    StatusCode::OK
}

/// The `merchant` command.
pub const MERCHANT: walkthrough::Command = walkthrough::Command {
    name: "merchant",
    about: "Receive webhooks, check their signatures and print them, until Ctrl-C",
    args: merchant_args,
    run: |cloud, args| Box::pin(merchant(cloud, args)),
};

fn merchant_args(command: Command) -> Command {
    command
        .arg(listen_arg().default_value("127.0.0.1:9090"))
        .arg(
            Arg::new("secret")
                .long("secret")
                .value_name("TEXT")
                .action(ArgAction::Append)
                .default_value("whsec_demo")
                .help("What webhooks are signed with; more than once while it changes"),
        )
}

async fn merchant(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let secrets: Vec<&str> = args
        .get_many::<String>("secret")
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let mut receiver = Receiver::new(&secrets, cloud.clock().clone());
    receiver.says = |line| println!("{line}");
    let listener = listen(&args).await?;
    axum::serve(listener, receiver.app())
        .with_graceful_shutdown(interrupted())
        .await?;
    Ok(())
}
