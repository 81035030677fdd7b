//! Schema first: the tables with one sample item each, and the actions as data.

use cloud::tables::Table;

/// All tables.
pub const TABLES: &[Table] = &[];
