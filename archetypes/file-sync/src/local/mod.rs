//! The device's side of a file: names that stay inside the directory, a scan that finds what changed,
//! replacing that never overwrites what was not seen, and what the device remembers.
//!
//! In reading order: [`path`], [`folder`], [`state`], [`scan`].

pub mod folder;
pub mod path;
pub mod scan;
pub mod state;

pub use folder::{Folder, Kind, LocalError, Put, Stamp};
pub use path::{BadPath, RelPath};
pub use scan::{Found, Scan};
pub use state::{DeviceState, Known};
