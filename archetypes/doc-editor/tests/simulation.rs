//! Thousands of seeded schedules on a simulated network: windows type at once, messages and connections are lost,
//! nodes restart. When all is quiet, everybody has the same text.
//!
//! The rules (`domain::Canon`) and the client library (`client::Replica`) are the ones that ship. In most
//! schedules the store is a vector with the guards of `submit_edit`, because thousands are wanted; in some it is
//! the real service on the embedded store, snapshots and pruning included.
//!
//! There are two networks. On the *orderly* one, messages of a connection arrive in order and connections break,
//! as TCP has it: there, everything must settle by itself. On the *wild* one single messages are lost, doubled and
//! overtaken as well, and at the end everybody connects once more.
#![allow(clippy::unwrap_used)]

mod office;

use doc_editor::client::Replica;
use doc_editor::domain::{Canon, Decision, MAX_BEHIND};
use doc_editor::ot::{Operation, Run};
use doc_editor::protocol::{FromClient, FromServer};
use doc_editor::{DocumentService, Edit, EditOutcome, Entry, Refusal, Settings, Version};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

/// What happened, over all schedules: without these the checks might be empty.
type Counts = Rc<RefCell<BTreeMap<&'static str, usize>>>;

fn count(counts: &Counts, what: &'static str) {
    *counts.borrow_mut().entry(what).or_default() += 1;
}

// ---- One node of the server, pure or real.

trait Node {
    async fn load(&mut self) -> (Version, String);
    async fn submit(&mut self, edit: &Edit) -> EditOutcome;
    async fn undo(&mut self, client: &str, sequence: u64) -> EditOutcome;
    async fn catch_up(&mut self);
    async fn entries_after(&mut self, version: Version) -> Option<Vec<Entry>>;
    async fn hear(&mut self, entry: Entry);
    async fn compact(&mut self);
    fn restart(&mut self);
}

/// The store as a vector: what DynamoDB has, and what its conditions say.
struct Store {
    first: String,
    log: Vec<Entry>,
    edits: HashMap<(String, u64), Version>,
    snapshot: (Version, String),
    /// Reads find nothing up to here.
    base: Version,
}

impl Store {
    /// One transaction: the version is as it was seen, and the edit is not there.
    fn append(&mut self, entry: &Entry) -> Result<(), Option<Version>> {
        let identity = (entry.client_id.clone(), entry.sequence);
        if let Some(before) = self.edits.get(&identity) {
            return Err(Some(*before));
        }
        if self.log.len() as u64 != entry.version - 1 {
            return Err(None);
        }
        self.edits.insert(identity, entry.version);
        self.log.push(entry.clone());
        Ok(())
    }

    fn read(&self, after: Version, until: Version) -> Vec<Entry> {
        let from = after.max(self.base);
        let wanted = |entry: &&Entry| entry.version > from && entry.version <= until;
        self.log.iter().filter(wanted).cloned().collect()
    }
}

const HELD: usize = 3;
const RETAIN: u64 = 4;

struct Pure {
    store: Rc<RefCell<Store>>,
    canon: Option<Canon>,
    counts: Counts,
}

impl Pure {
    fn recover(&self) -> Canon {
        let store = self.store.borrow();
        let (version, text) = &store.snapshot;
        let mut canon = Canon::new(*version, text, HELD);
        canon.follow(store.read(*version, u64::MAX)).unwrap();
        canon
    }

    fn up_to_date(&mut self) -> &mut Canon {
        if let Some(mut canon) = self.canon.take() {
            let newer = self.store.borrow().read(canon.version(), u64::MAX);
            if canon.follow(newer).is_ok() {
                self.canon = Some(canon);
            }
        }
        if self.canon.is_none() {
            count(&self.counts, "recovered from the store");
            self.canon = Some(self.recover());
        }
        self.canon.as_mut().unwrap()
    }

    fn refuse(&self, edit: &Edit, refusal: Refusal) -> EditOutcome {
        let store = self.store.borrow();
        match store.edits.get(&(edit.client_id.clone(), edit.sequence)) {
            Some(version) => EditOutcome::Before(*version),
            None => EditOutcome::Refused(refusal),
        }
    }
}

