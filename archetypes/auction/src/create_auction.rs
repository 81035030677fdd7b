//! Create auction: open a competitive window.

use crate::domain::{Amount, AuctionState, BadInput, BestBidState, Status};
use crate::tables::DUE_SHARDS;
use crate::{AuctionError, AuctionHouse, Layout};
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use cloud::item::{from_item, pause, s, shard_of, to_item};
use cloud::{CloudError, Guard, Guarded, Millis, Transaction};

/// What a seller says.
#[derive(Debug, Clone)]
pub struct NewAuction {
    /// Made by the seller's client, so that a retry creates nothing twice.
    pub auction_id: String,
    /// What is sold.
    pub item_id: String,
    /// Who sells.
    pub seller_id: String,
    /// What people read.
    pub title: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The lowest first bid.
    pub starting_price: Amount,
    /// Below it nobody wins.
    pub reserve_price: Option<Amount>,
    /// The fixed price, while there is no bid.
    pub buy_now_price: Option<Amount>,
    /// A bid this close to the end moves the end; 0 for a hard end.
    pub soft_close_ms: Millis,
    /// When it ends.
    pub ends: Ends,
}

/// When an auction ends, as its seller said it: a request that is sent again is compared with this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// At this time.
    At(Millis),
    /// This long after it was created.
    After(Millis),
}

/// One auction for one id, for ever: never reopen, never overwrite.
const GUARD: &str = "attribute_not_exists(auction_id)";

/// How often a create that was in a conflict is sent again.
const ATTEMPTS: u32 = 100;

impl AuctionHouse {
    /// Opens an auction. The same call again is answered as the first was.
    pub async fn create_auction(&self, new: NewAuction) -> Result<AuctionState, AuctionError> {
        let now = self.now();
        let (end_time, lasts_ms) = match new.ends {
            Ends::At(end_time) => (end_time, None),
            Ends::After(lasts) => (now.saturating_add(lasts), Some(lasts)),
        };
        let auction = AuctionState {
            auction_id: new.auction_id,
            item_id: new.item_id,
            seller_id: new.seller_id,
            title: new.title,
            currency: new.currency,
            starting_price: new.starting_price,
            reserve_price: new.reserve_price,
            buy_now_price: new.buy_now_price,
            soft_close_ms: new.soft_close_ms,
            status: Status::Open,
            end_time,
            first_end_time: end_time,
            lasts_ms,
            created_at: now,
            closed_at: None,
            final_sequence: None,
        };
        match auction.validate(now) {
            // Created in time, and asked again after its end: the first answer holds.
            Err(BadInput::EndInThePast { end_time, now }) => {
                let first = self.read_window(&auction.auction_id).await?;
                let first = first.ok_or(BadInput::EndInThePast { end_time, now })?;
                return already_there(auction, first.auction);
            }
            checked => checked?,
        }
        for attempt in 0..ATTEMPTS {
            match self.write_new(&auction).await {
                Ok(None) => return Ok(auction),
                Ok(Some(there)) => return already_there(auction, there),
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(AuctionError::Contended)
    }

    /// Writes the auction; gives what stands in its place, if anything.
    async fn write_new(&self, auction: &AuctionState) -> Result<Option<AuctionState>, CloudError> {
        let mut item = to_item(auction)?;
        item.insert("due_shard".into(), due_shard(&auction.auction_id));
        let mut best = to_item(&BestBidState::default())?;
        let there = match self.layout {
            Layout::OneItem => {
                item.extend(best);
                let written = self
                    .dynamodb()
                    .put_item()
                    .table_name(self.table("auctions"))
                    .set_item(Some(item))
                    .condition_expression(GUARD)
                    .return_values_on_condition_check_failure(
                        ReturnValuesOnConditionCheckFailure::AllOld,
                    )
                    .send()
                    .await
                    .guarded()?;
                match written {
                    Guard::Passed(_) => return Ok(None),
                    Guard::Failed(old) => old,
                }
            }
            Layout::SeparateBest => {
                best.insert("auction_id".into(), s(&auction.auction_id));
                let put = |table, item| {
                    let put = Put::builder()
                        .table_name(self.table(table))
                        .set_item(Some(item))
                        .condition_expression(GUARD)
                        .return_values_on_condition_check_failure(
                            ReturnValuesOnConditionCheckFailure::AllOld,
                        );
                    let put = put.build().map_err(CloudError::bug)?;
                    Ok::<_, CloudError>(TransactWriteItem::builder().put(put).build())
                };
                let items = vec![put("auctions", item)?, put("best_bids", best)?];
                match self.cloud.transact(&["auction", "best"], items).await? {
                    Transaction::Committed(_) => return Ok(None),
                    Transaction::Cancelled(cancelled) if cancelled.is_whole() => {
                        cancelled.failed("auction").flatten().cloned()
                    }
                    // The auction itself may not have come back.
                    Transaction::Cancelled(_) => {
                        return Err(CloudError::Conflict("a part of the auction".into()));
                    }
                }
            }
        };
        from_item(&there.unwrap_or_default()).map(Some)
    }
}

/// The id is taken. If what stands there is what we wrote, an answer was lost and this is our own
/// success; if it is another auction, the id was used twice.
fn already_there(wanted: AuctionState, there: AuctionState) -> Result<AuctionState, AuctionError> {
    let same_end = match (wanted.lasts_ms, there.lasts_ms) {
        // A retry comes later, and so would its end.
        (Some(wanted), Some(lasts)) => wanted == lasts,
        (None, None) => wanted.first_end_time == there.first_end_time,
        _ => false,
    };
    let as_created = AuctionState {
        // What may have changed since.
        status: Status::Open,
        closed_at: None,
        final_sequence: None,
        // What another attempt says differently.
        created_at: wanted.created_at,
        end_time: wanted.end_time,
        first_end_time: wanted.first_end_time,
        lasts_ms: wanted.lasts_ms,
        ..there.clone()
    };
    if same_end && as_created == wanted {
        Ok(there)
    } else {
        Err(AuctionError::IdTaken(wanted.auction_id))
    }
}

/// Which key of the due index an auction is under.
fn due_shard(auction_id: &str) -> AttributeValue {
    s(format!("due-{}", shard_of(auction_id, DUE_SHARDS)))
}
