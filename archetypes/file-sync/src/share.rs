//! Share an entry, take it back, view what is shared.
//!
//! A share is one item, looked at by every read of a guest and checked in the transaction of every
//! write of a guest. So taking it back is one delete, and ends access with it: also for an upload that
//! was begun before. An address that was handed out lives out its minutes; S3 knows no shares.

use crate::access::share_key;
use crate::create_folder::check_actor;
use crate::domain::{Actor, BadInput, Entry, EntryId, EntryStatus, Permission, Share, check_id};
use crate::items::item_with;
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::ReturnValue;
use cloud::CloudError;
use cloud::item::{all_items, from_item, s};
use std::collections::HashMap;

impl FileSync {
    /// Shares an entry, and for a folder all that is in it. Shared again, the permission is the new one.
    pub async fn share(
        &self,
        actor: &Actor,
        entry: &EntryId,
        with: &str,
        permission: Permission,
    ) -> Result<Share, FileSyncError> {
        self.own_entry(actor, entry, with).await?;
        let share = Share {
            entry_id: entry.clone(),
            user: with.to_owned(),
            permission,
            granted_by: actor.user.clone(),
            granted_at: self.now(),
        };
        let keys = [
            ("shared", format!("{}#{entry}", actor.tenant)),
            ("user_key", format!("{}#{with}", actor.tenant)),
        ];
        // No guard: the owner's last word holds.
        self.dynamodb()
            .put_item()
            .table_name(self.table("shares"))
            .set_item(Some(item_with(&share, &keys)?))
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(share)
    }

    /// Takes a share back. Gives whether there was one.
    pub async fn unshare(
        &self,
        actor: &Actor,
        entry: &EntryId,
        with: &str,
    ) -> Result<bool, FileSyncError> {
        self.own_entry(actor, entry, with).await?;
        let deleted = self
            .dynamodb()
            .delete_item()
            .table_name(self.table("shares"))
            .set_key(Some(share_key(&actor.tenant, entry, with)))
            .return_values(ReturnValue::AllOld)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(deleted.attributes.is_some())
    }

    /// What others share with this user. The index is a hint: shares and entries are read.
    pub async fn shared_with_me(
        &self,
        actor: &Actor,
    ) -> Result<Vec<(Share, Entry)>, FileSyncError> {
        check_actor(actor)?;
        let Actor { tenant, user } = actor;
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("shares"))
            .index_name("by_user")
            .key_condition_expression("user_key = :user")
            .expression_attribute_values(":user", s(format!("{tenant}#{user}")));
        let mut shares: Vec<Share> = Vec::new();
        let hinted = all_items(query).await?;
        for hinted in hinted.chunks(100) {
            let keys = hinted.iter().map(|item| {
                let part = |name: &str| (name.to_owned(), item.get(name).cloned());
                let parts = [part("shared"), part("user")];
                let keys = parts
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, value?)));
                keys.collect()
            });
            let read = self
                .cloud
                .read_batch(vec![("shares", keys.collect())], true);
            for item in read.await?.remove("shares").unwrap_or_default() {
                shares.push(from_item(&item)?);
            }
        }
        let ids: Vec<_> = shares.iter().map(|share| share.entry_id.clone()).collect();
        let entries = self.read_entries(tenant, &ids).await?;
        let entries: HashMap<_, _> = entries
            .into_iter()
            .map(|entry| (entry.entry_id.clone(), entry))
            .collect();
        let mut found: Vec<_> = shares
            .into_iter()
            .filter_map(|share| {
                let entry = entries.get(&share.entry_id)?.clone();
                (entry.status == EntryStatus::Live).then_some((share, entry))
            })
            .collect();
        found.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Only the owner shares.
    async fn own_entry(
        &self,
        actor: &Actor,
        entry: &EntryId,
        with: &str,
    ) -> Result<(), FileSyncError> {
        check_actor(actor)?;
        check_id("the user", with)?;
        if entry.is_root() {
            return Err(BadInput::Root("shared").into());
        }
        if with == actor.user {
            return Err(BadInput::OwnEntry(with.to_owned()).into());
        }
        let reached = self.reach(actor, entry).await?;
        match reached.grant {
            Some(_) => Err(FileSyncError::NotOwner),
            None => Ok(()),
        }
    }
}
