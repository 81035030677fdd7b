//! The two queues. `frontier` holds URLFrontierState, what is to be fetched; `parse` holds
//! URLParseRunState, what is to be parsed.
//!
//! A message is a hint, never the truth: it may come twice, late, or after all is done, and it may be
//! lost. What it is about stands in `url_metadata`. So there is no dead-letter queue: a message that
//! nobody can read is dropped, and what it was about is found by the sweeper.

use crate::Crawler;
use anyhow::{Context, Result};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use cloud::{Cloud, CloudError, Millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use walkthrough::{BoxFuture, Resource};

/// What is to be fetched.
pub const FRONTIER: &str = "frontier";
/// What is to be parsed.
pub const PARSE: &str = "parse";

/// How long a received message stays hidden: as long as the lease that its reader takes.
pub const VISIBILITY_SECONDS: i32 = 60;

/// SQS delays a message by at most fifteen minutes. (The embedded one does not check.)
const MAX_DELAY_SECONDS: Millis = 900;

/// SQS hides a message for at most twelve hours.
const MAX_VISIBILITY_SECONDS: Millis = 43_200;

/// SQS takes so many messages in one call.
const BATCH: usize = 10;

/// URLFrontierState: which URL is to be fetched, and nothing that could be out of date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlFrontierState {
    /// Which.
    pub url_hash: String,
}

/// URLParseRunState: which URL is to be parsed, and where its bytes were put.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlParseRunState {
    /// Which.
    pub url_hash: String,
    /// Where its bytes are. The row decides, if it says otherwise by now.
    pub blob_key: String,
}

/// A message as it was received.
#[derive(Debug, Clone)]
pub struct Message<T> {
    /// What it says; none if it cannot be read.
    pub says: Option<T>,
    /// What SQS knows this delivery by.
    pub receipt: String,
}

/// Where the queues are.
#[derive(Clone)]
pub(crate) struct Queues {
    pub frontier: String,
    pub parse: String,
}

impl Queues {
    pub async fn find(cloud: &Cloud) -> Result<Self, CloudError> {
        let find = async |name| {
            let beside = cloud.beside_tap();
            let found = beside.sqs().get_queue_url();
            let found = found.queue_name(cloud.names().queue(name)).send().await;
            found
                .map_err(CloudError::from)?
                .queue_url
                .ok_or_else(|| CloudError::Other(format!("the queue {name} has no address")))
        };
        Ok(Self {
            frontier: find(FRONTIER).await?,
            parse: find(PARSE).await?,
        })
    }
}

/// Both queues, as the archetype declares them.
pub const QUEUES: [Resource; 2] = [
    Resource {
        name: "queue frontier",
        create: |cloud| -> BoxFuture<'static, Result<()>> {
            Box::pin(async move { create(&cloud, FRONTIER).await })
        },
        remove: |cloud| Box::pin(async move { remove(&cloud, FRONTIER).await }),
    },
    Resource {
        name: "queue parse",
        create: |cloud| Box::pin(async move { create(&cloud, PARSE).await }),
        remove: |cloud| Box::pin(async move { remove(&cloud, PARSE).await }),
    },
];

async fn create(cloud: &Cloud, name: &str) -> Result<()> {
    let fourteen_days = 14 * 86_400;
    let create = cloud.sqs().create_queue();
    let created = create
        .queue_name(cloud.names().queue(name))
        .attributes(
            QueueAttributeName::MessageRetentionPeriod,
            fourteen_days.to_string(),
        )
        .attributes(
            QueueAttributeName::VisibilityTimeout,
            VISIBILITY_SECONDS.to_string(),
        )
        .send()
        .await
        .map_err(CloudError::from);
    created.with_context(|| format!("cannot create the queue {name}"))?;
    Ok(())
}

async fn remove(cloud: &Cloud, name: &str) -> Result<()> {
    let find = cloud.sqs().get_queue_url();
    let found = match find.queue_name(cloud.names().queue(name)).send().await {
        Ok(found) => found,
        Err(error)
            if error
                .code()
                .is_some_and(|code| code.contains("NonExistent")) =>
        {
            return Ok(());
        }
        Err(error) => return Err(CloudError::from(error).into()),
    };
    let delete = cloud.sqs().delete_queue();
    delete.set_queue_url(found.queue_url).send().await?;
    Ok(())
}

fn body(says: &impl Serialize) -> Result<String, CloudError> {
    serde_json::to_string(says).map_err(CloudError::corrupt)
}

impl Crawler {
    /// Puts a URL into the frontier queue, to be delivered at `time`.
    pub(crate) async fn send_frontier(
        &self,
        url_hash: &str,
        time: Millis,
    ) -> Result<(), CloudError> {
        let url_hash = url_hash.to_owned();
        let left = (time - self.now()).max(0) / 1_000;
        let send = self.cloud.sqs().send_message();
        send.queue_url(&self.queues.frontier)
            .message_body(body(&UrlFrontierState { url_hash })?)
            .delay_seconds(left.min(MAX_DELAY_SECONDS) as i32)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(())
    }

