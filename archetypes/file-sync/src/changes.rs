//! Sync: what has changed since a device last looked.
//!
//! The cursor is the number of the last change that the device has applied. It comes with the question,
//! so a device that crashed between reading and applying asks for the same again; and it is kept here, so
//! that the service knows who is behind.

use crate::create_folder::check_actor;
use crate::domain::{Actor, Change, FeedPage, check_id};
use crate::items::namespace_key;
use crate::{FileSync, FileSyncError};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guarded};

/// A page of the feed. A device that was away for long reads several.
const PAGE: i32 = 200;

/// A cursor does not go back: an older question that comes late says nothing new.
const CURSOR_GUARD: &str = "attribute_not_exists(applied) OR applied < :cursor";
const CURSOR_UPDATE: &str = "SET applied = :cursor, seen_at = :now";

impl FileSync {
    /// The changes of this user's namespace after `cursor`; 0 for all.
    pub async fn changes(
        &self,
        actor: &Actor,
        device: &str,
        cursor: u64,
    ) -> Result<FeedPage, FileSyncError> {
        self.changes_page(actor, device, cursor, PAGE).await
    }

    /// The same in pages of another size.
    pub async fn changes_page(
        &self,
        actor: &Actor,
        device: &str,
        cursor: u64,
        page: i32,
    ) -> Result<FeedPage, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        let namespace = namespace_key(&actor.tenant, &actor.user);
        let found = self
            .dynamodb()
            .query()
            .table_name(self.table("changes"))
            .key_condition_expression("#namespace = :namespace AND #sequence > :cursor")
            .expression_attribute_names("#namespace", "namespace")
            .expression_attribute_names("#sequence", "sequence")
            .expression_attribute_values(":namespace", s(&namespace))
            .expression_attribute_values(":cursor", n(cursor))
            .consistent_read(true)
            .limit(page)
            .send()
            .await
            .map_err(CloudError::from)?;
        let changes = found.items().iter().map(from_item);
        let changes = changes.collect::<Result<Vec<Change>, _>>()?;
        if cursor > 0 {
            let kept = self
                .dynamodb()
                .update_item()
                .table_name(self.table("devices"))
                .key("namespace", s(&namespace))
                .key("device", s(device))
                .update_expression(CURSOR_UPDATE)
                .condition_expression(CURSOR_GUARD)
                .expression_attribute_values(":cursor", n(cursor))
                .expression_attribute_values(":now", n(self.now()))
                .send()
                .await;
            // Kept already, or further already: both are fine.
            kept.guarded()?;
        }
        Ok(FeedPage {
            cursor: changes.last().map_or(cursor, |change| change.sequence),
            changes,
            more: found.last_evaluated_key.is_some(),
        })
    }

    /// How far a device has applied the feed, as far as it said.
    pub async fn device_cursor(&self, actor: &Actor, device: &str) -> Result<u64, FileSyncError> {
        check_actor(actor)?;
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("devices"))
            .key("namespace", s(namespace_key(&actor.tenant, &actor.user)))
            .key("device", s(device))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        let applied = found.item.and_then(|mut item| item.remove("applied"));
        let applied = applied.and_then(|value| value.as_n().ok()?.parse().ok());
        Ok(applied.unwrap_or(0))
    }
}