impl Node for Pure {
    async fn load(&mut self) -> (Version, String) {
        let canon = self.up_to_date();
        (canon.version(), canon.text().to_string())
    }

    async fn submit(&mut self, edit: &Edit) -> EditOutcome {
        if self.canon.is_none() {
            self.canon = Some(self.recover());
        }
        let mut older = Vec::new();
        loop {
            let canon = self.canon.as_ref().unwrap();
            let version = canon.version();
            let base = edit.base;
            let entry = match canon.decide(edit, &older) {
                Decision::Append(entry) => entry,
                Decision::Before(version) => return EditOutcome::Before(version),
                Decision::Refused(refusal) => return self.refuse(edit, refusal),
                Decision::Behind => {
                    let version = self.up_to_date().version();
                    if version < base {
                        return self.refuse(edit, Refusal::FromTheFuture { base, version });
                    }
                    continue;
                }
                Decision::Older { after, until } => {
                    count(&self.counts, "older operations read");
                    older = self.store.borrow().read(after, until);
                    if (older.len() as u64) < until - after {
                        return self.refuse(edit, Refusal::TooFarBehind { base, version });
                    }
                    continue;
                }
            };
            let appended = self.store.borrow_mut().append(&entry);
            match appended {
                Ok(()) => {
                    self.canon.as_mut().unwrap().advance(entry.clone()).unwrap();
                    return EditOutcome::Applied(entry);
                }
                Err(Some(before)) => {
                    count(&self.counts, "resent edit found by its identity");
                    self.up_to_date();
                    return EditOutcome::Before(before);
                }
                Err(None) => {
                    count(&self.counts, "overtaken by the other node");
                    self.up_to_date();
                }
            }
        }
    }

    async fn undo(&mut self, client: &str, sequence: u64) -> EditOutcome {
        let edit = {
            let store = self.store.borrow();
            if let Some(version) = store.edits.get(&(client.to_owned(), sequence)) {
                return EditOutcome::Before(*version);
            }
            let log = store.read(0, u64::MAX);
            let undone: HashSet<_> = log.iter().filter_map(|entry| entry.undoes).collect();
            let own = |entry: &&Entry| {
                entry.client_id == client
                    && entry.undoes.is_none()
                    && !undone.contains(&entry.version)
            };
            let Some(last) = log.iter().rev().find(own) else {
                return EditOutcome::Refused(Refusal::NothingToUndo);
            };
            let mut before = Canon::new(0, &store.first, 0);
            before
                .follow(store.log[..last.version as usize - 1].iter().cloned())
                .unwrap();
            Edit {
                document_id: "doc".into(),
                client_id: client.to_owned(),
                sequence,
                base: last.version,
                operation: last.operation.invert(&before.text().to_string()).unwrap(),
                undoes: Some(last.version),
            }
        };
        self.submit(&edit).await
    }

    async fn catch_up(&mut self) {
        self.up_to_date();
    }

    async fn entries_after(&mut self, version: Version) -> Option<Vec<Entry>> {
        if self
            .canon
            .as_ref()
            .is_none_or(|canon| canon.version() < version)
        {
            self.up_to_date();
        }
        let canon = self.canon.as_ref()?;
        if version > canon.version() {
            return None;
        }
        if let Some(entries) = canon.entries_after(version) {
            return Some(entries);
        }
        let until = canon.version();
        if until - version > MAX_BEHIND {
            return None;
        }
        let entries = self.store.borrow().read(version, until);
        (entries.len() as u64 == until - version).then_some(entries)
    }

    async fn hear(&mut self, entry: Entry) {
        let Some(canon) = self.canon.as_mut() else {
            return;
        };
        if entry.version > canon.version() && canon.advance(entry).is_err() {
            count(&self.counts, "gap between nodes");
            self.up_to_date();
        }
    }

    async fn compact(&mut self) {
        let made = self.recover();
        let mut store = self.store.borrow_mut();
        let base = made.version().saturating_sub(RETAIN).min(store.snapshot.0);
        store.base = store.base.max(base);
        store.snapshot = (made.version(), made.text().to_string());
    }

    fn restart(&mut self) {
        self.canon = None;
    }
}

