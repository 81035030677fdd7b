//! The rules, pure: states, transitions and decisions. `now` is an argument, money is minor
//! units, and no type of any SDK comes in.

use crate::{increments, proxy, soft_close};
use cloud::Millis;
use cloud::text::NotAnId;
use serde::{Deserialize, Serialize};

/// Money in minor units (cents) of the auction's currency.
pub type Amount = i64;

/// The largest amount that is taken: far from where adding a step could overflow.
pub const MAX_AMOUNT: Amount = 1_000_000_000_000;
/// The longest title, in characters.
pub const MAX_TITLE: usize = 200;
/// The widest soft-close window: a day.
pub const MAX_SOFT_CLOSE_MS: Millis = 86_400_000;

/// OPEN, then CLOSED, never back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Bids are taken.
    Open,
    /// It is over, and its winner, if any, is written.
    Closed,
}

/// The competitive window: what is sold, how, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuctionState {
    /// Identity.
    pub auction_id: String,
    /// What is sold.
    pub item_id: String,
    /// Who sells; may not bid.
    pub seller_id: String,
    /// What people read.
    pub title: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The lowest first bid.
    pub starting_price: Amount,
    /// Below it nobody wins. Never shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_price: Option<Amount>,
    /// Ends the auction at once, while there is no bid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buy_now_price: Option<Amount>,
    /// A bid this close to the end moves the end.
    pub soft_close_ms: Millis,
    /// Open or closed.
    pub status: Status,
    /// When it ends. It only ever moves forward.
    pub end_time: Millis,
    /// When it was to end at first: what a second call to create it is compared with.
    pub first_end_time: Millis,
    /// How long it was to last, if the seller said it so: a second call means the same, and comes later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_ms: Option<Millis>,
    /// When it was created.
    pub created_at: Millis,
    /// When it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Millis>,
    /// The number of the closing event, one after the last accepted bid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_sequence: Option<u64>,
}

/// Who leads, at which price, and after how many accepted bids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestBidState {
    /// Accepted bids so far. It orders them, and whoever decides on this state names it in the
    /// guard: if it has moved on, the decision is stale.
    #[serde(rename = "bid_sequence")]
    pub sequence: u64,
    /// The leading bid.
    #[serde(rename = "best_bid_id", skip_serializing_if = "Option::is_none")]
    pub bid_id: Option<String>,
    /// The leading bidder.
    #[serde(rename = "best_bidder_id", skip_serializing_if = "Option::is_none")]
    pub bidder_id: Option<String>,
    /// The price now.
    #[serde(rename = "best_amount", skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// How far the leader goes. Never shown.
    #[serde(rename = "best_max_amount", skip_serializing_if = "Option::is_none")]
    pub max_amount: Option<Amount>,
    /// How far the best of the others went; 0 if there is no other. The price follows it.
    pub second_max_amount: Amount,
}

/// What a bid is decided on: the window and its best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// The auction.
    pub auction: AuctionState,
    /// Its best.
    pub best: BestBidState,
}

/// What is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// This amount, now.
    Exactly(Amount),
    /// Whatever it takes, up to this.
    UpTo(Amount),
}

impl Offer {
    /// As far as it goes.
    pub fn max(self) -> Amount {
        match self {
            Self::Exactly(amount) | Self::UpTo(amount) => amount,
        }
    }

    /// What it pays even if less would do.
    pub fn at_once(self) -> Amount {
        match self {
            Self::Exactly(amount) => amount,
            Self::UpTo(_) => 0,
        }
    }
}

/// A bid as it comes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBid {
    /// On which auction.
    pub auction_id: String,
    /// Made by the bidder's client, and the same in every retry.
    pub bid_id: String,
    /// Who bids.
    pub bidder_id: String,
    /// What is offered.
    pub offer: Offer,
    /// In which currency.
    pub currency: String,
}

/// Why a bid is not accepted. An answer, not an error: it is kept in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Not enough.
    #[error("too low: the next bid must be at least {minimum}")]
    TooLow {
        /// What would have been enough.
        minimum: Amount,
    },
    /// The leader's own maximum is as high already. How high stays secret.
    #[error("you lead already: offer more than your own maximum to go further")]
    NotAboveOwn,
    /// Closed, or past its end.
    #[error("the auction is over")]
    Over,
    /// The seller's own item.
    #[error("sellers cannot bid on their own items")]
    OwnItem,
    /// No such price, or there are bids already.
    #[error("buy-now is not available")]
    NotForBuyNow,
}

/// What an accepted bid makes of the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The best afterwards. Its sequence is this bid's place in the history.
    pub best: BestBidState,
    /// The end afterwards.
    pub end_time: Millis,
    /// Whether this bid leads. If not, somebody's higher maximum met it.
    pub leading: bool,
}

/// Decides on a bid. Pure advice: the guard of the write makes it true.
pub fn decide(window: &Window, bid: &NewBid, now: Millis) -> Result<Accepted, Rejection> {
    let Window { auction, best } = window;
    if !is_running(auction, now) {
        return Err(Rejection::Over);
    }
    if bid.bidder_id == auction.seller_id {
        return Err(Rejection::OwnItem);
    }
    let minimum = minimum_bid(window);
    if bid.offer.max() < minimum {
        return Err(Rejection::TooLow { minimum });
    }
    if best.bidder_id.as_ref() == Some(&bid.bidder_id) {
        // The leader may go further; a lower maximum would say nothing. The refusal must not tell the
        // maximum: the leader's id is public, and anybody may bid under it.
        if bid.offer.max() <= best.max_amount.unwrap_or(0) {
            return Err(Rejection::NotAboveOwn);
        }
    }
    let (after, leading) = proxy::meet(auction, best, bid);
    Ok(Accepted {
        best: BestBidState {
            sequence: best.sequence + 1,
            ..after
        },
        end_time: soft_close::end_after_bid(auction.end_time, now, auction.soft_close_ms),
        leading,
    })
}

