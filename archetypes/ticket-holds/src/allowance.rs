//! How many tickets of one event a user may have: a counter that is part of the hold's transaction.
//!
//! It is taken without being read: the guard says how much room there must be. Whoever has none is
//! told so only after the holds that fill it were looked at, because a hold that has expired must
//! not keep its own user away until a sweeper comes.

use crate::domain::{BookingState, BookingStatus, Rejection};
use crate::{BoxOffice, Expiry, OfficeError};
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Item};
use serde::Deserialize;
use std::collections::BTreeSet;

/// Room for this many, before they are added.
const ROOM_GUARD: &str = "attribute_not_exists(tickets_taken) OR tickets_taken <= :room";

const TAKE_UPDATE: &str = "ADD tickets_taken :count, counted_bookings :booking";

/// Given back in the transaction that ends the booking, so exactly once. It needs no guard of its
/// own.
const GIVE_BACK_UPDATE: &str = "ADD tickets_taken :count DELETE counted_bookings :booking";

/// How many tickets of one event one user holds or owns, and by which bookings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Allowance {
    /// Held and owned together.
    pub tickets_taken: i64,
    /// What they were counted for. Never many: each counts at least one ticket.
    #[serde(default)]
    pub counted_bookings: BTreeSet<String>,
}

impl Allowance {
    pub(crate) fn of(item: Option<&Item>) -> Result<Self, CloudError> {
        item.map_or(Ok(Self::default()), from_item)
    }
}

impl BoxOffice {
    /// Counts a booking's tickets, if there is room.
    pub(crate) fn take_allowance(
        &self,
        booking: &BookingState,
    ) -> Result<TransactWriteItem, CloudError> {
        let count = booking.tickets();
        let room = self.rules.per_user_limit.saturating_sub(count);
        let update = self
            .update_allowance(booking)
            .update_expression(TAKE_UPDATE)
            .condition_expression(ROOM_GUARD)
            .expression_attribute_values(":room", n(room))
            .expression_attribute_values(":count", n(count))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// Takes a booking out of the count.
    pub(crate) fn give_back_allowance(
        &self,
        booking: &BookingState,
    ) -> Result<TransactWriteItem, CloudError> {
        let update = self
            .update_allowance(booking)
            .update_expression(GIVE_BACK_UPDATE)
            .expression_attribute_values(":count", n(-i64::from(booking.tickets())));
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    fn update_allowance(
        &self,
        booking: &BookingState,
    ) -> aws_sdk_dynamodb::types::builders::UpdateBuilder {
        let id = AttributeValue::Ss(vec![booking.booking_id.clone()]);
        Update::builder()
            .table_name(self.table("allowances"))
            .key(
                "event_user",
                s(format!("{}#{}", booking.event_id, booking.user_id)),
            )
            .expression_attribute_values(":booking", id)
    }

    /// How much of an allowance is used. For people and tests: no decision rests on it.
    pub async fn allowance(&self, event_id: &str, user_id: &str) -> Result<Allowance, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("allowances"))
            .key("event_user", s(format!("{event_id}#{user_id}")))
            .consistent_read(true)
            .send()
            .await?;
        Allowance::of(found.item.as_ref())
    }

    /// Ends those of the user's holds whose time is over. Says whether there is more room than the
    /// allowance said, be it by somebody else's doing.
    pub(crate) async fn make_room(
        &self,
        full: &Allowance,
        asking: &str,
    ) -> Result<bool, OfficeError> {
        let mut room = false;
        for booking_id in full.counted_bookings.iter().filter(|id| *id != asking) {
            let ended = Box::pin(self.expire_hold(booking_id)).await?;
            room |= match ended {
                Expiry::Expired(_) => true,
                Expiry::Over(status) => status != BookingStatus::Confirmed,
                Expiry::NotDue { .. } => false,
            };
        }
        Ok(room)
    }

    pub(crate) fn over_limit(&self, allowance: &Allowance) -> Rejection {
        Rejection::OverLimit {
            limit: self.rules.per_user_limit,
            taken: allowance.tickets_taken,
        }
    }
}
