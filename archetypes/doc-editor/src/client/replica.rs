//! Rebase local pending edits: a replica types ahead, and rewrites what is not acknowledged yet against
//! whatever arrives.

use crate::domain::{self, Entry, MAX_OPERATION_BYTES, Version, encoded_bytes};
use crate::ot::{Operation, OtError, Run, Text};
use crate::presence::Person;
use crate::protocol::{FromClient, FromServer};
use std::collections::{BTreeMap, VecDeque};

/// How many received operations are kept, to move cursors that were sent before them.
const CURSOR_MEMORY: usize = 100;

/// Where the replica stands with its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// There is no connection.
    Down,
    /// The next word is to join.
    Up,
    /// It has been said.
    Joining,
    /// The server has answered.
    Joined,
}

/// An edit that is not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// Its number. It has one as soon as it was sent once, and keeps it.
    pub sequence: Option<u64>,
    /// On the text that the ones before it leave.
    pub operation: Operation,
}

/// One window's copy of the document.
#[derive(Debug, Clone)]
pub struct Replica {
    document: String,
    client: String,
    name: String,
    /// What it has of the one order; nothing before the first welcome.
    version: Option<Version>,
    /// The text as the window shows it: the version, and what is typed since.
    text: Text,
    /// The first is under way, once it has a number; the rest wait, composed where they fit.
    pending: VecDeque<Typed>,
    next_sequence: u64,
    link: Link,
    /// Whether the first pending edit was sent on this connection.
    sent: bool,
    /// Something is missing: `true` when it is asked for.
    gap: Option<bool>,
    /// Own undos that were asked for and not seen yet.
    undos: VecDeque<(u64, bool)>,
    recent: VecDeque<Entry>,
    people: BTreeMap<String, Person>,
    discarded: Vec<Operation>,
}

impl Replica {
    /// A replica that has nothing yet. `client` is new for each window, for ever.
    pub fn new(document: &str, client: &str, name: &str) -> Self {
        Self {
            document: document.to_owned(),
            client: client.to_owned(),
            name: name.to_owned(),
            version: None,
            text: Text::new(),
            pending: VecDeque::new(),
            next_sequence: 1,
            link: Link::Down,
            sent: false,
            gap: None,
            undos: VecDeque::new(),
            recent: VecDeque::new(),
            people: BTreeMap::new(),
            discarded: Vec::new(),
        }
    }

    /// The text as the window shows it.
    pub fn text(&self) -> String {
        self.text.to_string()
    }

    /// How many characters it has.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// How much of the one order it has.
    pub fn version(&self) -> Version {
        self.version.unwrap_or(0)
    }

    /// Whether it has the document, and may be typed into.
    pub fn is_ready(&self) -> bool {
        self.version.is_some()
    }

    /// Whether everything typed is acknowledged.
    pub fn is_settled(&self) -> bool {
        self.is_ready() && self.pending.is_empty() && self.undos.is_empty()
    }

    /// What is not acknowledged.
    pub fn pending(&self) -> impl Iterator<Item = &Typed> {
        self.pending.iter()
    }

    /// Who else is here, where they are in this window's text.
    pub fn people(&self) -> Vec<Person> {
        self.people
            .values()
            .map(|person| self.in_view(person))
            .collect()
    }

    /// What was typed and thrown away, because the server said to load the document again.
    pub fn discarded(&self) -> &[Operation] {
        &self.discarded
    }

    /// Something was typed. What is too long for one operation becomes several.
    pub fn local_edit(&mut self, operation: &Operation) -> Result<(), OtError> {
        self.text.apply(operation)?;
        if operation.is_noop() {
            return Ok(());
        }
        for part in domain::split(operation) {
            let fits = |both: &Operation| encoded_bytes(both) <= MAX_OPERATION_BYTES;
            if let Some(last) = self.pending.back_mut()
                && last.sequence.is_none()
                && let Ok(both) = last.operation.compose(&part)
                && fits(&both)
            {
                last.operation = both;
            } else {
                self.pending.push_back(Typed {
                    sequence: None,
                    operation: part,
                });
            }
        }
        Ok(())
    }

    /// Asks for one's own last edit to be taken back. It comes back as an operation.
    pub fn undo(&mut self) {
        let sequence = self.take_sequence();
        self.undos.push_back((sequence, false));
    }

