//! Seat-map changes: what a browser that has the map asks for every few seconds.
//!
//! An answer brings the seats that changed, as they are now, not what happened to them. So it
//! does no harm to get one twice, and the latest answer is always right. Clocks of writers differ,
//! so each question reaches a few seconds further back than the last answer. A write that takes
//! longer than that is missed: so the map itself is read anew now and then. That a hold ends is no
//! write and no change: `held_until` tells the browser when to look at the seat as free.

use crate::domain::{TicketState, block_id};
use crate::view_seats::{SeatMap, SeatView};
use crate::{BoxOffice, OfficeError};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Millis};

/// How far clocks may be apart, and how long a write may take.
pub const SKEW_MS: Millis = 5_000;

const CHANGED: &str = "block_id = :block AND changed_at > :since";

impl BoxOffice {
    /// The seats of a section that changed since an earlier answer.
    pub async fn seat_changes(
        &self,
        event_id: &str,
        section: &str,
        since: Millis,
    ) -> Result<SeatMap, OfficeError> {
        self.seated(event_id, section).await?;
        let as_of = self.now();
        let mut items = self
            .dynamodb()
            .query()
            .table_name(self.table("tickets"))
            .index_name("by_change")
            .key_condition_expression(CHANGED)
            .expression_attribute_values(":block", s(block_id(event_id, section)))
            .expression_attribute_values(":since", n(since.saturating_sub(SKEW_MS)))
            .consistent_read(true)
            .into_paginator()
            .items()
            .send();
        let mut seats = Vec::new();
        while let Some(item) = items.next().await {
            let ticket: TicketState = from_item(&item.map_err(CloudError::from)?)?;
            seats.push(SeatView::at(&ticket, as_of));
        }
        Ok(SeatMap { as_of, seats })
    }
}