const REAL: Settings = Settings {
    snapshot_every: 3,
    retain: 2,
    inline_bytes: 30,
    held: HELD,
};

struct Real {
    service: DocumentService,
    id: String,
}

impl Node for Real {
    async fn load(&mut self) -> (Version, String) {
        let loaded = self.service.load_document(&self.id).await.unwrap();
        (loaded.version, loaded.text)
    }

    async fn submit(&mut self, edit: &Edit) -> EditOutcome {
        self.service.submit_edit(edit).await.unwrap()
    }

    async fn undo(&mut self, client: &str, sequence: u64) -> EditOutcome {
        self.service.undo(&self.id, client, sequence).await.unwrap()
    }

    async fn catch_up(&mut self) {
        self.service.catch_up(&self.id).await.unwrap();
    }

    async fn entries_after(&mut self, version: Version) -> Option<Vec<Entry>> {
        self.service.entries_after(&self.id, version).await.unwrap()
    }

    async fn hear(&mut self, entry: Entry) {
        self.service.hear(&self.id, entry).await.unwrap();
    }

    async fn compact(&mut self) {
        self.service.compact(&self.id).await.unwrap();
    }

    fn restart(&mut self) {
        self.service = DocumentService::with(self.service.cloud().clone(), REAL);
    }
}

// ---- The network and the windows.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Orderly,
    Wild,
}

/// One connection of a window to a node, with what is under way on it. The server's side is a session as in
/// `session.rs`; it lives on for a while when the window is gone.
struct Connection {
    window: usize,
    node: usize,
    /// Both sides think so.
    alive: bool,
    joined: bool,
    sent: Version,
    mine: HashSet<u64>,
    up: Vec<FromClient>,
    down: Vec<FromServer>,
}

struct Window {
    name: String,
    replica: Replica,
    connection: Option<usize>,
}

struct Room<N> {
    random: StdRng,
    network: Network,
    only_inserts: bool,
    document: String,
    nodes: Vec<N>,
    /// What each node was told by the others and has not heard yet.
    gossip: Vec<Vec<Entry>>,
    windows: Vec<Window>,
    connections: Vec<Connection>,
    /// Every answer that said "it is in": who, which edit, as which version.
    acknowledged: Vec<(String, u64, Version)>,
    /// Each version, by whom it was applied: at most one.
    applied: HashMap<Version, usize>,
    /// Each inserted word of one typing, in letters that are used once.
    typed: Vec<String>,
    next_letter: u32,
    counts: Counts,
}

const LETTERS: [char; 6] = ['a', 'b', ' ', 'é', '漢', '🦀'];

impl<N: Node> Room<N> {
    fn new(seed: u64, network: Network, document: &str, nodes: Vec<N>, counts: &Counts) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let windows = random.random_range(2..=4);
        let window = |number: usize| {
            let name = format!("w{number}");
            Window {
                replica: Replica::new(document, &name, &name),
                name,
                connection: None,
            }
        };
        Self {
            network,
            only_inserts: !seed.is_multiple_of(2),
            random,
            document: document.to_owned(),
            gossip: nodes.iter().map(|_| Vec::new()).collect(),
            nodes,
            windows: (0..windows).map(window).collect(),
            connections: Vec::new(),
            acknowledged: Vec::new(),
            applied: HashMap::new(),
            typed: Vec::new(),
            // Planes of rare Chinese characters: nobody else's letters, and four bytes each.
            next_letter: 0x2_0000,
            counts: Rc::clone(counts),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.random_bool(probability)
    }

    fn count(&self, what: &'static str) {
        count(&self.counts, what);
    }

    // ---- Windows.

    /// An edit of several runs, or a keystroke.
    fn some_edit(&mut self, len: usize) -> Operation {
        let mut operation = Operation::new();
        let mut left = len;
        let parts = self.random.random_range(1..=3);
        for part in 0..parts {
            // Often at the beginning: that is where they meet.
            let skip = match part == 0 && self.random.random_bool(0.4) {
                true => 0,
                false => self.random.random_range(0..=left),
            };
            operation = operation.retain(skip);
            left -= skip;
            if !self.only_inserts && left > 0 && self.random.random_bool(0.4) {
                let gone = self.random.random_range(1..=left.min(4));
                operation = operation.delete(gone);
                left -= gone;
            } else {
                operation = operation.insert(&self.some_word());
            }
        }
        operation.retain(left)
    }

