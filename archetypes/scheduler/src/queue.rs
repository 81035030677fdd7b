//! The two queues: RunnableExecutionState as messages, and where messages end that nobody can use.
//!
//! A message is a hint, never the truth: it may come twice, late, or after all is done, and it may
//! be lost. What it is about stands in `executions`.

use crate::domain::ExecutionState;
use crate::items::parts_of;
use crate::scan_due::patient;
use crate::{MAX_LOOKAHEAD_MS, Scheduler};
use anyhow::{Context, Result};
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::QueueAttributeName;
use cloud::{Cloud, CloudError, Millis};
use serde::{Deserialize, Serialize};
use walkthrough::{BoxFuture, Resource};

/// What is to be run.
pub const RUNNABLE: &str = "runnable";
/// What was given up.
pub const DEAD: &str = "dead";

/// How long a received message stays hidden, unless its job's lease says otherwise.
pub const VISIBILITY_SECONDS: i32 = 30;

/// How often SQS hands out one message before it moves it to the dead-letter queue by itself: for
/// messages that kill their reader, or that nobody can read.
pub const MAX_RECEIVES: u32 = 20;

/// SQS hides a message for at most twelve hours.
const MAX_VISIBILITY_SECONDS: Millis = 43_200;

/// RunnableExecutionState: what a worker needs to find the execution, and no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnableExecutionState {
    /// Identity; what consumers tell duplicates by.
    pub execution_id: String,
    /// Of which job.
    pub job_id: String,
    /// When.
    pub execution_time: Millis,
}

impl From<&ExecutionState> for RunnableExecutionState {
    fn from(execution: &ExecutionState) -> Self {
        Self {
            execution_id: execution.execution_id.clone(),
            job_id: execution.job_id.clone(),
            execution_time: execution.execution_time,
        }
    }
}

/// A message as it was received.
#[derive(Debug, Clone)]
pub struct Message {
    /// What it says; none if it cannot be read.
    pub says: Option<RunnableExecutionState>,
    /// What SQS knows this delivery by.
    pub receipt: String,
}

/// Where the queues are.
#[derive(Clone)]
pub(crate) struct Queues {
    runnable: String,
    dead: String,
}

impl Queues {
    pub(crate) async fn find(cloud: &Cloud) -> Result<Self, CloudError> {
        let find = async |name| {
            let sqs = cloud.beside_tap();
            let found = sqs.sqs().get_queue_url();
            let found = found.queue_name(cloud.names().queue(name)).send().await;
            found
                .map_err(CloudError::from)?
                .queue_url
                .ok_or_else(|| CloudError::Other(format!("the queue {name} has no address")))
        };
        Ok(Self {
            runnable: find(RUNNABLE).await?,
            dead: find(DEAD).await?,
        })
    }
}

/// Both queues, as the archetype declares them.
pub const QUEUES: &[Resource] = &[
    Resource {
        name: "queue dead",
        create: |cloud| -> BoxFuture<'static, Result<()>> {
            Box::pin(async move { create(&cloud, DEAD, &[kept()]).await.map(|_| ()) })
        },
        remove: |cloud| Box::pin(async move { remove(&cloud, DEAD).await }),
    },
    Resource {
        name: "queue runnable",
        create: |cloud| Box::pin(async move { create_runnable(&cloud).await }),
        remove: |cloud| Box::pin(async move { remove(&cloud, RUNNABLE).await }),
    },
];

/// As long as SQS keeps a message at all: a dead one that is gone cannot be redriven.
fn kept() -> (QueueAttributeName, String) {
    let seconds = 14 * 86_400;
    (
        QueueAttributeName::MessageRetentionPeriod,
        seconds.to_string(),
    )
}

async fn create_runnable(cloud: &Cloud) -> Result<()> {
    let dead = create(cloud, DEAD, &[kept()]).await?;
    let attributes = cloud.sqs().get_queue_attributes().queue_url(dead);
    let attributes = attributes
        .attribute_names(QueueAttributeName::QueueArn)
        .send()
        .await?;
    let arn = attributes
        .attributes()
        .and_then(|all| all.get(&QueueAttributeName::QueueArn));
    let arn = arn.context("the dead-letter queue has no ARN")?;
    let redrive = serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": MAX_RECEIVES});
    let attributes = [
        kept(),
        (QueueAttributeName::RedrivePolicy, redrive.to_string()),
        (
            QueueAttributeName::VisibilityTimeout,
            VISIBILITY_SECONDS.to_string(),
        ),
    ];
    create(cloud, RUNNABLE, &attributes).await.map(|_| ())
}

