//! Under construction.
use crate::artifacts::BUCKET_RESOURCE;
use crate::queue::QUEUES;
use crate::tables::{ACTIONS, MACHINES, TABLES};
use walkthrough::{Archetype, Resource, Workload};

const RESOURCES: [Resource; 3] = {
    let [frontier, parse] = QUEUES;
    [frontier, parse, BUCKET_RESOURCE]
};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "crawler",
        title: "Crawler: frontier + claimable run",
        question: "How is no page lost and no host hurried?",
        tables: TABLES,
        resources: &RESOURCES,
        actions: ACTIONS,
        machines: MACHINES,
        workload: Workload { unit: "pages", mix: &[], skew: &[], kept_days: 30 },
        story: |_story| Box::pin(async { Ok(()) }),
        commands: &[],
    }
}
