//! The ledger: double entry. What is taken and what is given back is written down twice, once where it
//! comes from and once where it goes, in the transaction that makes it so.
//!
//! An authorization moves no money and has no entry: it is a promise, and it is on the payment.

use crate::domain::{PaymentIntentState, TransactionState};
use crate::money::{Amount, Unit};
use crate::{Payments, tables};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use cloud::item::to_item;
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};

/// What the processor owes us.
pub const RECEIVABLE: &str = "processor_receivable";

/// Left or right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Side {
    /// An asset grows, or a debt shrinks.
    Debit,
    /// A debt grows, or an asset shrinks.
    Credit,
}

/// One side of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Whose.
    pub account: String,
    /// Which side.
    pub side: Side,
    /// How much; always positive.
    pub amount: Amount,
}

/// A posting as it is kept. Nothing ever changes or removes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntryState {
    /// Of which payment.
    pub payment_intent_id: String,
    /// `transaction_id#DEBIT`: a movement is booked once.
    pub entry_id: String,
    /// Whose.
    pub account: String,
    /// Which side.
    pub side: Side,
    /// How much.
    pub amount: Amount,
    /// Of this currency.
    pub currency: Unit,
    /// When.
    pub booked_at: Millis,
}

/// What we owe a merchant.
pub fn payable(merchant_id: &str) -> String {
    format!("merchant_payable:{merchant_id}")
}

/// Taken: the processor owes us, and we owe the merchant.
pub fn captured(merchant_id: &str, amount: Amount) -> Vec<Posting> {
    entry(RECEIVABLE.to_owned(), payable(merchant_id), amount)
}

/// Given back: the same, the other way round.
pub fn refunded(merchant_id: &str, amount: Amount) -> Vec<Posting> {
    entry(payable(merchant_id), RECEIVABLE.to_owned(), amount)
}

fn entry(debit: String, credit: String, amount: Amount) -> Vec<Posting> {
    let posting = |account, side| Posting {
        account,
        side,
        amount,
    };
    vec![posting(debit, Side::Debit), posting(credit, Side::Credit)]
}

impl Payments {
    /// The postings as parts of the transaction that makes them true.
    pub(crate) fn booked(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
        postings: &[Posting],
        now: Millis,
    ) -> Result<Vec<TransactWriteItem>, CloudError> {
        let book = |posting: &Posting| {
            let side = match posting.side {
                Side::Debit => "DEBIT",
                Side::Credit => "CREDIT",
            };
            let entry = LedgerEntryState {
                payment_intent_id: intent.payment_intent_id.clone(),
                entry_id: format!("{}#{side}", transaction.transaction_id),
                account: posting.account.clone(),
                side: posting.side,
                amount: posting.amount,
                currency: intent.currency,
                booked_at: now,
            };
            let put = Put::builder()
                .table_name(self.table(tables::LEDGER.name))
                .set_item(Some(to_item(&entry)?))
                .build()
                .map_err(CloudError::bug)?;
            Ok(TransactWriteItem::builder().put(put).build())
        };
        postings.iter().map(book).collect()
    }

    /// What was booked for a payment. Consistent.
    pub async fn ledger_of(
        &self,
        payment_intent_id: &str,
    ) -> Result<Vec<LedgerEntryState>, CloudError> {
        self.rows_of(&tables::LEDGER, payment_intent_id).await
    }
}