async fn create(
    cloud: &Cloud,
    name: &str,
    attributes: &[(QueueAttributeName, String)],
) -> Result<String> {
    let mut create = cloud.sqs().create_queue();
    create = create.queue_name(cloud.names().queue(name));
    for (name, value) in attributes {
        create = create.attributes(name.clone(), value);
    }
    let created = create.send().await.map_err(CloudError::from);
    let created = created.with_context(|| format!("cannot create the queue {name}"))?;
    created.queue_url.context("a queue without an address")
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

/// The whole seconds until `time`, for DelaySeconds: never beyond what SQS takes. Rounded down: a
/// worker waits for the rest of the last second, or the row sends it away.
pub(crate) fn delay_seconds(time: Millis, now: Millis) -> i32 {
    ((time - now).clamp(0, MAX_LOOKAHEAD_MS) / 1_000) as i32
}

impl Scheduler {
    /// Tells SQS what the table says already. What SQS does not hear, the sweeper sees to; the caller waits
    /// two seconds at most, and does not fail by it.
    pub(crate) async fn hint(&self, told: impl Future<Output = Result<(), CloudError>>) {
        let _ = patient(told).await;
    }

    /// Puts an execution into the queue, to be delivered at `time`.
    pub(crate) async fn send(
        &self,
        execution: &ExecutionState,
        time: Millis,
    ) -> Result<(), CloudError> {
        let delay = delay_seconds(time, self.now());
        self.send_to(&self.queues.runnable, execution, delay).await
    }

    /// Puts an execution into the dead-letter queue.
    pub(crate) async fn send_dead(&self, execution: &ExecutionState) -> Result<(), CloudError> {
        self.send_to(&self.queues.dead, execution, 0).await
    }

    async fn send_to(
        &self,
        queue: &str,
        execution: &ExecutionState,
        delay: i32,
    ) -> Result<(), CloudError> {
        let says = RunnableExecutionState::from(execution);
        let body = serde_json::to_string(&says).map_err(CloudError::corrupt)?;
        let send = self.cloud.sqs().send_message().queue_url(queue);
        let send = send.message_body(body).delay_seconds(delay);
        send.send().await.map_err(CloudError::from)?;
        Ok(())
    }

    /// The next message to work on, waiting for it up to `seconds`.
    pub async fn receive(&self, seconds: i32) -> Result<Option<Message>, CloudError> {
        self.receive_from(&self.queues.runnable, seconds).await
    }

    /// The next message that was given up.
    pub async fn receive_dead(&self) -> Result<Option<Message>, CloudError> {
        self.receive_from(&self.queues.dead, 0).await
    }

    async fn receive_from(&self, queue: &str, seconds: i32) -> Result<Option<Message>, CloudError> {
        let receive = self.cloud.sqs().receive_message().queue_url(queue);
        let received = receive.max_number_of_messages(1).wait_time_seconds(seconds);
        let received = received.send().await.map_err(CloudError::from)?;
        let message = received.messages.unwrap_or_default().pop();
        Ok(message.map(|message| {
            let says = message
                .body()
                .and_then(|body| serde_json::from_str(body).ok());
            let says = says.filter(|says: &RunnableExecutionState| {
                let named = parts_of(&says.execution_id);
                named == Some((says.execution_time, says.job_id.as_str()))
            });
            Message {
                says,
                receipt: message.receipt_handle.unwrap_or_default(),
            }
        }))
    }

    /// The message has done its work.
    pub async fn delete(&self, message: &Message) -> Result<(), CloudError> {
        self.delete_from(&self.queues.runnable, message).await
    }

    /// The dead message has done its work.
    pub(crate) async fn delete_dead(&self, message: &Message) -> Result<(), CloudError> {
        self.delete_from(&self.queues.dead, message).await
    }

    async fn delete_from(&self, queue: &str, message: &Message) -> Result<(), CloudError> {
        let delete = self.cloud.sqs().delete_message().queue_url(queue);
        let delete = delete.receipt_handle(&message.receipt);
        // A receipt that is no longer good is a message that somebody else has by now.
        match delete.send().await {
            Err(error) if is_over(error.code()) => Ok(()),
            deleted => deleted.map(|_| ()).map_err(CloudError::from),
        }
    }

    /// Hides the message until `time`, rounded up: nobody sees it before.
    pub(crate) async fn hide(&self, message: &Message, time: Millis) -> Result<(), CloudError> {
        let left = (time - self.now()).max(0);
        let seconds = ((left + 999) / 1_000).min(MAX_VISIBILITY_SECONDS) as i32;
        let change = self.cloud.sqs().change_message_visibility();
        let change = change
            .queue_url(&self.queues.runnable)
            .receipt_handle(&message.receipt)
            .visibility_timeout(seconds);
        match change.send().await {
            // Deleted or received by another meanwhile: then it is theirs.
            Err(error) if is_over(error.code()) => Ok(()),
            changed => changed.map(|_| ()).map_err(CloudError::from),
        }
    }

    /// How many messages wait to be received, and how many there are with those in flight and those
    /// that are delayed. SQS says "approximate", and that is enough for whom it is for.
    pub async fn messages(&self) -> Result<(usize, usize), CloudError> {
        self.messages_in(&self.queues.runnable).await
    }

    /// How many messages are in the dead-letter queue.
    pub async fn dead_messages(&self) -> Result<usize, CloudError> {
        Ok(self.messages_in(&self.queues.dead).await?.1)
    }

    async fn messages_in(&self, queue: &str) -> Result<(usize, usize), CloudError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let get = self.cloud.sqs().get_queue_attributes();
        let get = get.queue_url(queue);
        let got = get.set_attribute_names(Some(names.to_vec())).send().await;
        let got = got
            .map_err(CloudError::from)?
            .attributes
            .unwrap_or_default();
        let count = |name| -> usize {
            let text: Option<&String> = got.get(name);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Ok((count(&names[0]), names.iter().map(count).sum()))
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
