//! States as items and items as states, and the one read that every decision begins with.

use crate::domain::{Accepted, Amount, BestBidState, MAX_TITLE, NewBid, Offer, Rejection, Window};
use crate::{AuctionError, AuctionHouse, Layout};
use aws_sdk_dynamodb::types::{AttributeValue, Get, TransactGetItem};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Item, Millis};
use serde::{Deserialize, Serialize};

/// How often a read that conflicts with a transaction is made again.
const READ_ATTEMPTS: u32 = 10;

/// What a bid was, as its row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BidKind {
    /// A plain bid.
    Exactly,
    /// A proxy bid.
    UpTo,
    /// A purchase at the fixed price.
    BuyNow,
}

/// What became of a bid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum BidStatus {
    /// It counted.
    Accepted,
    /// It did not; see the reason.
    Rejected,
}

/// A bid as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidState {
    /// On which auction.
    pub auction_id: String,
    /// Identity.
    pub bid_id: String,
    /// Who.
    pub bidder_id: String,
    /// Plain, proxy or purchase.
    pub kind: BidKind,
    /// What was offered; a proxy's maximum.
    pub amount: Amount,
    /// Accepted or rejected.
    pub status: BidStatus,
    /// Why rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What would have been enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Amount>,
    /// Its place among the accepted bids.
    #[serde(
        rename = "bid_sequence",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub sequence: Option<u64>,
    /// Whether it led when it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leading: Option<bool>,
    /// The price it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_after: Option<Amount>,
    /// Who led after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_after: Option<String>,
    /// The end it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_after: Option<Millis>,
    /// When the house decided. It orders nothing: clocks differ.
    pub created_at: Millis,
}

impl BidState {
    /// The row of a bid that counted.
    pub(crate) fn accepted(bid: &NewBid, accepted: &Accepted, now: Millis) -> Self {
        Self {
            status: BidStatus::Accepted,
            sequence: Some(accepted.best.sequence),
            leading: Some(accepted.leading),
            price_after: accepted.best.amount,
            leader_after: accepted.best.bidder_id.clone(),
            end_after: Some(accepted.end_time),
            ..Self::new(bid, now)
        }
    }

    /// The row of a bid that did not count, kept for audit.
    pub(crate) fn rejected(bid: &NewBid, why: Rejection, now: Millis) -> Self {
        let (reason, minimum) = match why {
            Rejection::TooLow { minimum } => ("TOO_LOW", Some(minimum)),
            Rejection::NotAboveOwn => ("NOT_ABOVE_OWN", None),
            Rejection::Over => ("OVER", None),
            Rejection::OwnItem => ("OWN_ITEM", None),
            Rejection::NotForBuyNow => ("NOT_FOR_BUY_NOW", None),
        };
        Self {
            status: BidStatus::Rejected,
            reason: Some(reason.into()),
            minimum,
            ..Self::new(bid, now)
        }
    }

    fn new(bid: &NewBid, now: Millis) -> Self {
        Self {
            auction_id: bid.auction_id.clone(),
            bid_id: bid.bid_id.clone(),
            bidder_id: bid.bidder_id.clone(),
            kind: match bid.offer {
                Offer::Exactly(_) => BidKind::Exactly,
                Offer::UpTo(_) => BidKind::UpTo,
            },
            amount: bid.offer.max(),
            status: BidStatus::Rejected,
            reason: None,
            minimum: None,
            sequence: None,
            leading: None,
            price_after: None,
            leader_after: None,
            end_after: None,
            created_at: now,
        }
    }

    /// Why it was rejected.
    pub fn rejection(&self) -> Result<Rejection, CloudError> {
        match (self.reason.as_deref(), self.minimum) {
            (Some("TOO_LOW"), Some(minimum)) => Ok(Rejection::TooLow { minimum }),
            (Some("NOT_ABOVE_OWN"), _) => Ok(Rejection::NotAboveOwn),
            (Some("OVER"), _) => Ok(Rejection::Over),
            (Some("OWN_ITEM"), _) => Ok(Rejection::OwnItem),
            (Some("NOT_FOR_BUY_NOW"), _) => Ok(Rejection::NotForBuyNow),
            other => Err(CloudError::Corrupt(format!(
                "bid {}: rejected for {other:?}",
                self.bid_id
            ))),
        }
    }
}

/// The window out of the item or the two items that hold it.
pub(crate) fn window(auction: &Item, best: &Item) -> Result<Window, CloudError> {
    Ok(Window {
        auction: from_item(auction)?,
        best: from_item(best)?,
    })
}

impl AuctionHouse {
    /// Reads the window: what every decision is made on. Consistent, so that "no such auction"
    /// is true; a stale price would only cost a retry, since the guard decides.
    pub async fn read_window(&self, auction_id: &str) -> Result<Option<Window>, CloudError> {
        // No auction has such an id, and DynamoDB would call it a wrong request.
        if cloud::text::id(auction_id, MAX_TITLE).is_err() {
            return Ok(None);
        }
        match self.layout {
            Layout::OneItem => {
                let found = self
                    .dynamodb()
                    .get_item()
                    .table_name(self.table("auctions"))
                    .key("auction_id", s(auction_id))
                    .consistent_read(true)
                    .send()
                    .await
                    .map_err(CloudError::from)?;
                found.item.map(|item| window(&item, &item)).transpose()
            }
            // Two items are read as one, or the best could be that of a later moment than the
            // status. It costs twice what two plain reads cost, and a transaction that writes one
            // of them at the same time cancels it: then it is made again.
            Layout::SeparateBest => {
                for attempt in 0..READ_ATTEMPTS {
                    match self.read_both(auction_id).await {
                        Err(CloudError::Conflict(_)) => pause(attempt).await,
                        read => return read,
                    }
                }
                self.read_both(auction_id).await
            }
        }
    }

    /// The window of an auction that must be there.
    pub(crate) async fn known_window(&self, auction_id: &str) -> Result<Window, AuctionError> {
        let window = self.read_window(auction_id).await?;
        window.ok_or_else(|| AuctionError::UnknownAuction(auction_id.to_owned()))
    }

    async fn read_both(&self, auction_id: &str) -> Result<Option<Window>, CloudError> {
        let get = |table| {
            let get = Get::builder()
                .table_name(self.table(table))
                .key("auction_id", s(auction_id));
            Ok::<_, CloudError>(
                TransactGetItem::builder()
                    .get(get.build().map_err(CloudError::bug)?)
                    .build(),
            )
        };
        let found = self
            .dynamodb()
            .transact_get_items()
            .transact_items(get("auctions")?)
            .transact_items(get("best_bids")?)
            .send()
            .await
            .map_err(CloudError::from)?;
        let mut items = found
            .responses
            .unwrap_or_default()
            .into_iter()
            .map(|got| got.item);
        match (items.next().flatten(), items.next().flatten()) {
            (Some(auction), Some(best)) => Ok(Some(window(&auction, &best)?)),
            _ => Ok(None),
        }
    }
}

/// The attributes of the best that an update sets, under the names its expression uses.
pub(crate) fn best_values(best: &BestBidState) -> Vec<(&'static str, AttributeValue)> {
    vec![
        (":sequence", n(best.sequence)),
        (":bid", s(best.bid_id.clone().unwrap_or_default())),
        (":bidder", s(best.bidder_id.clone().unwrap_or_default())),
        (":amount", n(best.amount.unwrap_or_default())),
        (":max", n(best.max_amount.unwrap_or_default())),
        (":second", n(best.second_max_amount)),
    ]
}
