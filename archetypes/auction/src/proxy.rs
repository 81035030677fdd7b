//! Proxy bids: the bidder names a maximum, the house bids for them. Beyond the documents.
//!
//! The price is what the second-best needs plus one step, never above the best's own maximum:
//! `min(highest max, second max + increment)`. A plain bid is a proxy bid that offers its
//! maximum at once.

use crate::domain::{Amount, Offer};
use crate::increments;

/// Who leads after a new offer, and at which price.
#[derive(Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether the newcomer took the lead.
    pub newcomer_leads: bool,
    /// The price now.
    pub price: Amount,
}

/// A valid offer meets the leader, who goes up to `leader_max`.
pub fn meet(offer: Offer, leader_max: Amount) -> Standing {
    let newcomer_max = offer.max();
    // On a tie the earlier one keeps the lead, at their maximum.
    if newcomer_max <= leader_max {
        return Standing {
            newcomer_leads: false,
            price: leader_max.min(newcomer_max + increments::above(newcomer_max)),
        };
    }
    let needed = newcomer_max.min(leader_max + increments::above(leader_max));
    Standing {
        newcomer_leads: true,
        price: needed.max(offer.at_once()),
    }
}

/// A valid offer, and nobody leads yet.
pub fn alone(offer: Offer, starting_price: Amount) -> Amount {
    starting_price.max(offer.at_once())
}

/// The leader goes further. Nobody bids against themselves: the price moves only if they say so.
pub fn raise_own(offer: Offer, price: Amount) -> Amount {
    price.max(offer.at_once())
}

/// The reserve counts as one more bidder: whoever can reach it is taken there at once.
pub fn lifted_to_reserve(price: Amount, leader_max: Amount, reserve: Option<Amount>) -> Amount {
    match reserve {
        Some(reserve) if leader_max >= reserve => price.max(reserve),
        _ => price,
    }
}
