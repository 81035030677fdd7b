//! The client library: a replica of the document that is typed into, and a WebSocket that connects it.
//!
//! [`Replica`] is a pure state machine. It is told what was typed and what was received, and says what is to be
//! sent; so the same one runs over a WebSocket ([`Connection`]), over the simulated network of the tests, and,
//! written again in JavaScript, in the page.

mod connection;
mod replica;

pub use connection::Connection;
pub use replica::{Replica, Typed};
