//! The engine of operational transformation: pure functions on values, no I/O.
//!
//! An [`Operation`] walks over a whole text once, from its beginning to its end: it keeps characters,
//! inserts some, deletes some. A character is a Unicode scalar value (a Rust `char`); a browser, which
//! counts UTF-16 units, converts at its edge. [`Text`] is a document that many operations are applied to.
//!
//! Four functions carry everything else:
//!
//! - `compose`: two operations, one after the other, as one.
//! - `transform`: two operations made on the *same* text, each rewritten to be applied after the other.
//!   Both orders end in the same text (this is called TP1); the server's one order for all is what makes TP1
//!   enough.
//! - `invert`: the operation that takes one back.
//! - `transform_cursor`: where a position of the old text is in the new one.
//!
//! Between two kept characters there is at most one insert, and it stands before the delete. So two
//! operations that keep, insert and delete the same things are equal (`==`), and the same bytes on the wire.

mod combine;
mod json;
mod operation;
mod text;

pub use operation::{MAX_LEN, Operation, OtError, Run};
pub use text::Text;
