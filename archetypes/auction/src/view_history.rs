//! View bid history: the accepted bids in the order the guard gave them, or every bid for audit.

use crate::AuctionHouse;
use crate::items::BidState;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use cloud::CloudError;
use cloud::item::{all_items, from_item, n, s};

const AFTER: &str = "auction_id = :auction AND bid_sequence > :after";
const ALL: &str = "auction_id = :auction";

impl AuctionHouse {
    /// The accepted bids after a place in the history, in order. From 0 on: all of them.
    pub async fn history_after(
        &self,
        auction_id: &str,
        after: u64,
    ) -> Result<Vec<BidState>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("bids"))
            .index_name("by_sequence")
            .key_condition_expression(AFTER)
            .expression_attribute_values(":auction", s(auction_id))
            .expression_attribute_values(":after", n(after));
        all_pages(query).await
    }

    /// Every bid, rejected ones too, by bid id. For audit.
    pub async fn all_bids(&self, auction_id: &str) -> Result<Vec<BidState>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("bids"))
            .key_condition_expression(ALL)
            .expression_attribute_values(":auction", s(auction_id));
        all_pages(query).await
    }
}

/// A page ends at 1 MB, however many bids there are.
async fn all_pages(query: QueryFluentBuilder) -> Result<Vec<BidState>, CloudError> {
    let items = all_items(query.consistent_read(true)).await?;
    items.iter().map(from_item).collect()
}