    fn some_word(&mut self) -> String {
        let length = self.random.random_range(1..=3);
        if !self.only_inserts {
            let letter = |_| LETTERS[self.random.random_range(0..LETTERS.len())];
            return (0..length).map(letter).collect();
        }
        let letters = self.next_letter..self.next_letter + length;
        self.next_letter += length;
        let word: String = letters
            .map(|letter| char::from_u32(letter).unwrap())
            .collect();
        self.typed.push(word.clone());
        word
    }

    fn type_in(&mut self, window: usize) {
        let len = self.windows[window].replica.len();
        let edit = self.some_edit(len);
        if !self.windows[window].replica.is_ready() {
            self.count("typed before the text was there");
        }
        self.windows[window].replica.local_edit(&edit).unwrap();
        if self.windows[window].replica.pending().count() > 1 {
            self.count("typed while an edit was under way");
        }
    }

    fn flush(&mut self, window: usize) {
        let Some(connection) = self.windows[window].connection else {
            return;
        };
        while let Some(message) = self.windows[window].replica.take_outgoing() {
            self.connections[connection].up.push(message);
        }
    }

    fn connect(&mut self, window: usize) {
        let node = self.random.random_range(0..self.nodes.len());
        self.hang_up(window);
        self.connections.push(Connection {
            window,
            node,
            alive: true,
            joined: false,
            sent: 0,
            mine: HashSet::new(),
            up: Vec::new(),
            down: Vec::new(),
        });
        self.windows[window].connection = Some(self.connections.len() - 1);
        self.windows[window].replica.connected();
        self.flush(window);
    }

    fn hang_up(&mut self, window: usize) {
        self.windows[window].replica.disconnected();
        let Some(connection) = self.windows[window].connection.take() else {
            return;
        };
        self.count("connection broken");
        let connection = &mut self.connections[connection];
        connection.alive = false;
        connection.down.clear();
        // What had left may still arrive, much later, when the window has long come back. Only on the wild
        // network would its end arrive without its beginning.
        if self.random.random_bool(0.5) {
            let rest = self.random.random_range(0..=connection.up.len());
            connection.up.truncate(rest);
        }
    }

    // ---- The server's side of a connection: `session.rs`.

    fn say(&mut self, connection: usize, message: FromServer) {
        let name = self.windows[self.connections[connection].window]
            .name
            .clone();
        match &message {
            FromServer::Ack { sequence, version } => {
                self.acknowledged.push((name, *sequence, *version));
            }
            FromServer::Operation(entry) if entry.client_id == name => {
                self.acknowledged
                    .push((name, entry.sequence, entry.version));
            }
            FromServer::Reload { .. } => self.count("told to reload"),
            _ => {}
        }
        let connection = &mut self.connections[connection];
        if connection.alive {
            connection.down.push(message);
        }
    }

    async fn handle(&mut self, at: usize, message: FromClient) {
        let node = self.connections[at].node;
        let client = self.windows[self.connections[at].window].name.clone();
        if !matches!(message, FromClient::Join { .. }) && !self.connections[at].joined {
            return;
        }
        match message {
            FromClient::Join { version: None, .. } => {
                self.connections[at].joined = true;
                let (version, text) = self.nodes[node].load().await;
                self.connections[at].sent = version;
                self.say(at, FromServer::Welcome { version, text });
            }
            FromClient::Join {
                version: Some(version),
                ..
            } => {
                self.connections[at].joined = true;
                self.count("resumed");
                self.nodes[node].catch_up().await;
                self.resume(at, version).await;
            }
            FromClient::Since { version } => {
                self.count("gap seen by a window");
                self.resume(at, version).await;
            }
            FromClient::Edit {
                base,
                sequence,
                operation,
            } => {
                let edit = Edit {
                    document_id: self.document.clone(),
                    client_id: client,
                    sequence,
                    base,
                    operation,
                    undoes: None,
                };
                self.connections[at].mine.insert(sequence);
                match self.nodes[node].submit(&edit).await {
                    EditOutcome::Refused(refusal) => {
                        self.say(
                            at,
                            FromServer::Reload {
                                why: refusal.to_string(),
                            },
                        );
                    }
                    outcome => self.settle(at, sequence, outcome).await,
                }
            }
            FromClient::Undo { sequence } => match self.nodes[node].undo(&client, sequence).await {
                EditOutcome::Refused(refusal) => {
                    self.say(
                        at,
                        FromServer::Refused {
                            why: refusal.to_string(),
                        },
                    );
                }
                outcome => {
                    self.count("undone");
                    self.settle(at, sequence, outcome).await;
                }
            },
            FromClient::Cursor { .. } => {}
        }
    }

