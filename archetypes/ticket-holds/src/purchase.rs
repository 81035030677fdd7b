//! Purchase: a hold and a card, in the order authorize → confirm → capture.
//!
//! Never charge first: a seat that is lost after the charge is a refund and an angry mail. An
//! authorization takes no money; it is captured only once the booking is CONFIRMED, and given back
//! if it never will be. Before the processor is asked at all the booking says so (`payment = OPEN`)
//! and stays in the sweeper's index until the payment is settled, so whoever dies anywhere leaves
//! a trace that somebody follows.

use crate::domain::{Amount, BadInput, BookingState, BookingStatus, MAX_TEXT, Payment, text};
use crate::items::booking_key;
use crate::neighbours::PATIENCE;
use crate::put_back::KEPT_MS;
use crate::{BoxOffice, Confirming, Expiry, OfficeError, Over};
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Guard, Guarded, Millis};
use futures::future::BoxFuture;
use std::time::Duration;

/// A card processor. Every call carries a key, made of booking and payment, and may be repeated: the
/// processor answers as the first time.
pub trait Cards: Send + Sync {
    /// Reserves the amount. Takes no money. False if the card is declined, or if the payment was
    /// given back before this arrived.
    fn authorize<'a>(
        &'a self,
        payment_id: &'a str,
        amount: Amount,
        card: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>>;

    /// Takes the money that was authorized. False if it was given back.
    fn capture<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<bool, CloudError>>;

    /// Gives back whatever there is: voids an authorization, refunds a capture, and refuses what
    /// may still arrive under this id.
    fn give_back<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>>;
}

/// What became of a purchase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purchase {
    /// Confirmed and captured.
    Bought(BookingState),
    /// The card was declined. The hold stays; another payment may be tried.
    Declined,
    /// The hold was over, or another payment for it is under way. Nothing was charged.
    Refused(Over),
}

impl Purchase {
    /// What a booking that was settled means to its buyer.
    fn of(settled: BookingState, now: Millis) -> Self {
        match settled.open_at(now) {
            Err(Over::Confirmed) => Self::Bought(settled),
            Err(over) => Self::Refused(over),
            Ok(()) => Self::Refused(Over::Expired),
        }
    }
}

/// Still a hold with time left, and no other payment for it. A payment that was declined is over: without
/// that, a late copy of its start would keep the next card away. Not too many were.
const START_GUARD: &str = "#status = :in_progress AND hold_expires_at > :now \
     AND (attribute_not_exists(payment_id) OR payment_id = :payment) \
     AND (attribute_not_exists(declined) \
          OR (NOT contains(declined, :payment) AND size(declined) < :most))";
const START_UPDATE: &str = "SET payment = :open, payment_id = :payment";

/// A declined card leaves nothing to settle, while the booking is still a hold.
const DECLINED_GUARD: &str = "#status = :in_progress AND payment_id = :payment";
const DECLINED_UPDATE: &str = "REMOVE payment, payment_id ADD declined :declined";

/// How long a processor may take before the sweeper gives its place to another payment.
const CARD_PATIENCE: Duration = Duration::from_secs(10);

/// After so many declined cards no further one is asked.
const MOST_DECLINED: u32 = 10;

/// What was settled is what the booking still asks for: a cancellation in between asks for the
/// opposite.
const SETTLED_GUARD: &str = "payment = :open AND #status = :seen";
const CAPTURED_UPDATE: &str = "SET payment = :settled REMOVE due_shard, due_at";
const GIVEN_BACK_UPDATE: &str =
    "SET payment = :settled, purge_at = :purge REMOVE due_shard, due_at";

impl BoxOffice {
    /// Pays for a hold. Sent again with the same `payment_id`, it goes on where it stopped.
    pub async fn purchase(
        &self,
        cards: &dyn Cards,
        booking_id: &str,
        payment_id: &str,
        card: &str,
    ) -> Result<Purchase, OfficeError> {
        text("booking_id", booking_id)?;
        text("payment_id", payment_id)?;
        cloud::text::id(card, MAX_TEXT).map_err(|why| BadInput::Id { what: "card", why })?;
        let now = self.now();
        let booking = match self.start_payment(booking_id, payment_id).await? {
            Ok(booking) => booking,
            Err(there) if there.payment_id.as_deref() != Some(payment_id) => {
                let full = there.declined.len() >= MOST_DECLINED as usize;
                let declined = full || there.declined.contains(payment_id);
                if there.open_at(now).is_ok() && there.payment_id.is_none() && declined {
                    return Ok(Purchase::Declined);
                }
                let over = there.open_at(now).err();
                let why = over.unwrap_or(Over::PaymentUnderWay);
                return Ok(Purchase::Refused(why));
            }
            // Ours, and past the point where it could be started: sent again.
            Err(there) => {
                let settled = self.settle(cards, &there).await?;
                return Ok(Purchase::of(settled, now));
            }
        };
        let key = booking.charge_key().unwrap_or_default();
        if !cards.authorize(&key, booking.total, card).await? {
            return self.declined(booking_id, payment_id).await;
        }
        match self.confirm_read(booking, Some(payment_id), now).await? {
            Confirming::Confirmed(booking) | Confirming::Before(booking) => {
                let settled = self.settle(cards, &booking).await?;
                Ok(Purchase::of(settled, now))
            }
            Confirming::Refused(over) => {
                // Nothing is given back for a booking that has not ended: a twin of this call may
                // still confirm it. So end it, if it is over, and settle what it then asks for; the
                // sweeper does the same when the time comes.
                self.sweep_one(cards, booking_id).await?;
                Ok(Purchase::Refused(over))
            }
        }
    }

