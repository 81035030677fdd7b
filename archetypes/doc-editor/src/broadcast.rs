//! Broadcast remote change: to the other nodes over Redis, and on each node to the sessions of the document.
//!
//! ```text
//! submit ──▶ this node's sessions
//!    └──PUBLISH──▶ Redis ──▶ the other nodes ──▶ their sessions
//! ```
//!
//! What is published is a hint. Redis forgets what nobody hears, and may be away; so every operation carries
//! its version, a node takes in only the next one, and reads the log when it finds a gap, when its
//! subscription was made again, and now and then. Edits are accepted without any of it.

use crate::domain::{Entry, Version};
use crate::presence::Person;
use crate::{DocumentError, DocumentService};
use cloud::CloudError;
use futures::StreamExt;
use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};

/// What nodes tell each other about a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// The next operation.
    Operation(Entry),
    /// Somebody is here, or has moved.
    Present(Person),
    /// Somebody has left.
    Left(String),
}

#[derive(Serialize, Deserialize)]
struct Message {
    node: String,
    document: String,
    news: News,
}

impl DocumentService {
    fn channel(&self, document_id: &str) -> String {
        self.cloud.names().key(&format!("document:{document_id}"))
    }

    /// Tells the other nodes.
    pub async fn broadcast(
        &self,
        node: &str,
        document_id: &str,
        news: &News,
    ) -> Result<(), CloudError> {
        let message = Message {
            node: node.to_owned(),
            document: document_id.to_owned(),
            news: news.clone(),
        };
        let text = serde_json::to_string(&message).map_err(CloudError::bug)?;
        let mut redis = self.cloud.redis().await?;
        let () = redis.publish(self.channel(document_id), text).await?;
        Ok(())
    }

    /// An operation was heard of: taken in if it is the next, looked up in the log if something is missing
    /// before it. A document that is not open here is not of interest.
    pub async fn hear(&self, document_id: &str, entry: Entry) -> Result<(), DocumentError> {
        let open = self.open(document_id);
        let mut held = open.canon.lock().await;
        let Some(canon) = held.as_mut() else {
            return Ok(());
        };
        if entry.version <= canon.version() {
            return Ok(());
        }
        if canon.advance(entry).is_err() {
            self.up_to_date(document_id, &mut held).await?;
        }
        if let Some(canon) = held.as_ref() {
            open.reached(canon.version());
        }
        Ok(())
    }

    /// Looks whether the log has more than this node knows of. Gives the version it is at.
    pub async fn catch_up(&self, document_id: &str) -> Result<Version, DocumentError> {
        let open = self.open(document_id);
        let mut held = open.canon.lock().await;
        let version = self.up_to_date(document_id, &mut held).await?.version();
        open.reached(version);
        Ok(version)
    }

    /// The operations after a version, for somebody who follows; none if they are no longer kept.
    pub async fn entries_after(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<Option<Vec<Entry>>, DocumentError> {
        let open = self.open(document_id);
        let mut held = open.canon.lock().await;
        if held.as_ref().is_none_or(|canon| canon.version() < version) {
            self.up_to_date(document_id, &mut held).await?;
        }
        let Some(canon) = held.as_ref() else {
            return Ok(None);
        };
        // From another history than this one.
        if version > canon.version() {
            return Ok(None);
        }
        if let Some(entries) = canon.entries_after(version) {
            return Ok(Some(entries));
        }
        let until = canon.version();
        drop(held);
        if until - version > crate::domain::MAX_BEHIND {
            return Ok(None);
        }
        let entries = self.read_log(document_id, version, Some(until)).await?;
        Ok((entries.len() as u64 == until - version).then_some(entries))
    }
}

/// How often a node looks into the log of each open document. The last operation before a quiet hour may be
/// the one whose message was lost, and no later one would show the gap.
const LOOKS_EVERY: Duration = Duration::from_secs(3);

/// How long Redis may take to answer a new connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many messages may wait for Redis. More are dropped: they are hints.
const QUEUE: usize = 1_024;

/// The rooms of a node: one for each document that somebody has open here. Clones are the same.
#[derive(Clone)]
pub struct Hub {
    service: DocumentService,
    rooms: Arc<Mutex<HashMap<String, Room>>>,
    outgoing: mpsc::Sender<(String, News)>,
    subscriptions: mpsc::UnboundedSender<()>,
}

struct Room {
    news: broadcast::Sender<News>,
    sessions: usize,
}

impl Hub {
    /// Begins. The background work ends when the last clone is gone.
    pub fn start(service: DocumentService) -> Self {
        Self::looking_every(service, LOOKS_EVERY)
    }

    /// The same, looking into the logs as often as told.
    pub fn looking_every(service: DocumentService, every: Duration) -> Self {
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let (subscriptions, changed) = mpsc::unbounded_channel();
        let node = service.cloud.ids().next("node");
        let rooms = Arc::default();
        tokio::spawn(publish_all(service.clone(), node.clone(), queue));
        let ear = Ear {
            service: service.clone(),
            node,
            rooms: Arc::clone(&rooms),
            every,
        };
        tokio::spawn(ear.listen(changed));
        Self {
            service,
            rooms,
            outgoing,
            subscriptions,
        }
    }

