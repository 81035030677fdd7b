//! Talking to the card processor. What it says is one of a few things, told apart by what may be done
//! next.
//!
//! | what came | meaning | next |
//! | --- | --- | --- |
//! | approved, declined, closed | it is decided | write it down |
//! | pending | it was taken and is not decided | wait for the notice, or ask |
//! | 404 to a question | it has not arrived | close it, so that it never does |
//! | 503, or no connection | it was not taken this time | close it, then try again |
//! | anything else, or nothing | **unknown** | never assume: ask |

use crate::domain::{Kind, Outcome, TransactionState};
use crate::money::Amount;
use cloud::Cloud;
use reqwest::{StatusCode, Url};
use reqwest_middleware::{ClientWithMiddleware, Error, RequestBuilder};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long an answer may take. Much shorter than the lease of a key.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// What the processor is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What.
    pub kind: Kind,
    /// How much.
    pub amount: Amount,
    /// Of this currency.
    pub currency: String,
    /// For which payment: what shows on the processor's side of the books.
    pub reference: String,
    /// With this card, for a charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// Taken at once, for a charge.
    #[serde(default)]
    pub capture: bool,
    /// Of this authorization, for everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
}

/// How the processor stands to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Decision {
    /// Taken, not decided.
    Pending,
    /// Done.
    Approved,
    /// Refused.
    Declined,
    /// Never taken, and never will be.
    Closed,
}

/// What the processor says about an order, in an answer or in a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The key it came with.
    pub key: String,
    /// How it stands.
    pub decision: Decision,
    /// Why, if it was declined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is decided.
    Decided(Outcome),
    /// It was taken and is not decided.
    Pending,
    /// There is no such order.
    NotThere,
    /// It was not taken this time.
    NotNow(String),
    /// Nobody knows.
    Unknown(String),
}

impl Said {
    /// The outcome, if it is decided.
    pub fn outcome(&self) -> Option<Outcome> {
        let reason = || self.reason.clone();
        match self.decision {
            Decision::Pending => None,
            Decision::Approved => Some(Outcome::Approved),
            Decision::Declined => Some(Outcome::Declined(
                reason().unwrap_or_else(|| "declined".into()),
            )),
            Decision::Closed => Some(Outcome::Closed(
                reason().unwrap_or_else(|| "it never reached the processor".into()),
            )),
        }
    }
}

impl Order {
    /// What this movement asks of the processor.
    pub fn of(transaction: &TransactionState) -> Self {
        Self {
            kind: transaction.kind,
            amount: transaction.amount,
            currency: transaction.currency.to_string(),
            reference: transaction.payment_intent_id.clone(),
            card: transaction.card.clone(),
            capture: transaction.capture,
            authorization: transaction.authorization.clone(),
        }
    }
}

/// A processor somewhere.
#[derive(Clone)]
pub struct ProcessorClient {
    http: ClientWithMiddleware,
    base: Url,
    notice_secret: String,
    patience: Duration,
}

impl ProcessorClient {
    /// The processor at `base`, whose notices are signed with `notice_secret`. Requests pass the tap,
    /// and follow no redirect.
    pub fn new(
        cloud: &Cloud,
        http: reqwest::ClientBuilder,
        base: Url,
        notice_secret: &str,
    ) -> reqwest::Result<Self> {
        let http = http.redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Self {
            http: cloud.http(http),
            base,
            notice_secret: notice_secret.to_owned(),
            patience: TIMEOUT,
        })
    }

    /// The same, waiting this long for an answer.
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What its notices are signed with.
    pub(crate) fn notice_secret(&self) -> &str {
        &self.notice_secret
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// Sends an order. The same key is the same order, however often it is sent.
    pub async fn send(&self, key: &str, order: &Order) -> Answer {
        let request = self.http.post(self.url(&["orders"]));
        let request = request.header("idempotency-key", key).json(order);
        self.answer(key, request).await
    }

    /// Asks what became of an order.
    pub async fn ask(&self, key: &str) -> Answer {
        let request = self.http.get(self.url(&["orders", key]));
        self.answer(key, request).await
    }

    /// Makes sure that an order which is not there never will be. If it is there, this is a question.
    pub async fn close(&self, key: &str) -> Answer {
        let request = self.http.post(self.url(&["orders", key, "close"]));
        self.answer(key, request).await
    }

    async fn answer(&self, key: &str, request: RequestBuilder) -> Answer {
        let response = match request.timeout(self.patience).send().await {
            Ok(response) => response,
            // No connection, so nothing was sent.
            Err(Error::Reqwest(error)) if error.is_connect() => {
                return Answer::NotNow(error.to_string());
            }
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED => match response.json::<Said>().await {
                // An answer about another order is no answer.
                Ok(said) if said.key != key => Answer::Unknown(format!("about {}", said.key)),
                Ok(said) => said.outcome().map_or(Answer::Pending, Answer::Decided),
                Err(error) => Answer::Unknown(error.to_string()),
            },
            StatusCode::NOT_FOUND => Answer::NotThere,
            StatusCode::SERVICE_UNAVAILABLE => {
                Answer::NotNow("the processor is not available".into())
            }
            other => Answer::Unknown(other.to_string()),
        }
    }
}
