//! View bid history: the accepted bids in the order the guard gave them.

use crate::AuctionHouse;
use crate::items::BidState;
use cloud::CloudError;
use cloud::item::{from_item, n, s};

const AFTER: &str = "auction_id = :auction AND bid_sequence > :after";

impl AuctionHouse {
    /// At most so many of the accepted bids after a place in the history, in order. From 0 on: the first.
    ///
    /// A global index is eventually consistent: the latest bids may be missing, and a bid may show before the one
    /// it follows. So the page ends before the first gap. The auction's `bid_sequence` tells whether there are more.
    pub async fn history_page(
        &self,
        auction_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<BidState>, CloudError> {
        let mut items = self
            .dynamodb()
            .query()
            .table_name(self.table("bids"))
            .index_name("by_sequence")
            .key_condition_expression(AFTER)
            .expression_attribute_values(":auction", s(auction_id))
            .expression_attribute_values(":after", n(after))
            .limit(i32::try_from(limit).map_err(CloudError::bug)?)
            .into_paginator()
            .items()
            .send();
        let mut bids: Vec<BidState> = Vec::new();
        while bids.len() < limit
            && let Some(item) = items.next().await
        {
            let bid: BidState = from_item(&item.map_err(CloudError::from)?)?;
            if bid.sequence != Some(after + bids.len() as u64 + 1) {
                break;
            }
            bids.push(bid);
        }
        Ok(bids)
    }
}
