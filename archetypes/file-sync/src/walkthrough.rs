//! The story: every action of the documents, run for real, with what it costs.

use crate::tables::{BUCKET_RESOURCE, TABLES};
use walkthrough::{Archetype, Workload};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "file-sync",
        title: "File sync: versioned namespace and immutable content",
        question: "How do many devices edit the same files, without losing an edit, and send and keep every byte once?",
        tables: TABLES,
        resources: &[BUCKET_RESOURCE],
        actions: &[],
        machines: &[],
        workload: Workload {
            unit: "edits",
            mix: &[],
            skew: &[],
            kept_days: 365,
        },
        story: |_| Box::pin(async { Ok(()) }),
        commands: &[],
    }
}
