//! Everything at once: the reconciler, the expiry sweeper, the relay and the deliverer in one process,
//! until told to stop. Whatever dies here is taken up by the next one that comes by.

use crate::deliver_webhook::Delivered;
use crate::processor::{NOTICE_SECRET, Processor};
use crate::tables::SHARDS;
use crate::{Payments, PaymentsError, signature};
use std::time::Duration;
use tokio::sync::watch;

/// How often somebody looks.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For events to relay and deliveries to make.
    pub deliver_every: Duration,
    /// For movements to reconcile.
    pub reconcile_every: Duration,
    /// For authorizations that are over.
    pub expire_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            deliver_every: Duration::from_millis(200),
            reconcile_every: Duration::from_secs(1),
            expire_every: Duration::from_secs(60),
        }
    }
}

/// Runs until told to stop.
pub async fn run_until(payments: Payments, settings: Settings, stop: watch::Receiver<bool>) {
    let deliver = again_and_again(&stop, settings.deliver_every, || deliver(&payments));
    let reconcile = again_and_again(&stop, settings.reconcile_every, || reconcile(&payments));
    let expire = again_and_again(&stop, settings.expire_every, || expire(&payments));
    tokio::join!(deliver, reconcile, expire);
}

/// A failure is said and tried again: nothing is lost by it.
async fn again_and_again<F>(stop: &watch::Receiver<bool>, pause: Duration, work: impl Fn() -> F)
where
    F: Future<Output = Result<(), PaymentsError>>,
{
    let mut stop = stop.clone();
    loop {
        // Dropped in the middle, it has died in the middle, and everything here survives that.
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            done = work() => {
                if let Err(error) = done {
                    eprintln!("{error}");
                }
            }
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Relays and delivers until nothing more can be delivered now. The shards go side by side: a merchant
/// that hangs holds up those who share a shard with it, and nobody else.
pub async fn deliver(payments: &Payments) -> Result<(), PaymentsError> {
    let shards = (0..SHARDS).map(|shard| deliver_shard(payments, shard));
    let done = futures::future::join_all(shards).await;
    done.into_iter().collect()
}

/// The same for one shard.
pub async fn deliver_shard(payments: &Payments, shard: u32) -> Result<(), PaymentsError> {
    for (event, relayed) in payments.relay_events([shard]).await? {
        if let Err(error) = relayed {
            eprintln!("relaying {event}: {error}");
        }
    }
    loop {
        let mut ended = false;
        for (event, tried) in payments.deliver_due([shard]).await? {
            match tried {
                // It may have been what another one waited for.
                Ok(Delivered::Delivered | Delivered::Failed) => ended = true,
                Ok(_) => {}
                Err(error) => eprintln!("delivering {event}: {error}"),
            }
        }
        if !ended {
            return Ok(());
        }
    }
}

async fn reconcile(payments: &Payments) -> Result<(), PaymentsError> {
    for shard in 0..SHARDS {
        for (transaction_id, looked) in payments.reconcile_due([shard]).await? {
            if let Err(error) = looked {
                eprintln!("reconciling {transaction_id}: {error}");
            }
        }
    }
    Ok(())
}

async fn expire(payments: &Payments) -> Result<(), PaymentsError> {
    for shard in 0..SHARDS {
        for (payment_intent_id, ended) in payments.expire_authorizations([shard]).await? {
            match ended {
                Ok(_) => {}
                // Something else is under way, and will end.
                Err(PaymentsError::Refused(_)) => {}
                Err(error) => eprintln!("expiring {payment_intent_id}: {error}"),
            }
        }
    }
    Ok(())
}

/// The sandbox processor's side of `serve`: it decides what it left open, and sends its notices.
pub async fn send_notices_until(processor: Processor, to: String, mut stop: watch::Receiver<bool>) {
    let client = reqwest::Client::builder().no_proxy().build();
    let Ok(client) = client else { return };
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        processor.decide_pending();
        for said in processor.take_notices() {
            let text = serde_json::to_string(&said).unwrap_or_default();
            let signed = signature::sign(&[NOTICE_SECRET], &text, cloud::Clock::System.now());
            let request = client.post(&to).header(signature::HEADER, signed);
            // A notice that is lost is lost: the reconciler asks.
            let _ = request.body(text).send().await;
        }
    }
}