    /// The service of this node.
    pub fn service(&self) -> &DocumentService {
        &self.service
    }

    /// Enters a room. Leaving is dropping what it gives.
    pub(crate) fn enter(&self, document_id: &str) -> Entered {
        let news = {
            let mut rooms = lock(&self.rooms);
            let room = rooms.entry(document_id.to_owned()).or_insert_with(|| Room {
                news: broadcast::channel(256).0,
                sessions: 0,
            });
            room.sessions += 1;
            room.news.subscribe()
        };
        let _ = self.subscriptions.send(());
        Entered {
            hub: self.clone(),
            document_id: document_id.to_owned(),
            news,
        }
    }

    /// Tells this node's sessions, except about operations, which they have from the service; and hands it to
    /// whoever tells the other nodes. Never waits.
    pub(crate) fn tell(&self, document_id: &str, news: News) {
        if !matches!(news, News::Operation(_)) {
            self.tell_here(document_id, news.clone());
        }
        let _ = self.outgoing.try_send((document_id.to_owned(), news));
    }

    fn tell_here(&self, document_id: &str, news: News) {
        if let Some(room) = lock(&self.rooms).get(document_id) {
            let _ = room.news.send(news);
        }
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        lock(&self.rooms).values().map(|room| room.sessions).sum()
    }
}

/// A session in a room.
pub(crate) struct Entered {
    hub: Hub,
    document_id: String,
    pub(crate) news: broadcast::Receiver<News>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut rooms = lock(&self.hub.rooms);
        if let Some(room) = rooms.get_mut(&self.document_id) {
            room.sessions -= 1;
            if room.sessions == 0 {
                rooms.remove(&self.document_id);
                self.hub.service.close(&self.document_id);
            }
        }
        drop(rooms);
        let _ = self.hub.subscriptions.send(());
    }
}

fn lock(rooms: &Mutex<HashMap<String, Room>>) -> MutexGuard<'_, HashMap<String, Room>> {
    rooms.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything that goes to Redis, in order. What fails is not said again: whoever needs it looks.
async fn publish_all(
    service: DocumentService,
    node: String,
    mut queue: mpsc::Receiver<(String, News)>,
) {
    while let Some((document, news)) = queue.recv().await {
        let _ = match &news {
            News::Operation(_) => Ok(()),
            News::Present(person) => service.update_presence(&document, person).await,
            News::Left(client) => service.remove_presence(&document, client).await,
        };
        let _ = service.broadcast(&node, &document, &news).await;
    }
}

/// A node's ear on Redis.
struct Ear {
    service: DocumentService,
    node: String,
    rooms: Arc<Mutex<HashMap<String, Room>>>,
    every: Duration,
}

impl Ear {
    /// Listens to the channels of the open documents, until nobody can open one any more.
    async fn listen(self, mut changed: mpsc::UnboundedReceiver<()>) {
        let mut look = tokio::time::interval(self.every);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let connecting = self.service.cloud.redis_subscriber();
            let Ok(Ok(subscriber)) = tokio::time::timeout(PATIENCE, connecting).await else {
                // Without Redis the looking alone brings what other nodes did.
                tokio::select! {
                    _ = look.tick() => self.look().await,
                    more = changed.recv() => if more.is_none() { return },
                }
                continue;
            };
            let (mut sink, mut messages) = subscriber.split();
            let mut subscribed: Vec<String> = Vec::new();
            loop {
                let wanted: Vec<String> = lock(&self.rooms).keys().cloned().collect();
                let mut failed = false;
                for document in wanted
                    .iter()
                    .filter(|document| !subscribed.contains(document))
                {
                    failed |= sink
                        .subscribe(self.service.channel(document))
                        .await
                        .is_err();
                    // What happened before the subscription was not heard.
                    let _ = self.service.catch_up(document).await;
                }
                for document in subscribed
                    .iter()
                    .filter(|document| !wanted.contains(document))
                {
                    failed |= sink
                        .unsubscribe(self.service.channel(document))
                        .await
                        .is_err();
                }
                if failed {
                    break;
                }
                subscribed = wanted;
                tokio::select! {
                    message = messages.next() => match message {
                        Some(message) => self.heard(&message.get_payload::<String>().unwrap_or_default()).await,
                        None => break,
                    },
                    more = changed.recv() => if more.is_none() { return },
                    _ = look.tick() => self.look().await,
                }
            }
            look.tick().await;
        }
    }

    async fn heard(&self, text: &str) {
        let Ok(message) = serde_json::from_str::<Message>(text) else {
            return;
        };
        if message.node == self.node {
            return;
        }
        match message.news {
            // A fault here is the store's; the next look finds what was missed.
            News::Operation(entry) => {
                let _ = self.service.hear(&message.document, entry).await;
            }
            news => {
                if let Some(room) = lock(&self.rooms).get(&message.document) {
                    let _ = room.news.send(news);
                }
            }
        }
    }

    async fn look(&self) {
        let documents: Vec<String> = lock(&self.rooms).keys().cloned().collect();
        for document in documents {
            let _ = self.service.catch_up(&document).await;
        }
    }
}