    async fn resume(&mut self, at: usize, version: Version) {
        let node = self.connections[at].node;
        match self.nodes[node].entries_after(version).await {
            Some(operations) => {
                self.connections[at].sent =
                    operations.last().map_or(version, |entry| entry.version);
                self.say(at, FromServer::Resume { operations });
            }
            None => self.say(
                at,
                FromServer::Reload {
                    why: "too far behind".into(),
                },
            ),
        }
    }

    async fn send_new(&mut self, at: usize) {
        let (node, sent) = (self.connections[at].node, self.connections[at].sent);
        let Some(entries) = self.nodes[node].entries_after(sent).await else {
            return self.say(
                at,
                FromServer::Reload {
                    why: "too slow".into(),
                },
            );
        };
        let name = self.windows[self.connections[at].window].name.clone();
        for entry in entries {
            let connection = &mut self.connections[at];
            connection.sent = entry.version;
            let own = entry.client_id == name && connection.mine.remove(&entry.sequence);
            let message = match own {
                true => FromServer::Ack {
                    sequence: entry.sequence,
                    version: entry.version,
                },
                false => FromServer::Operation(entry),
            };
            self.say(at, message);
        }
    }

    async fn settle(&mut self, at: usize, sequence: u64, outcome: EditOutcome) {
        let node = self.connections[at].node;
        match &outcome {
            EditOutcome::Applied(entry) => {
                *self.applied.entry(entry.version).or_default() += 1;
                if self.random.random_bool(0.1) {
                    self.count("message between nodes lost");
                } else {
                    let others = (0..self.nodes.len()).filter(|other| *other != node);
                    others.for_each(|other| self.gossip[other].push(entry.clone()));
                }
            }
            _ => self.count("resent and known"),
        }
        self.send_new(at).await;
        let version = outcome.version().unwrap();
        let connection = &mut self.connections[at];
        if connection.mine.remove(&sequence) && version <= connection.sent {
            self.say(at, FromServer::Ack { sequence, version });
        }
    }

    // ---- What may happen next.

    /// Takes the next message of a queue, or one of them; perhaps it is lost, perhaps it comes again.
    fn pick<T: Clone>(&mut self, queue: impl Fn(&mut Self) -> &mut Vec<T>) -> Option<T> {
        let waiting = queue(self).len();
        if waiting == 0 {
            return None;
        }
        let mut at = 0;
        if self.network == Network::Wild {
            at = self.random.random_range(0..waiting);
            if at > 0 {
                self.count("message overtook another");
            }
            if self.chance(0.08) {
                self.count("message lost");
                queue(self).remove(at);
                return None;
            }
            if self.chance(0.08) {
                self.count("message doubled");
                return Some(queue(self)[at].clone());
            }
        }
        Some(queue(self).remove(at))
    }

    async fn arrive_up(&mut self, connection: usize) {
        if let Some(message) = self.pick(|room| &mut room.connections[connection].up) {
            self.handle(connection, message).await;
        }
    }

    fn arrive_down(&mut self, connection: usize) {
        let window = self.connections[connection].window;
        let Some(message) = self.pick(|room| &mut room.connections[connection].down) else {
            return;
        };
        if let FromServer::Operation(entry) = &message
            && self.met(window, entry)
        {
            self.count("two inserted at one place");
        }
        self.windows[window].replica.receive(message);
        if self.chance(0.8) {
            self.flush(window);
        }
    }

