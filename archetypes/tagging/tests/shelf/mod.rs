//! A shelf of tagged contents to try things on, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use chaos::World;
use cloud::Cloud;
use tagging::{ContentId, TagName, Tagging, TenantId, tables};

/// What cursors are signed with here.
pub const CURSOR_KEY: &[u8] = b"a key for tests";

/// A service with one tag, "rust", and nothing tagged.
pub struct Shelf {
    pub tagging: Tagging,
    pub tenant: TenantId,
    pub rust: TagName,
}

impl World for Shelf {
    fn cloud(&self) -> &Cloud {
        self.tagging.cloud()
    }
}

pub fn name(text: &str) -> TagName {
    TagName::new(text).unwrap()
}

pub fn content(id: &str) -> ContentId {
    ContentId::new(id).unwrap()
}

/// A service without any tag, for a tenant of its own.
pub async fn empty() -> Shelf {
    let cloud = cloud::connect_for_tests().await.unwrap();
    on(cloud).await
}

/// The same on tables that no other test uses, on any backend: for whoever follows the stream.
pub async fn empty_alone() -> Shelf {
    on(cloud::connect_alone_for_tests().await.unwrap()).await
}

async fn on(cloud: Cloud) -> Shelf {
    cloud.create_tables(tables::TABLES).await.unwrap();
    let tenant = TenantId::new(&cloud.ids().next("tenant")).unwrap();
    Shelf {
        tagging: Tagging::new(cloud, CURSOR_KEY),
        tenant,
        rust: name("rust"),
    }
}
