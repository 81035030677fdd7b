//! One client on one WebSocket: joins, follows the one order, sends edits.
//!
//! A client is sent every operation once, in order; its own comes as an acknowledgement in its place. So the
//! acknowledgement says *where* the edit stands, and needs no path of its own that could overtake another.

use crate::broadcast::{Entered, Hub, News};
use crate::domain::{Edit, Entry, Version};
use crate::presence::{PRESENT_MS, Person};
use crate::protocol::{FromClient, FromServer};
use crate::{DocumentError, EditOutcome, Open};
use axum::extract::ws::{Message, WebSocket};
use serving::{Refusal, shortened};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long a client may take to say who it is, or to take what it is sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The session is over.
struct Over;

/// Serves one socket until either side is done.
pub async fn serve_socket(hub: Hub, socket: WebSocket, mut stop: watch::Receiver<bool>) {
    let mut wire = Wire(socket);
    let Ok(first) = tokio::time::timeout(PATIENCE, wire.receive()).await else {
        return;
    };
    let (document, client, name, version) = match first {
        Ok(FromClient::Join {
            document,
            client,
            name,
            version,
        }) => (document, client, name, version),
        Ok(_) => {
            let _ = wire.refuse("the first word is join").await;
            return;
        }
        Err(Over) => return,
    };
    let person = Person {
        client,
        name,
        version: 0,
        position: 0,
        anchor: 0,
    };
    let named = crate::domain::valid_id("document id", &document).and(person.validate());
    if let Err(wrong) = named {
        let _ = wire.refuse(&wrong.to_string()).await;
        return;
    }
    let mut session = Session {
        entered: hub.enter(&document),
        open: hub.service().open(&document),
        hub: hub.clone(),
        known: HashMap::new(),
        document,
        person,
        sent: 0,
        mine: HashSet::new(),
        wire,
    };
    tokio::select! {
        _ = session.run(version) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // Also when the client went without a word: the connection is gone, and so is who was behind it.
    let left = News::Left(session.person.client.clone());
    hub.tell(&session.document, left);
}

struct Session {
    hub: Hub,
    document: String,
    person: Person,
    /// The version up to which this client was sent everything.
    sent: Version,
    /// The edits that came on this connection and have no answer yet.
    mine: HashSet<u64>,
    /// Who this client was told about, and how many looks ago.
    known: HashMap<String, u32>,
    /// Keeps the document open on this node. Let go before the room is left, which may close it.
    open: Arc<Open>,
    entered: Entered,
    wire: Wire,
}

impl Session {
    async fn run(&mut self, version: Option<Version>) -> Result<(), Over> {
        // Before the document is read: what happens in between is seen.
        let mut head = self.open.head.subscribe();
        self.begin(version).await?;
        self.hub
            .tell(&self.document, News::Present(self.person.clone()));
        let (found, mut others) = mpsc::channel(1);
        self.look_around(&found);
        let mut refresh = tokio::time::interval(Duration::from_millis(PRESENT_MS / 3));
        refresh.tick().await;
        loop {
            tokio::select! {
                message = self.wire.receive() => self.handle(message?).await?,
                changed = head.changed() => {
                    changed.map_err(|_| Over)?;
                    head.mark_unchanged();
                    self.send_new().await?;
                }
                news = self.entered.news.recv() => {
                    // Lagging behind on cursors is no harm.
                    if let Ok(news) = news { self.pass_on(news).await? }
                }
                Some(people) = others.recv() => self.compare(people).await?,
                _ = refresh.tick() => {
                    self.hub.tell(&self.document, News::Present(self.person.clone()));
                    self.look_around(&found);
                }
            }
        }
    }

    /// Asks who is here. Redis may be slow or away: it comes when it comes.
    fn look_around(&self, found: &mpsc::Sender<Vec<Person>>) {
        let (service, document) = (self.hub.service().clone(), self.document.clone());
        let found = found.clone();
        tokio::spawn(async move {
            if let Ok(people) = service.people(&document).await {
                let _ = found.send(people).await;
            }
        });
    }

    /// Tells who is here, and who has gone without a word: their key has expired.
    async fn compare(&mut self, people: Vec<Person>) -> Result<(), Over> {
        let here: HashSet<&str> = people.iter().map(|person| person.client.as_str()).collect();
        let mut gone = Vec::new();
        for (client, looks) in &mut self.known {
            *looks += 1;
            // Not at the first look: somebody who has just come may not be in Redis yet.
            if *looks > 1 && !here.contains(client.as_str()) {
                gone.push(client.clone());
            }
        }
        for client in gone {
            self.pass_on(News::Left(client)).await?;
        }
        for person in people {
            self.pass_on(News::Present(person)).await?;
        }
        Ok(())
    }

    /// The whole document, or what came since the client's version.
    async fn begin(&mut self, version: Option<Version>) -> Result<(), Over> {
        match version {
            None => {
                let loaded = self.hub.service().load_document(&self.document).await;
                let loaded = self.or_over(loaded).await?;
                self.sent = loaded.version;
                let (version, text) = (loaded.version, loaded.text);
                self.wire.send(&FromServer::Welcome { version, text }).await
            }
            Some(version) => {
                let caught_up = self.hub.service().catch_up(&self.document).await;
                self.or_over(caught_up).await?;
                self.resume(version).await
            }
        }
    }

    async fn resume(&mut self, version: Version) -> Result<(), Over> {
        let entries = self
            .hub
            .service()
            .entries_after(&self.document, version)
            .await;
        match self.or_over(entries).await? {
            Some(operations) => {
                self.sent = operations.last().map_or(version, |entry| entry.version);
                self.wire.send(&FromServer::Resume { operations }).await
            }
            None => {
                let why = format!("version {version} is too far behind");
                self.wire.send(&FromServer::Reload { why }).await
            }
        }
    }

    /// What this client has not been sent.
    async fn send_new(&mut self) -> Result<(), Over> {
        let entries = self
            .hub
            .service()
            .entries_after(&self.document, self.sent)
            .await;
        let Some(entries) = self.or_over(entries).await? else {
            let why = "too slow: the operations in between are no longer kept".to_owned();
            return self.wire.send(&FromServer::Reload { why }).await;
        };
        for entry in entries {
            self.sent = entry.version;
            let message = self.message_for(entry);
            self.wire.send(&message).await?;
        }
        Ok(())
    }

    fn message_for(&mut self, entry: Entry) -> FromServer {
        if entry.client_id == self.person.client && self.mine.remove(&entry.sequence) {
            let (sequence, version) = (entry.sequence, entry.version);
            return FromServer::Ack { sequence, version };
        }
        FromServer::Operation(entry)
    }

    async fn handle(&mut self, message: FromClient) -> Result<(), Over> {
        match message {
            // Again, on the same connection: after a reload.
            FromClient::Join { version, .. } => self.begin(version).await,
            FromClient::Since { version } => self.resume(version).await,
            FromClient::Edit {
                base,
                sequence,
                operation,
            } => {
                let edit = Edit {
                    document_id: self.document.clone(),
                    client_id: self.person.client.clone(),
                    sequence,
                    base,
                    operation,
                    undoes: None,
                };
                self.mine.insert(sequence);
                let outcome = self.hub.service().submit_edit(&edit).await;
                match self.or_over(outcome).await? {
                    EditOutcome::Refused(refusal) => {
                        let why = refusal.to_string();
                        self.wire.send(&FromServer::Reload { why }).await
                    }
                    outcome => self.settle(sequence, outcome).await,
                }
            }
            FromClient::Undo { sequence } => {
                let client = self.person.client.clone();
                let outcome = self
                    .hub
                    .service()
                    .undo(&self.document, &client, sequence)
                    .await;
                match self.or_over(outcome).await? {
                    EditOutcome::Refused(refusal) => self.wire.refuse(&refusal.to_string()).await,
                    outcome => self.settle(sequence, outcome).await,
                }
            }
            FromClient::Cursor {
                version,
                position,
                anchor,
            } => {
                self.person = Person {
                    version,
                    position,
                    anchor,
                    ..self.person.clone()
                };
                self.hub
                    .tell(&self.document, News::Present(self.person.clone()));
                Ok(())
            }
        }
    }

    /// An edit is in the order: tell everybody, and this client in its turn.
    async fn settle(&mut self, sequence: u64, outcome: EditOutcome) -> Result<(), Over> {
        if let EditOutcome::Applied(entry) = &outcome {
            self.hub
                .tell(&self.document, News::Operation(entry.clone()));
            let every = self.hub.service().settings().snapshot_every;
            if entry.version.is_multiple_of(every) {
                let (service, document) = (self.hub.service().clone(), self.document.clone());
                // Should it fail or die, the next multiple makes a larger one.
                tokio::spawn(async move { service.compact(&document).await });
            }
        }
        self.send_new().await?;
        match outcome.version() {
            // Sent again after it had been answered.
            Some(version) if self.mine.remove(&sequence) && version <= self.sent => {
                self.wire.send(&FromServer::Ack { sequence, version }).await
            }
            _ => Ok(()),
        }
    }

    async fn pass_on(&mut self, news: News) -> Result<(), Over> {
        match news {
            News::Present(person) if person.client != self.person.client => {
                self.known.entry(person.client.clone()).or_default();
                self.wire.send(&FromServer::Presence(person)).await
            }
            News::Left(client) if client != self.person.client => {
                self.known.remove(&client);
                self.wire.send(&FromServer::Left { client }).await
            }
            _ => Ok(()),
        }
    }

    /// Wrong input is told, and the client has to begin again; after a fault the connection ends, and the client
    /// comes back with the same edit.
    async fn or_over<T>(&mut self, result: Result<T, DocumentError>) -> Result<T, Over> {
        match result {
            Ok(done) => Ok(done),
            Err(DocumentError::BadInput(wrong)) => {
                let why = wrong.to_string();
                let _ = self.wire.send(&FromServer::Reload { why }).await;
                Err(Over)
            }
            Err(error) => {
                let why = Refusal::from(error).told("a session");
                let _ = self.wire.refuse(&why).await;
                Err(Over)
            }
        }
    }
}

struct Wire(WebSocket);

impl Wire {
    /// The next message that means something.
    async fn receive(&mut self) -> Result<FromClient, Over> {
        loop {
            let text = match self.0.recv().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                _ => return Err(Over),
            };
            match serde_json::from_str(&text) {
                Ok(message) => return Ok(message),
                Err(error) => {
                    self.refuse(&format!("unreadable: {error}")).await?;
                    return Err(Over);
                }
            }
        }
    }

    async fn send(&mut self, message: &FromServer) -> Result<(), Over> {
        let text = serde_json::to_string(message).map_err(|_| Over)?;
        let sent = tokio::time::timeout(PATIENCE, self.0.send(Message::text(text))).await;
        sent.map_err(|_| Over)?.map_err(|_| Over)
    }

    async fn refuse(&mut self, why: &str) -> Result<(), Over> {
        let why = shortened(why.to_owned());
        self.send(&FromServer::Refused { why }).await
    }
}