    /// Puts URLs into the frontier queue, ten with a call. What SQS does not take of a batch stays
    /// DISCOVERED without a message, and the sweeper finds it.
    pub(crate) async fn send_frontier_batch(&self, hashes: &[String]) -> Result<(), CloudError> {
        for batch in hashes.chunks(BATCH) {
            let mut entries = Vec::new();
            for (at, url_hash) in batch.iter().enumerate() {
                let says = UrlFrontierState {
                    url_hash: url_hash.clone(),
                };
                let entry = SendMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .message_body(body(&says)?)
                    .build()
                    .map_err(CloudError::bug)?;
                entries.push(entry);
            }
            let send = self.cloud.sqs().send_message_batch();
            let send = send.queue_url(&self.queues.frontier);
            let sent = send.set_entries(Some(entries)).send().await;
            sent.map_err(CloudError::from)?;
        }
        Ok(())
    }

    /// Enqueue parse work: puts what was fetched into the parse queue.
    pub async fn enqueue_parse(&self, url_hash: &str, blob_key: &str) -> Result<(), CloudError> {
        let says = UrlParseRunState {
            url_hash: url_hash.to_owned(),
            blob_key: blob_key.to_owned(),
        };
        let send = self.cloud.sqs().send_message();
        send.queue_url(&self.queues.parse)
            .message_body(body(&says)?)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(())
    }

    /// Claim URL for fetch: the next message of the frontier, waiting for it up to `seconds`.
    pub async fn receive_frontier(
        &self,
        seconds: i32,
    ) -> Result<Option<Message<UrlFrontierState>>, CloudError> {
        self.receive(&self.queues.frontier, seconds).await
    }

    /// Claim parse run: the next message of the parse queue, waiting for it up to `seconds`.
    pub async fn receive_parse(
        &self,
        seconds: i32,
    ) -> Result<Option<Message<UrlParseRunState>>, CloudError> {
        self.receive(&self.queues.parse, seconds).await
    }

    async fn receive<T: DeserializeOwned>(
        &self,
        queue: &str,
        seconds: i32,
    ) -> Result<Option<Message<T>>, CloudError> {
        let receive = self.cloud.sqs().receive_message().queue_url(queue);
        let received = receive.max_number_of_messages(1).wait_time_seconds(seconds);
        let received = received.send().await.map_err(CloudError::from)?;
        let message = received.messages.unwrap_or_default().pop();
        Ok(message.map(|message| Message {
            says: message
                .body()
                .and_then(|body| serde_json::from_str(body).ok()),
            receipt: message.receipt_handle.unwrap_or_default(),
        }))
    }

    /// Release fetch claim: the message has done its work.
    pub async fn ack_fetch<T>(&self, message: &Message<T>) -> Result<(), CloudError> {
        self.delete(&self.queues.frontier, message).await
    }

    /// The same for a parse run.
    pub async fn ack_parse<T>(&self, message: &Message<T>) -> Result<(), CloudError> {
        self.delete(&self.queues.parse, message).await
    }

    async fn delete<T>(&self, queue: &str, message: &Message<T>) -> Result<(), CloudError> {
        let delete = self.cloud.sqs().delete_message().queue_url(queue);
        // A receipt that is no longer good is a message that somebody else has by now.
        match delete.receipt_handle(&message.receipt).send().await {
            Err(error) if is_over(error.code()) => Ok(()),
            deleted => deleted.map(|_| ()).map_err(CloudError::from),
        }
    }

    /// Hides a message of the frontier until `time`, rounded up: nobody sees it before.
    pub(crate) async fn hide_fetch<T>(
        &self,
        message: &Message<T>,
        time: Millis,
    ) -> Result<(), CloudError> {
        self.hide(&self.queues.frontier, message, time).await
    }

    /// The same for a parse run.
    pub(crate) async fn hide_parse<T>(
        &self,
        message: &Message<T>,
        time: Millis,
    ) -> Result<(), CloudError> {
        self.hide(&self.queues.parse, message, time).await
    }

    async fn hide<T>(
        &self,
        queue: &str,
        message: &Message<T>,
        time: Millis,
    ) -> Result<(), CloudError> {
        let left = (time - self.now()).max(0);
        let seconds = ((left + 999) / 1_000).min(MAX_VISIBILITY_SECONDS) as i32;
        let change = self.cloud.sqs().change_message_visibility();
        let change = change
            .queue_url(queue)
            .receipt_handle(&message.receipt)
            .visibility_timeout(seconds);
        match change.send().await {
            Err(error) if is_over(error.code()) => Ok(()),
            changed => changed.map(|_| ()).map_err(CloudError::from),
        }
    }
}

fn is_over(code: Option<&str>) -> bool {
    code.is_some_and(|code| {
        [
            "ReceiptHandleIsInvalid",
            "MessageNotInflight",
            "InvalidParameterValue",
        ]
        .iter()
        .any(|over| code.contains(over))
    })
}
