//! Sandbox cards: a processor to rehearse with. Its ledger is a table, so it forgets nothing when
//! the office dies, and its calls pass the tap like all others. A real one is a client of somebody's
//! API behind the same trait.

use crate::domain::Amount;
use crate::purchase::Cards;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{Cloud, CloudError, Guard, Guarded};
use futures::future::BoxFuture;
use serde::Deserialize;

/// The card that is always declined.
pub const DECLINED_CARD: &str = "card-declined";

/// The processor.
#[derive(Clone)]
pub struct SandboxCards {
    cloud: Cloud,
}

/// A payment as the processor knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Charge {
    /// AUTHORIZED, CAPTURED, VOIDED, REFUNDED or DECLINED.
    pub status: String,
    /// How much; a payment that was given back before it arrived has none.
    pub amount: Option<Amount>,
}

/// A payment is authorized or declined once.
const AUTHORIZE_GUARD: &str = "attribute_not_exists(payment_id)";

/// Only what is authorized can be captured; a second time changes nothing.
const CAPTURE_GUARD: &str = "#status IN (:authorized, :captured)";

/// What was not captured is voided, also what has not arrived yet …
const VOID_GUARD: &str =
    "attribute_not_exists(payment_id) OR NOT #status IN (:captured, :refunded)";

/// … and what was, is refunded.
const REFUND_GUARD: &str = "#status IN (:captured, :refunded)";

const MOVE_UPDATE: &str = "SET #status = :to";

impl SandboxCards {
    /// A processor on this cloud.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }

    /// What became of a payment.
    pub async fn charge(&self, payment_id: &str) -> Result<Option<Charge>, CloudError> {
        let found = self
            .cloud
            .dynamodb()
            .get_item()
            .table_name(self.cloud.names().table("sandbox_charges"))
            .key("payment_id", s(payment_id))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    fn update(
        &self,
        payment_id: &str,
        to: &str,
    ) -> aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder {
        self.cloud
            .dynamodb()
            .update_item()
            .table_name(self.cloud.names().table("sandbox_charges"))
            .key("payment_id", s(payment_id))
            .update_expression(MOVE_UPDATE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":to", s(to))
    }
}

impl Cards for SandboxCards {
    fn authorize<'a>(
        &'a self,
        payment_id: &'a str,
        amount: Amount,
        card: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async move {
            let good = card != DECLINED_CARD;
            let status = if good { "AUTHORIZED" } else { "DECLINED" };
            let written = self
                .cloud
                .dynamodb()
                .put_item()
                .table_name(self.cloud.names().table("sandbox_charges"))
                .item("payment_id", s(payment_id))
                .item("status", s(status))
                .item("amount", n(amount))
                .condition_expression(AUTHORIZE_GUARD)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
                .await
                .guarded()?;
            match written {
                Guard::Passed(_) => Ok(good),
                Guard::Failed(old) => {
                    let first: Charge = from_item(&old.unwrap_or_default())?;
                    let stands = ["AUTHORIZED", "CAPTURED"].contains(&first.status.as_str());
                    Ok(stands && first.amount == Some(amount))
                }
            }
        })
    }

    fn capture<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async move {
            let captured = self
                .update(payment_id, "CAPTURED")
                .condition_expression(CAPTURE_GUARD)
                .expression_attribute_values(":authorized", s("AUTHORIZED"))
                .expression_attribute_values(":captured", s("CAPTURED"))
                .send()
                .await
                .guarded()?;
            Ok(matches!(captured, Guard::Passed(_)))
        })
    }

    fn give_back<'a>(&'a self, payment_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            let voided = self
                .update(payment_id, "VOIDED")
                .condition_expression(VOID_GUARD)
                .expression_attribute_values(":captured", s("CAPTURED"))
                .expression_attribute_values(":refunded", s("REFUNDED"))
                .send()
                .await
                .guarded()?;
            if let Guard::Failed(_) = voided {
                self.update(payment_id, "REFUNDED")
                    .condition_expression(REFUND_GUARD)
                    .expression_attribute_values(":captured", s("CAPTURED"))
                    .expression_attribute_values(":refunded", s("REFUNDED"))
                    .send()
                    .await
                    .guarded()?;
            }
            Ok(())
        })
    }
}