/// OPEN, and the end is still to come.
pub fn is_running(auction: &AuctionState, now: Millis) -> bool {
    auction.status == Status::Open && auction.end_time > now
}

/// The least the next bid must offer.
pub fn minimum_bid(window: &Window) -> Amount {
    match window.best.amount {
        None => window.auction.starting_price,
        Some(price) => price + increments::above(price),
    }
}

/// The result of an auction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuctionWinnerState {
    /// Which auction.
    pub auction_id: String,
    /// Which bid won.
    pub winning_bid_id: String,
    /// Who pays.
    pub bidder_id: String,
    /// How much.
    pub winning_amount: Amount,
    /// When it was closed.
    pub closed_at: Millis,
}

/// Who wins if the window closes as it is: the leader, if the price reached the reserve.
pub fn winner(window: &Window, now: Millis) -> Option<AuctionWinnerState> {
    let best = &window.best;
    let price = best.amount?;
    if window
        .auction
        .reserve_price
        .is_some_and(|reserve| price < reserve)
    {
        return None;
    }
    Some(AuctionWinnerState {
        auction_id: window.auction.auction_id.clone(),
        winning_bid_id: best.bid_id.clone()?,
        bidder_id: best.bidder_id.clone()?,
        winning_amount: price,
        closed_at: now,
    })
}

/// What is wrong with what came in. Found before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Zero, negative, or beyond [`MAX_AMOUNT`].
    #[error("{what} must be between 1 and {MAX_AMOUNT} minor units, not {amount}")]
    Amount {
        /// Which amount.
        what: &'static str,
        /// What it was.
        amount: Amount,
    },
    /// Not three capital letters.
    #[error("'{0}' is not a currency code such as EUR")]
    Currency(String),
    /// Not the auction's currency.
    #[error("this auction is in {wanted}, the bid is in {given}")]
    CurrencyMismatch {
        /// The auction's.
        wanted: String,
        /// The bid's.
        given: String,
    },
    /// Ends before it begins.
    #[error("the end ({end_time}) is not after now ({now})")]
    EndInThePast {
        /// When it was to end.
        end_time: Millis,
        /// Now.
        now: Millis,
    },
    /// Empty or too long.
    #[error("{what} must have between 1 and {most} characters, not {length}")]
    Length {
        /// Which text.
        what: &'static str,
        /// How long it may be.
        most: usize,
        /// How long it was.
        length: usize,
    },
    /// Not an id.
    #[error("{what} {why}")]
    Id {
        /// Which id.
        what: &'static str,
        /// Why not.
        why: NotAnId,
    },
    /// Reserve below start, buy-now below reserve.
    #[error("{0}")]
    Prices(&'static str),
    /// Negative or more than a day.
    #[error("soft_close_ms must be between 0 and {MAX_SOFT_CLOSE_MS}, not {0}")]
    SoftClose(Millis),
}

impl NewBid {
    /// Checks what can be checked without reading anything.
    pub fn validate(&self) -> Result<(), BadInput> {
        amount("the bid", self.offer.max())?;
        currency(&self.currency)?;
        id("auction_id", &self.auction_id)?;
        id("bid_id", &self.bid_id)?;
        id("bidder_id", &self.bidder_id)
    }
}

impl AuctionState {
    /// Checks an auction that is about to be created at `now`.
    pub fn validate(&self, now: Millis) -> Result<(), BadInput> {
        text("the title", &self.title, MAX_TITLE)?;
        id("item_id", &self.item_id)?;
        id("seller_id", &self.seller_id)?;
        id("auction_id", &self.auction_id)?;
        currency(&self.currency)?;
        amount("starting_price", self.starting_price)?;
        if self.end_time <= now {
            let end_time = self.end_time;
            return Err(BadInput::EndInThePast { end_time, now });
        }
        if !(0..=MAX_SOFT_CLOSE_MS).contains(&self.soft_close_ms) {
            return Err(BadInput::SoftClose(self.soft_close_ms));
        }
        let reserve = self.reserve_price.unwrap_or(self.starting_price);
        amount("reserve_price", reserve)?;
        if reserve < self.starting_price {
            return Err(BadInput::Prices("reserve_price is below starting_price"));
        }
        let buy_now = self.buy_now_price.unwrap_or(reserve);
        amount("buy_now_price", buy_now)?;
        if buy_now < reserve {
            return Err(BadInput::Prices(
                "buy_now_price is below the price an auction could end at",
            ));
        }
        Ok(())
    }
}

fn amount(what: &'static str, amount: Amount) -> Result<(), BadInput> {
    if (1..=MAX_AMOUNT).contains(&amount) {
        Ok(())
    } else {
        Err(BadInput::Amount { what, amount })
    }
}

fn currency(code: &str) -> Result<(), BadInput> {
    if code.len() == 3 && code.bytes().all(|letter| letter.is_ascii_uppercase()) {
        Ok(())
    } else {
        Err(BadInput::Currency(code.to_owned()))
    }
}

fn id(what: &'static str, id: &str) -> Result<(), BadInput> {
    cloud::text::id(id, MAX_TITLE).map_err(|why| BadInput::Id { what, why })
}

fn text(what: &'static str, text: &str, most: usize) -> Result<(), BadInput> {
    let length = text.chars().count();
    if (1..=most).contains(&length) {
        Ok(())
    } else {
        Err(BadInput::Length { what, most, length })
    }
}
