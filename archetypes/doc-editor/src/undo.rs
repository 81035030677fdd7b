//! Undo of one's own edits: the inverse of the last one, rewritten over everything after it.
//!
//! It is an edit like any other, made on the version right after the one it takes back. So it needs no rule of
//! its own: the order, the fence and the retries are those of [`crate::submit_edit`].

use crate::domain::{Edit, Entry, MAX_BEHIND, Refusal};
use crate::{DocumentError, DocumentService, EditOutcome};

impl DocumentService {
    /// Takes back this client's last edit that is not taken back yet, of those within reach. `sequence` is the
    /// identity of the undoing; sent again, it takes back nothing more.
    pub async fn undo(
        &self,
        document_id: &str,
        client_id: &str,
        sequence: u64,
    ) -> Result<EditOutcome, DocumentError> {
        let mut edit = Edit {
            document_id: document_id.to_owned(),
            client_id: client_id.to_owned(),
            sequence,
            base: 0,
            operation: crate::ot::Operation::new(),
            undoes: None,
        };
        edit.validate()?;
        // First: the second of two same requests would find the edit before the one it is about.
        if let Some(version) = self.version_of(&edit).await? {
            return Ok(EditOutcome::Before(version));
        }
        let document = self.known_document(document_id).await?;
        let reach = document.version.saturating_sub(MAX_BEHIND);
        let from = reach.max(document.base_version);
        let log = self.read_log(document_id, from, None).await?;
        let Some(last) = last_own(&log, client_id) else {
            return Ok(EditOutcome::Refused(Refusal::NothingToUndo));
        };
        let before = self.text_at(document_id, last.version - 1).await?;
        let inverse = last.operation.invert(&before);
        edit.operation = inverse.map_err(cloud::CloudError::corrupt)?;
        edit.base = last.version;
        edit.undoes = Some(last.version);
        self.submit_edit(&edit).await
    }
}

/// The last edit of a client that neither takes back nor is taken back.
fn last_own<'a>(log: &'a [Entry], client_id: &str) -> Option<&'a Entry> {
    let undone: Vec<_> = log.iter().filter_map(|entry| entry.undoes).collect();
    log.iter().rev().find(|entry| {
        entry.client_id == client_id && entry.undoes.is_none() && !undone.contains(&entry.version)
    })
}