    /// Whether an arriving operation inserts where the window has something inserted under way.
    fn met(&self, window: usize, entry: &Entry) -> bool {
        let first = |operation: &Operation| match operation.runs() {
            [Run::Insert(_), ..] => Some(0),
            [Run::Retain(at), Run::Insert(_), ..] => Some(*at),
            _ => None,
        };
        let mut pending = self.windows[window].replica.pending();
        pending.next().is_some_and(|typed| {
            let (ours, theirs) = (first(&typed.operation), first(&entry.operation));
            ours.is_some() && ours == theirs
        })
    }

    async fn arrive_between(&mut self, node: usize) {
        let waiting = self.gossip[node].len();
        if waiting == 0 {
            return;
        }
        let at = self.random.random_range(0..waiting);
        let entry = match self.chance(0.1) {
            true => self.gossip[node][at].clone(),
            false => self.gossip[node].remove(at),
        };
        self.nodes[node].hear(entry).await;
    }

    async fn restart(&mut self, node: usize) {
        self.count("node restarted");
        self.nodes[node].restart();
        self.gossip[node].clear();
        for at in 0..self.connections.len() {
            if self.connections[at].node != node {
                continue;
            }
            let window = self.connections[at].window;
            if self.windows[window].connection == Some(at) {
                self.hang_up(window);
            }
            self.connections[at].alive = false;
            self.connections[at].joined = false;
            self.connections[at].up.clear();
        }
    }

    async fn step(&mut self) {
        let window = self.random.random_range(0..self.windows.len());
        let node = self.random.random_range(0..self.nodes.len());
        let connection = self.windows[window].connection;
        match self.random.random_range(0..100) {
            0..20 => {
                // Mostly there is a text to type into.
                if self.windows[window].replica.is_ready() || self.chance(0.1) {
                    self.type_in(window);
                }
                if self.chance(0.7) {
                    self.flush(window);
                }
            }
            20..23 if !self.only_inserts => {
                self.windows[window].replica.undo();
                self.flush(window);
            }
            23..48 => {
                // Of the connections that are over, too.
                let waiting = |at: &usize| !self.connections[*at].up.is_empty();
                let waiting: Vec<_> = (0..self.connections.len()).filter(waiting).collect();
                if !waiting.is_empty() {
                    let at = waiting[self.random.random_range(0..waiting.len())];
                    self.arrive_up(at).await;
                }
            }
            48..76 => {
                let messages = self.random.random_range(1..=3);
                for _ in 0..messages {
                    if let Some(connection) = connection {
                        self.arrive_down(connection);
                    }
                }
            }
            76..82 => self.arrive_between(node).await,
            82..92 => {
                if let Some(connection) = connection
                    && self.connections[connection].joined
                {
                    self.send_new(connection).await;
                }
            }
            92..95 => {
                if connection.is_none() || self.chance(0.3) {
                    self.connect(window);
                }
            }
            95 => self.hang_up(window),
            96 if self.network == Network::Wild => {
                self.count("lost patience");
                self.windows[window].replica.impatient();
                self.flush(window);
            }
            97 if self.chance(0.5) => self.restart(node).await,
            98..100 => self.nodes[node].compact().await,
            _ => self.flush(window),
        }
    }

    /// Everything under way arrives, in order, until nothing is.
    async fn come_to_rest(&mut self) -> Result<(), String> {
        let wild = self.network == Network::Wild;
        self.network = Network::Orderly;
        for window in 0..self.windows.len() {
            if wild || self.windows[window].connection.is_none() {
                self.connect(window);
            }
        }
        for _ in 0..500 {
            let mut quiet = true;
            for window in 0..self.windows.len() {
                self.flush(window);
            }
            for at in 0..self.connections.len() {
                while !self.connections[at].up.is_empty() {
                    quiet = false;
                    self.arrive_up(at).await;
                }
            }
            for node in 0..self.nodes.len() {
                self.gossip[node].clear();
                // Each node looks into the log now and then.
                self.nodes[node].catch_up().await;
            }
            for window in 0..self.windows.len() {
                let at = self.windows[window].connection.unwrap();
                self.send_new(at).await;
                while !self.connections[at].down.is_empty() {
                    quiet = false;
                    self.arrive_down(at);
                }
            }
            if quiet {
                return Ok(());
            }
        }
        Err("it never comes to rest".into())
    }

