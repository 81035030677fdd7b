//! Cursors: where a view goes on, given to somebody who may not be trusted with it.
//!
//! A merge of B buckets has a position in each. They need not be written down B times: the merge hands
//! out rows in one total order, so after the last row it gave, *every* bucket stands just behind that
//! row; or at its end. So a cursor is that one row, and which buckets are at their end. It stays as
//! small with 64 buckets as with one, and buckets that are added later have a position in it too.
//!
//! One position for each bucket, on the other hand, would break the order: a row that comes in between
//! its bucket's position and the last row given (by a slow clock) would be given after it.
//!
//! Signed with HMAC-SHA256 together with the tenant and the question: a cursor that was changed, or
//! brought to another tenant, tag or filter, is none.

use crate::Tagging;
use crate::domain::{BadInput, Position, TenantId};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Behind this row, in every bucket …
    #[serde(flatten)]
    pub after: Position,
    /// … but for those that have nothing behind it.
    pub ended: Vec<u32>,
}

impl Tagging {
    /// The cursor as text. `question` is what it may be used for: the tag, the filter.
    pub(crate) fn seal(
        &self,
        tenant: &TenantId,
        question: &str,
        cursor: &impl Serialize,
    ) -> String {
        let plain = serde_json::to_vec(cursor).unwrap_or_default();
        let body = URL_SAFE_NO_PAD.encode(plain);
        let tag = self.mac(tenant, question, &body).finalize().into_bytes();
        format!("{body}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// The cursor that this text is, if we made it for this tenant and this question.
    pub(crate) fn unseal<T: DeserializeOwned>(
        &self,
        tenant: &TenantId,
        question: &str,
        text: &str,
    ) -> Result<T, BadInput> {
        let (body, tag) = text.split_once('.').ok_or(BadInput::Cursor)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| BadInput::Cursor)?;
        // In constant time, and before anything of it is read.
        self.mac(tenant, question, body)
            .verify_slice(&tag)
            .map_err(|_| BadInput::Cursor)?;
        let plain = URL_SAFE_NO_PAD.decode(body);
        let plain = plain.map_err(|_| BadInput::Cursor)?;
        serde_json::from_slice(&plain).map_err(|_| BadInput::Cursor)
    }

    /// Neither a tenant's id nor the body has a line break, so no two triples are one text.
    fn mac(&self, tenant: &TenantId, question: &str, body: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.cursor_key)
            .expect("HMAC takes keys of any length");
        mac.update(format!("{}\n{body}\n{question}", tenant.as_str()).as_bytes());
        mac
    }
}
