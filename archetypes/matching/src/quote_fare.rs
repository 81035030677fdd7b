//! Quote a fare: what the ride will cost, promised for five minutes and for one ride.
//!
//! The price is worked out once. The ride that is requested with it takes the amount over, so that
//! no later tariff or surge changes what the rider was told.

use crate::domain::{Amount, NewQuote, Point};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, pause, to_item};
use cloud::{CloudError, Guard, Guarded, Item, Millis};
use serde::{Deserialize, Serialize};

/// A price for one ride.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FareQuote {
    /// Made by the rider's client.
    pub fare_id: String,
    /// Who.
    pub rider_id: String,
    /// From where.
    pub pickup: Point,
    /// To where.
    pub destination: Point,
    /// How much.
    pub amount: Amount,
    /// Until when it can be used.
    pub quote_expires_at: Millis,
    /// By which ride it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ride_id: Option<String>,
}

const QUOTE_GUARD: &str = "attribute_not_exists(fare_id)";

impl Dispatch {
    /// Quotes a fare. Sent again under the same id, it is the same quote, whatever the tariff is by
    /// then.
    pub async fn quote_fare(&self, new: &NewQuote) -> Result<FareQuote, DispatchError> {
        new.validate()?;
        let quote = FareQuote {
            fare_id: new.fare_id.clone(),
            rider_id: new.rider_id.clone(),
            pickup: new.pickup,
            destination: new.destination,
            amount: self.rules.tariff.fare(new.pickup, new.destination),
            quote_expires_at: self.now() + self.rules.quote_ms,
            ride_id: None,
        };
        let put = self
            .dynamodb()
            .put_item()
            .table_name(self.table("fares"))
            .set_item(Some(to_item(&quote)?))
            .condition_expression(QUOTE_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for attempt in 0..crate::items::ATTEMPTS {
            let there = match put.clone().send().await.guarded() {
                Ok(Guard::Passed(_)) => return Ok(quote),
                Ok(Guard::Failed(old)) => from_item::<FareQuote>(&old.unwrap_or_else(Item::new))?,
                // Sent again, while the ride takes the quote.
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            };
            let asked = (&there.rider_id, there.pickup, there.destination);
            return if asked == (&new.rider_id, new.pickup, new.destination) {
                Ok(there)
            } else {
                Err(DispatchError::IdTaken(new.fare_id.clone()))
            };
        }
        Err(DispatchError::Contended)
    }

    /// The quote that must be there.
    pub(crate) async fn known_fare(&self, fare_id: &str) -> Result<FareQuote, DispatchError> {
        let found: Result<Option<FareQuote>, CloudError> =
            self.one("fares", "fare_id", fare_id).await;
        found?.ok_or_else(|| DispatchError::UnknownFare(fare_id.to_owned()))
    }
}
