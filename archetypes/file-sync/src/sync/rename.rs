//! A file that has another name here gets it in the store as well, and keeps its history and its shares.
//!
//! A directory does not tell of renames: it has a name less and a name more. If the same file is behind both
//! (its inode says so), with the content that was agreed on, it was renamed or moved. What was edited on the
//! way is published as new; that costs its history, never its content.

use super::plan::Step;
use super::tree::Tree;
use super::{Device, SyncError};
use crate::Moved;
use crate::local::scan::Scan;
use crate::local::state::KnownFile;
use crate::local::{Found, Known, RelPath};
use std::collections::{HashMap, HashSet};

impl Device {
    /// Makes one step of the two that a renamed file has: one for the name it had, one for the name it has.
    pub(super) fn with_renames(
        &self,
        mut steps: Vec<(Step, RelPath)>,
        scan: &Scan,
        tree: &Tree,
    ) -> Vec<(Step, RelPath)> {
        let mut gone = HashMap::new();
        for (step, path) in &steps {
            let known = self.state.agreed.get(path).and_then(Known::file);
            let there = tree.by_path.get(path);
            // Fetch: it was edited there meanwhile. The next round fetches that to where it is now.
            if matches!(step, Step::DeleteThere | Step::Fetch)
                && !scan.found.contains_key(path)
                && let Some(known) = known.filter(|known| there == Some(&known.entry))
            {
                gone.insert((known.stamp.inode, known.fingerprint), path.clone());
            }
        }
        let mut left = HashSet::new();
        for (step, path) in &mut steps {
            if *step == Step::PublishNew
                && let Some(Found::Changed { content, stamp, .. }) = scan.found.get(path)
                && let Some(from) = gone.remove(&(stamp.inode, content.fingerprint))
            {
                left.insert(from.clone());
                *step = Step::MoveThere(from);
            }
        }
        steps.retain(|(_, path)| !left.contains(path));
        steps
    }

    /// Renames or moves the file in the store.
    pub(super) async fn move_there(
        &mut self,
        from: &RelPath,
        to: &RelPath,
        scan: &Scan,
    ) -> Result<(), SyncError> {
        let (Some(known), Some(Found::Changed { stamp, seen, .. })) =
            (self.known_file(from), scan.found.get(to))
        else {
            return Ok(());
        };
        let parent = self.parent_there(to).await?;
        let device = self.state.device.clone();
        let moved = self
            .retry(|| {
                self.store
                    .rename_or_move(&self.actor, &device, &known.entry, &parent, to.name())
            })
            .await?;
        match moved {
            Moved::Moved(entry) => {
                self.state.entry_is(&entry);
                self.state.agreed.remove(from);
                let known = KnownFile {
                    stamp: *stamp,
                    seen: *seen,
                    ..known
                };
                self.state.agreed.insert(to.clone(), Known::File(known));
                self.report.moved.push((from.to_string(), to.to_string()));
                Ok(())
            }
            Moved::NameTaken(taken) => Err(SyncError::taken(taken, to)),
            Moved::IntoItself | Moved::OtherOwner => Err(SyncError::OtherKind),
        }
    }
}