    /// All windows are equal to the server, whose log these entries are.
    async fn check(&mut self, first: &str, log: &[Entry]) -> Result<(), String> {
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
        let versions: Vec<_> = log.iter().map(|entry| entry.version).collect();
        let expected: Vec<_> = (1..=log.len() as u64).collect();
        ensure(versions == expected, format!("a gap in {versions:?}"))?;
        // Replayed with `apply` on plain strings: no rope, no canon.
        let mut text = first.to_owned();
        for entry in log {
            text = entry
                .operation
                .apply(&text)
                .map_err(|error| error.to_string())?;
        }
        for node in 0..self.nodes.len() {
            let (version, loaded) = self.nodes[node].load().await;
            let told = format!("node {node} has version {version} '{loaded}', the log '{text}'");
            ensure(version == log.len() as u64 && loaded == text, told)?;
            self.nodes[node].restart();
            let (_, recovered) = self.nodes[node].load().await;
            let told =
                format!("snapshot and operations say '{recovered}', replaying from zero '{text}'");
            ensure(recovered == text, told)?;
        }
        for window in &self.windows {
            let replica = &window.replica;
            let told = format!(
                "{} has version {} '{}', the server {} '{text}'; settled: {}",
                window.name,
                replica.version(),
                replica.text(),
                log.len(),
                replica.is_settled()
            );
            let equal = replica.text() == text && replica.version() == log.len() as u64;
            ensure(equal && replica.is_settled(), told)?;
        }
        let mut seen = HashSet::new();
        for entry in log {
            let identity = (&entry.client_id, entry.sequence);
            ensure(
                seen.insert(identity),
                format!("{identity:?} was applied twice"),
            )?;
        }
        for (client, sequence, version) in &self.acknowledged {
            let kept = log.get(*version as usize - 1);
            let same = kept.is_some_and(|e| e.client_id == *client && e.sequence == *sequence);
            let told = format!(
                "edit {sequence} of {client} was acknowledged as {version}, and there is {kept:?}"
            );
            ensure(same, told)?;
        }
        for (version, times) in &self.applied {
            ensure(
                *times == 1,
                format!("version {version} was made {times} times"),
            )?;
        }
        self.check_letters(&text)
    }

    /// Where nothing is ever deleted, every letter that was typed is there once, those of one word in their order.
    fn check_letters(&self, text: &str) -> Result<(), String> {
        let mut at: HashMap<char, usize> = HashMap::new();
        for (place, letter) in text.chars().enumerate() {
            let before = at.insert(letter, place);
            let own = letter as u32 >= 0x2_0000 && (letter as u32) < self.next_letter;
            if self.only_inserts && own && before.is_some() {
                return Err(format!("'{letter}' is there twice"));
            }
        }
        let discarded = self
            .windows
            .iter()
            .flat_map(|window| window.replica.discarded());
        let discarded: HashSet<char> = discarded
            .flat_map(|operation| operation.runs())
            .filter_map(|run| match run {
                Run::Insert(text) => Some(text.chars()),
                _ => None,
            })
            .flatten()
            .collect();
        for word in &self.typed {
            let places: Vec<_> = word.chars().filter_map(|letter| at.get(&letter)).collect();
            if !places.is_sorted() {
                return Err(format!("'{word}' is there in another order"));
            }
            if let Some(lost) = word
                .chars()
                .find(|c| !at.contains_key(c) && !discarded.contains(c))
            {
                return Err(format!("'{lost}' of '{word}' is lost"));
            }
        }
        Ok(())
    }

    async fn play(&mut self, steps: usize) -> Result<(), String> {
        for window in 0..self.windows.len() {
            self.connect(window);
        }
        for _ in 0..steps {
            self.step().await;
        }
        self.come_to_rest().await
    }
}

