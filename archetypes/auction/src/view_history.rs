//! View bid history: the accepted bids in the order the guard gave them, or every bid for audit.

use crate::items::{BidState, from_item, n, s};
use crate::{AuctionHouse, Fault};
use cloud::CloudError;

const AFTER: &str = "auction_id = :auction AND bid_sequence > :after";
const ALL: &str = "auction_id = :auction";

impl AuctionHouse {
    /// The accepted bids after a place in the history, in order. From 0 on: all of them.
    pub async fn history_after(
        &self,
        auction_id: &str,
        after: u64,
    ) -> Result<Vec<BidState>, Fault> {
        let mut pages = self
            .dynamodb()
            .query()
            .table_name(self.table("bids"))
            .index_name("by_sequence")
            .consistent_read(true)
            .key_condition_expression(AFTER)
            .expression_attribute_values(":auction", s(auction_id))
            .expression_attribute_values(":after", n(after))
            .into_paginator()
            .items()
            .send();
        let mut bids = Vec::new();
        while let Some(item) = pages.next().await {
            bids.push(from_item(&item.map_err(CloudError::from)?)?);
        }
        Ok(bids)
    }

    /// Every bid, rejected ones too, by bid id. For audit.
    pub async fn all_bids(&self, auction_id: &str) -> Result<Vec<BidState>, Fault> {
        let mut pages = self
            .dynamodb()
            .query()
            .table_name(self.table("bids"))
            .consistent_read(true)
            .key_condition_expression(ALL)
            .expression_attribute_values(":auction", s(auction_id))
            .into_paginator()
            .items()
            .send();
        let mut bids = Vec::new();
        while let Some(item) = pages.next().await {
            bids.push(from_item(&item.map_err(CloudError::from)?)?);
        }
        Ok(bids)
    }
}
