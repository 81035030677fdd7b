//! Who may. An entry is its owner's; a share gives it, and for a folder all that is in it, to one user
//! more. To everybody else it is not there: "not shared" and "no such thing" are one answer.

use crate::domain::{Actor, Entry, EntryId, EntryStatus, Kind, Permission, Share};
use crate::namespace::Namespace;
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem};
use cloud::item::{from_item, s};
use cloud::{CloudError, Item};
use std::collections::HashMap;

/// An entry that somebody may see, and why.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    /// The entry.
    pub entry: Entry,
    /// The share that shows it; none for the owner's own.
    pub grant: Option<Share>,
    /// The namespace as it was when the way up to the share was walked; none if there was none to walk.
    pub seen: Option<Namespace>,
}

/// A folder that something is to be put into.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The folder.
    pub folder: EntryId,
    /// Whose namespace it is in.
    pub owner: String,
    /// The share that allows it; none for the owner.
    pub grant: Option<Share>,
    /// As in [`Reached`].
    pub seen: Option<Namespace>,
}

impl From<Reached> for Place {
    fn from(reached: Reached) -> Self {
        Self {
            folder: reached.entry.entry_id,
            owner: reached.entry.owner,
            grant: reached.grant,
            seen: reached.seen,
        }
    }
}

/// The share that a guest's write rests on is still there when it is written: revocation ends access at
/// once, also for what has been decided and not yet written.
const STILL_SHARED_GUARD: &str = "#permission = :write";

/// How often the way up is walked again when something moved meanwhile.
const WALKS: u32 = 20;

/// How many folders deep a way may be before it is taken for a circle.
const DEEPEST: usize = 1_000;

impl FileSync {
    /// The entry, if this user may see it. Tombstones are seen; what is purged is not.
    pub(crate) async fn reach(
        &self,
        actor: &Actor,
        entry: &EntryId,
    ) -> Result<Reached, FileSyncError> {
        let nothing = || FileSyncError::NotFound("file or folder");
        let found = self.read_entry(&actor.tenant, entry).await?;
        let found = found.filter(|entry| entry.status != EntryStatus::Purged);
        let found = found.ok_or_else(nothing)?;
        if found.owner == actor.user {
            return Ok(Reached {
                entry: found,
                grant: None,
                seen: None,
            });
        }
        // The way up is read in several calls. It was the way at one moment if nothing went to another
        // folder while it was read.
        let mut seen = self.read_namespace(&actor.tenant, &found.owner).await?;
        for _ in 0..WALKS {
            let way = self.way_up(&actor.tenant, entry).await?;
            let grant = self.grant_on(actor, &way).await?;
            let after = self.read_namespace(&actor.tenant, &found.owner).await?;
            if after.moves != seen.moves {
                seen = after;
                continue;
            }
            let entry = way.into_iter().next().ok_or_else(nothing)?;
            let grant = grant.ok_or_else(nothing)?;
            return Ok(Reached {
                entry,
                grant: Some(grant),
                seen: Some(seen),
            });
        }
        Err(FileSyncError::Contended)
    }

    /// The same, for somebody who wants to change it.
    pub(crate) async fn reach_to_write(
        &self,
        actor: &Actor,
        entry: &EntryId,
    ) -> Result<Reached, FileSyncError> {
        let reached = self.reach(actor, entry).await?;
        match &reached.grant {
            Some(share) if share.permission != Permission::Write => Err(FileSyncError::ReadOnly),
            _ => Ok(reached),
        }
    }

    /// A live folder to put something into.
    pub(crate) async fn reach_place(
        &self,
        actor: &Actor,
        folder: &EntryId,
    ) -> Result<Place, FileSyncError> {
        if folder.is_root() {
            return Ok(Place {
                folder: folder.clone(),
                owner: actor.user.clone(),
                grant: None,
                seen: None,
            });
        }
        let reached = match self.reach_to_write(actor, folder).await {
            Err(FileSyncError::NotFound(_)) => Err(FileSyncError::NotFound("folder")),
            other => other,
        }?;
        if reached.entry.kind != Kind::Folder || reached.entry.status != EntryStatus::Live {
            return Err(FileSyncError::NotFound("folder"));
        }
        Ok(reached.into())
    }

    /// The namespace that a decision is made on: as it was when the way up was walked, or as it is.
    pub(crate) async fn seen_or_read(
        &self,
        actor: &Actor,
        owner: &str,
        seen: Option<Namespace>,
    ) -> Result<Namespace, CloudError> {
        match seen {
            Some(seen) => Ok(seen),
            None => self.read_namespace(&actor.tenant, owner).await,
        }
    }

    /// The entry and the folders it is in, up to the top.
    pub(crate) async fn way_up(
        &self,
        tenant: &str,
        entry: &EntryId,
    ) -> Result<Vec<Entry>, CloudError> {
        let mut way: Vec<Entry> = Vec::new();
        let mut next = entry.clone();
        while !next.is_root() {
            let Some(found) = self.read_entry(tenant, &next).await? else {
                break;
            };
            next = found.parent.clone();
            way.push(found);
            if way.len() > DEEPEST {
                return Err(CloudError::Corrupt(format!("{entry} is in a circle")));
            }
        }
        Ok(way)
    }

    /// The best share on any of these.
    async fn grant_on(&self, actor: &Actor, way: &[Entry]) -> Result<Option<Share>, CloudError> {
        let mut best: Option<Share> = None;
        for part in way.chunks(100) {
            let keys = part
                .iter()
                .map(|entry| share_key(&actor.tenant, &entry.entry_id, &actor.user));
            let read = self
                .cloud
                .read_batch(vec![("shares", keys.collect())], true);
            for item in read.await?.remove("shares").unwrap_or_default() {
                let share: Share = from_item(&item)?;
                if best
                    .as_ref()
                    .is_none_or(|best| share.permission > best.permission)
                {
                    best = Some(share);
                }
            }
        }
        Ok(best)
    }

    /// The part of a guest's transaction that says the share is still there: `share` in a refusal.
    pub(crate) fn still_shared(
        &self,
        tenant: &str,
        grant: &Option<Share>,
    ) -> Result<Option<TransactWriteItem>, CloudError> {
        let Some(share) = grant else {
            return Ok(None);
        };
        let check = ConditionCheck::builder()
            .table_name(self.table("shares"))
            .set_key(Some(share_key(tenant, &share.entry_id, &share.user)))
            .condition_expression(STILL_SHARED_GUARD)
            .expression_attribute_names("#permission", "permission")
            .expression_attribute_values(":write", s("WRITE"))
            .build()
            .map_err(CloudError::bug)?;
        Ok(Some(
            TransactWriteItem::builder().condition_check(check).build(),
        ))
    }
}

/// The key of a share.
pub(crate) fn share_key(
    tenant: &str,
    entry: &EntryId,
    user: &str,
) -> HashMap<String, aws_sdk_dynamodb::types::AttributeValue> {
    Item::from([
        ("shared".into(), s(format!("{tenant}#{entry}"))),
        ("user".into(), s(user)),
    ])
}