/// One schedule on a store that is a vector.
async fn pure_schedule(seed: u64, network: Network, counts: &Counts) -> Result<(), String> {
    let first = "one two".to_owned();
    let store = Rc::new(RefCell::new(Store {
        snapshot: (0, first.clone()),
        first: first.clone(),
        log: Vec::new(),
        edits: HashMap::new(),
        base: 0,
    }));
    let node = || Pure {
        store: Rc::clone(&store),
        canon: None,
        counts: Rc::clone(counts),
    };
    let mut room = Room::new(seed, network, "doc", vec![node(), node()], counts);
    room.play(130).await?;
    let log = store.borrow().log.clone();
    room.check(&first, &log).await
}

/// One schedule on the embedded store, with two nodes of the real service.
async fn real_schedule(seed: u64, network: Network, counts: &Counts) -> Result<(), String> {
    let desk = office::cold_desk().await;
    let node = || Real {
        service: DocumentService::with(desk.east.cloud().clone(), REAL),
        id: desk.id.clone(),
    };
    let recording = desk.east.cloud().tap().record();
    let nodes = vec![node(), node()];
    let mut room = Room::new(seed, network, &desk.id, nodes, counts);
    room.play(200).await?;
    for call in recording.take() {
        match (call.request.operation.as_str(), &call.outcome) {
            ("TransactWriteItems", cloud::tap::Outcome::Cancelled(_)) => {
                count(counts, "transaction refused")
            }
            ("PutObject", _) => count(counts, "object written"),
            ("BatchWriteItem", _) => count(counts, "operations pruned"),
            _ => {}
        }
    }
    drop(recording);
    let entries = desk.invariants().await?;
    room.check(office::TEXT, &entries).await
}

fn happened(counts: &Counts, expected: &[(&str, usize)]) {
    let counts = counts.borrow();
    for (what, least) in expected {
        let times = counts.get(what).copied().unwrap_or(0);
        assert!(
            times >= *least,
            "'{what}' happened {times} times: this proves nothing. {counts:?}"
        );
    }
}

async fn many_schedules(network: Network) -> Counts {
    let counts = Counts::default();
    for seed in 0..1_000 {
        if let Err(why) = pure_schedule(seed, network, &counts).await {
            panic!("seed {seed}: {why}");
        }
    }
    println!("{:#?}", counts.borrow());
    counts
}

#[tokio::test]
async fn where_connections_break_all_replicas_and_the_server_are_equal_when_all_is_quiet() {
    happened(
        &many_schedules(Network::Orderly).await,
        &[
            ("connection broken", 1_000),
            ("resumed", 1_000),
            ("resent and known", 30),
            ("resent edit found by its identity", 5),
            ("message between nodes lost", 500),
            ("gap between nodes", 100),
            ("overtaken by the other node", 1_000),
            ("older operations read", 100),
            ("recovered from the store", 1_000),
            ("node restarted", 500),
            ("told to reload", 50),
            ("undone", 500),
            ("two inserted at one place", 500),
            ("typed while an edit was under way", 1_000),
            ("typed before the text was there", 100),
        ],
    );
}

#[tokio::test]
async fn where_messages_are_lost_doubled_and_overtaken_as_well_they_are_equal_too() {
    happened(
        &many_schedules(Network::Wild).await,
        &[
            ("message lost", 1_000),
            ("message doubled", 1_000),
            ("message overtook another", 1_000),
            ("lost patience", 500),
            ("gap seen by a window", 500),
            ("resent and known", 100),
            ("resent edit found by its identity", 5),
            ("overtaken by the other node", 1_000),
            ("node restarted", 500),
            ("told to reload", 50),
            ("two inserted at one place", 500),
        ],
    );
}

#[tokio::test]
async fn two_nodes_of_the_real_service_agree_while_snapshots_are_made_and_the_log_is_pruned() {
    let counts = Counts::default();
    for seed in 10_000..10_040 {
        let network = match seed % 4 {
            0 | 1 => Network::Orderly,
            _ => Network::Wild,
        };
        if let Err(why) = real_schedule(seed, network, &counts).await {
            panic!("seed {seed}: {why}");
        }
    }
    println!("{:#?}", counts.borrow());
    happened(
        &counts,
        &[
            ("transaction refused", 50),
            ("object written", 50),
            ("operations pruned", 5),
            ("node restarted", 10),
            ("resent and known", 10),
            ("connection broken", 50),
            ("message lost", 20),
            ("message doubled", 20),
            ("undone", 5),
        ],
    );
}
