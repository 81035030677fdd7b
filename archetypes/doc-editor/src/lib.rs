//! A document that several people edit at once.

pub mod ot;