    /// A connection is there.
    pub fn connected(&mut self) {
        self.link = Link::Up;
        self.sent = false;
        self.gap = None;
        self.undos.iter_mut().for_each(|(_, sent)| *sent = false);
    }

    /// The connection is gone. Typing goes on.
    pub fn disconnected(&mut self) {
        self.connected();
        self.link = Link::Down;
        self.people.clear();
    }

    /// No answer came for too long: what was not answered will be sent again.
    pub fn impatient(&mut self) {
        self.sent = false;
        self.undos.iter_mut().for_each(|(_, sent)| *sent = false);
        self.gap = self.gap.map(|_| false);
        if self.link == Link::Joining {
            self.link = Link::Up;
        }
    }

    /// The next thing to send. Ask until there is nothing.
    pub fn take_outgoing(&mut self) -> Option<FromClient> {
        match self.link {
            Link::Down | Link::Joining => return None,
            Link::Up => {
                self.link = Link::Joining;
                return Some(FromClient::Join {
                    document: self.document.clone(),
                    client: self.client.clone(),
                    name: self.name.clone(),
                    version: self.version,
                });
            }
            Link::Joined => {}
        }
        let version = self.version?;
        if self.gap == Some(false) {
            self.gap = Some(true);
            return Some(FromClient::Since { version });
        }
        // Not while something is missing: it might be this edit itself.
        if self.gap.is_none() && !self.sent && !self.pending.is_empty() {
            self.sent = true;
            let sequence = match self.pending.front().and_then(|first| first.sequence) {
                Some(sequence) => sequence,
                None => self.take_sequence(),
            };
            let first = self.pending.front_mut()?;
            first.sequence = Some(sequence);
            return Some(FromClient::Edit {
                base: version,
                sequence,
                operation: first.operation.clone(),
            });
        }
        // What is typed goes before what is taken back.
        if self.pending.is_empty()
            && let Some((sequence, sent)) = self.undos.front_mut()
            && !*sent
        {
            *sent = true;
            let sequence = *sequence;
            return Some(FromClient::Undo { sequence });
        }
        None
    }

    /// Where the cursor is, as the server is to tell it to the others.
    pub fn cursor(&self, position: usize, anchor: usize) -> Option<FromClient> {
        // In the text of a version: what is typed since is taken off again.
        let back = |position: usize| {
            let typed = self.pending.iter().rev();
            typed.fold(position, |position, typed| {
                before(&typed.operation, position)
            })
        };
        (self.link == Link::Joined).then_some(FromClient::Cursor {
            version: self.version?,
            position: back(position),
            anchor: back(anchor),
        })
    }

    /// Something arrived. Gives what the window has to do to its text, in order.
    pub fn receive(&mut self, message: FromServer) -> Vec<Operation> {
        match message {
            FromServer::Welcome { version, text } => return self.welcome(version, &text),
            FromServer::Resume { operations } => {
                self.gap = None;
                // One that was asked for before a reload is nothing to begin with.
                if self.link == Link::Joining && self.version.is_some() {
                    self.link = Link::Joined;
                }
                return operations
                    .into_iter()
                    .filter_map(|entry| self.entry(entry))
                    .collect();
            }
            FromServer::Operation(entry) => return self.entry(entry).into_iter().collect(),
            FromServer::Ack { sequence, version } => self.ack(sequence, version),
            FromServer::Presence(person) => {
                if person.client != self.client {
                    let person = self.up_to_date(person);
                    self.people.insert(person.client.clone(), person);
                }
            }
            FromServer::Left { client } => {
                self.people.remove(&client);
            }
            FromServer::Reload { .. } => self.reload(),
            // Only an undo is refused and all else goes on.
            FromServer::Refused { .. } => {
                self.undos.pop_front();
            }
        }
        Vec::new()
    }

    /// The whole text, for who asked for it.
    fn welcome(&mut self, version: Version, text: &str) -> Vec<Operation> {
        if let Some(had) = self.version {
            // It was asked for twice. The server now takes all up to here for known.
            if version > had {
                self.gap.get_or_insert(false);
            }
            return Vec::new();
        }
        if self.link != Link::Joining {
            return Vec::new();
        }
        self.link = Link::Joined;
        self.discard();
        self.version = Some(version);
        let before = self.text.len();
        self.text = Text::from(text);
        vec![Operation::new().delete(before).insert(text)]
    }

