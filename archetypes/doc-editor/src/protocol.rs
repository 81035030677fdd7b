//! What client and server say to each other over the WebSocket, as JSON.

use crate::domain::{Entry, Version};
use crate::ot::Operation;
use crate::presence::Person;
use serde::{Deserialize, Serialize};

/// From a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromClient {
    /// The first word on a connection.
    Join {
        /// Which document.
        document: String,
        /// Which window: made once for each, kept over reconnects.
        client: String,
        /// Who, for the others.
        name: String,
        /// What it has; nothing to get the whole text.
        version: Option<Version>,
    },
    /// What was typed. One at a time is under way.
    Edit {
        /// The version it was made on.
        base: Version,
        /// The client's number of it: the same when it is sent again.
        sequence: u64,
        /// The operation.
        operation: Operation,
    },
    /// Takes back one's own last edit.
    Undo {
        /// A number of its own.
        sequence: u64,
    },
    /// Where the cursor is.
    Cursor {
        /// The version it is in.
        version: Version,
        /// In characters.
        position: usize,
        /// Where the selection began.
        anchor: usize,
    },
    /// Something is missing after this version.
    Since {
        /// What it has.
        version: Version,
    },
}

/// From the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromServer {
    /// The whole document.
    Welcome {
        /// At this version.
        version: Version,
        /// Its text.
        text: String,
    },
    /// What came after the version a client has; perhaps nothing.
    Resume {
        /// In order.
        operations: Vec<Entry>,
    },
    /// The next operation.
    Operation(Entry),
    /// The client's own edit is the next operation.
    Ack {
        /// Which edit.
        sequence: u64,
        /// As which version.
        version: Version,
    },
    /// Somebody is here, or has moved.
    Presence(Person),
    /// Somebody has left.
    Left {
        /// Which window.
        client: String,
    },
    /// Too far behind, or an edit that cannot be: join again without a version.
    Reload {
        /// Why.
        why: String,
    },
    /// Something that was asked for is not done; all else goes on.
    Refused {
        /// Why.
        why: String,
    },
}