    /// Says on the booking that a processor is about to be asked. Gives the booking, or, if it
    /// cannot be paid for this way, the booking as it is.
    async fn start_payment(
        &self,
        booking_id: &str,
        payment_id: &str,
    ) -> Result<Result<BookingState, BookingState>, OfficeError> {
        let request = self
            .dynamodb()
            .update_item()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(booking_id)))
            .update_expression(START_UPDATE)
            .condition_expression(START_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
            .expression_attribute_values(":now", n(self.now()))
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":payment", s(payment_id))
            .expression_attribute_values(":most", n(MOST_DECLINED))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match patiently(request).await? {
            Guard::Passed(written) => Ok(Ok(from_item(&written.attributes.unwrap_or_default())?)),
            Guard::Failed(Some(there)) => Ok(Err(from_item(&there)?)),
            Guard::Failed(None) => Err(OfficeError::UnknownBooking(booking_id.to_owned())),
        }
    }

    async fn declined(&self, booking_id: &str, payment_id: &str) -> Result<Purchase, OfficeError> {
        let request = self
            .dynamodb()
            .update_item()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(booking_id)))
            .update_expression(DECLINED_UPDATE)
            .condition_expression(DECLINED_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
            .expression_attribute_values(":payment", s(payment_id))
            .expression_attribute_values(
                ":declined",
                AttributeValue::Ss(vec![payment_id.to_owned()]),
            )
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(match patiently(request).await? {
            Guard::Passed(_) => Purchase::Declined,
            // It ended meanwhile, and what looked like a declined card may have been a payment that
            // was given back.
            Guard::Failed(there) => {
                let there: BookingState = from_item(&there.unwrap_or_default())?;
                match there.open_at(self.now()) {
                    Err(over) => Purchase::Refused(over),
                    Ok(()) => Purchase::Declined,
                }
            }
        })
    }

    /// Does what a booking's status asks of its payment: captures for a CONFIRMED one, gives back
    /// for one that ended. By anybody, any number of times.
    pub async fn settle(
        &self,
        cards: &dyn Cards,
        booking: &BookingState,
    ) -> Result<BookingState, OfficeError> {
        let (Some(Payment::Open), Some(key)) = (booking.payment, booking.charge_key()) else {
            return Ok(booking.clone());
        };
        let request = self
            .dynamodb()
            .update_item()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(&booking.booking_id)))
            .condition_expression(SETTLED_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":settled", s("SETTLED"))
            .expression_attribute_values(":seen", s(booking.status.word()))
            .return_values(ReturnValue::AllNew);
        let request = match booking.status {
            BookingStatus::InProgress => return Ok(booking.clone()),
            BookingStatus::Confirmed => {
                if !cards.capture(&key).await? {
                    // Given back, which only a booking that has ended asks for.
                    return self.known_booking(&booking.booking_id).await;
                }
                request.update_expression(CAPTURED_UPDATE)
            }
            BookingStatus::Expired | BookingStatus::Cancelled => {
                cards.give_back(&key).await?;
                request
                    .update_expression(GIVEN_BACK_UPDATE)
                    .expression_attribute_values(":purge", n((self.now() + KEPT_MS) / 1_000))
            }
        };
        match patiently(request).await? {
            Guard::Passed(written) => Ok(from_item(&written.attributes.unwrap_or_default())?),
            // Somebody else has settled it, or it was cancelled and asks for the opposite now.
            Guard::Failed(_) => self.known_booking(&booking.booking_id).await,
        }
    }

    /// Settles what is open of bookings that have ended or are confirmed, for ever, and says what failed. A
    /// processor may be slow, so this is a lane of its own, beside [`expire_due`](Self::expire_due), and in it one
    /// payment does not wait for another.
    pub async fn settle_forever(&self, cards: &dyn Cards, failed: impl Fn(&str, &OfficeError)) {
        let look = |booking_id: String| async move {
            let booking = self.known_booking(&booking_id).await?;
            self.settle(cards, &booking).await
        };
        self.look_forever(CARD_PATIENCE, look, failed).await;
    }

    /// Both lanes in one, once: ends what is over, and settles what is open.
    pub async fn sweep(&self, cards: &dyn Cards) -> Vec<(String, Result<Expiry, OfficeError>)> {
        self.release_owed().await;
        self.for_each_due(PATIENCE, |booking_id| async move {
            self.sweep_one(cards, &booking_id).await
        })
        .await
    }

    async fn sweep_one(&self, cards: &dyn Cards, booking_id: &str) -> Result<Expiry, OfficeError> {
        let expiry = self.expire_hold(booking_id).await?;
        let booking = self.known_booking(booking_id).await?;
        self.settle(cards, &booking).await?;
        Ok(expiry)
    }
}

/// How often a conflict is tried again.
const ATTEMPTS: u32 = 20;

/// Sends an update, again if a transaction had the item at that moment.
async fn patiently(
    request: UpdateItemFluentBuilder,
) -> Result<Guard<UpdateItemOutput>, CloudError> {
    for attempt in 0..ATTEMPTS {
        match request.clone().send().await.guarded() {
            Err(CloudError::Conflict(_)) => pause(attempt).await,
            sent => return sent,
        }
    }
    request.send().await.guarded()
}