    /// All that is typed and not acknowledged goes; nothing that is acknowledged does.
    fn reload(&mut self) {
        self.version = None;
        self.sent = false;
        self.gap = None;
        self.recent.clear();
        self.undos.clear();
        self.discard();
        if self.link != Link::Down {
            self.link = Link::Up;
        }
    }

    /// What was typed on a text that is no longer there.
    fn discard(&mut self) {
        let typed = self.pending.drain(..).map(|typed| typed.operation);
        self.discarded.extend(typed);
    }

    /// The next operation, or one that is known, or one too early.
    fn entry(&mut self, entry: Entry) -> Option<Operation> {
        let version = self.version?;
        if entry.version <= version {
            return None;
        }
        if entry.version > version + 1 {
            self.gap.get_or_insert(false);
            return None;
        }
        let first = self.pending.front().and_then(|typed| typed.sequence);
        if entry.client_id == self.client && first == Some(entry.sequence) {
            self.ack(entry.sequence, entry.version);
            return None;
        }
        if entry.client_id == self.client {
            self.undos
                .retain(|(sequence, _)| *sequence != entry.sequence);
        }
        // Ours are rewritten to come after it, it to come after ours.
        let mut theirs = entry.operation.clone();
        let mut rewritten = Vec::with_capacity(self.pending.len());
        for typed in &self.pending {
            let Ok((after, ours)) = theirs.transform(&typed.operation) else {
                self.reload();
                return None;
            };
            theirs = after;
            rewritten.push(ours);
        }
        if self.text.apply(&theirs).is_err() {
            self.reload();
            return None;
        }
        for (typed, ours) in self.pending.iter_mut().zip(rewritten) {
            typed.operation = ours;
        }
        self.version = Some(entry.version);
        self.remember(entry);
        Some(theirs)
    }

    /// Our own edit is the next operation. It is in the text already.
    fn ack(&mut self, sequence: u64, version: Version) {
        let Some(had) = self.version else { return };
        if version <= had {
            return;
        }
        let first = self.pending.front().and_then(|typed| typed.sequence);
        if version > had + 1 || first != Some(sequence) {
            self.gap.get_or_insert(false);
            return;
        }
        self.version = Some(version);
        self.sent = false;
        if let Some(typed) = self.pending.pop_front() {
            self.remember(Entry {
                version,
                operation: typed.operation,
                client_id: self.client.clone(),
                sequence,
                undoes: None,
            });
        }
    }

    fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Moves everybody's cursor along.
    fn remember(&mut self, entry: Entry) {
        for person in self
            .people
            .values_mut()
            .filter(|p| p.version < entry.version)
        {
            moved(person, &entry);
        }
        self.recent.push_back(entry);
        while self.recent.len() > CURSOR_MEMORY {
            self.recent.pop_front();
        }
    }

    /// A cursor that was sent in an older version, in this one.
    fn up_to_date(&self, mut person: Person) -> Person {
        for entry in &self.recent {
            if entry.version == person.version + 1 {
                moved(&mut person, entry);
            }
        }
        person
    }

    /// A cursor in the text that the window shows.
    fn in_view(&self, person: &Person) -> Person {
        let mut person = person.clone();
        for typed in &self.pending {
            person.position = typed.operation.transform_cursor(person.position, false);
            person.anchor = typed.operation.transform_cursor(person.anchor, false);
        }
        person.position = person.position.min(self.text.len());
        person.anchor = person.anchor.min(self.text.len());
        person
    }
}

/// Where a position of the text after an operation was before it.
fn before(operation: &Operation, position: usize) -> usize {
    let (mut old, mut new) = (0, 0);
    for run in operation.runs() {
        match run {
            Run::Retain(n) if position < new + n => return old + (position - new),
            Run::Retain(n) => (old, new) = (old + n, new + n),
            Run::Insert(text) => {
                new += text.chars().count();
                if position < new {
                    return old;
                }
            }
            Run::Delete(n) => old += n,
        }
    }
    old
}

fn moved(person: &mut Person, entry: &Entry) {
    let own = entry.client_id == person.client;
    person.position = entry.operation.transform_cursor(person.position, own);
    person.anchor = entry.operation.transform_cursor(person.anchor, own);
    person.version = entry.version;
}
