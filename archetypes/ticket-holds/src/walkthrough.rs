//! The story.
use walkthrough::{Archetype, Workload};

/// stub
pub const fn archetype() -> Archetype {
    Archetype {
        name: "ticket-holds",
        title: "",
        question: "",
        tables: crate::tables::TABLES,
        resources: &[],
        actions: &[],
        machines: &[],
        workload: Workload {
            unit: "holds",
            mix: &[],
            skew: &[],
            kept_days: 1,
        },
        story: |_| Box::pin(async { Ok(()) }),
        commands: &[],
    }
}
