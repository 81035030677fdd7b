//! Asks DynamoDB what each call cost, while anybody listens.

use crate::tap::Tap;
use aws_sdk_dynamodb::config::interceptors::BeforeSerializationInterceptorContextMut;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::{
    batch_get_item::BatchGetItemInput, batch_write_item::BatchWriteItemInput,
    delete_item::DeleteItemInput, get_item::GetItemInput, put_item::PutItemInput,
    query::QueryInput, scan::ScanInput, transact_get_items::TransactGetItemsInput,
    transact_write_items::TransactWriteItemsInput, update_item::UpdateItemInput,
};
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;

/// Sets `ReturnConsumedCapacity` on every request that has it, unless the caller did.
#[derive(Debug)]
pub(crate) struct AskForCapacity(pub(crate) Tap);

impl Intercept for AskForCapacity {
    fn name(&self) -> &'static str {
        "AskForCapacity"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if !self.0.is_on() {
            return Ok(());
        }
        macro_rules! ask {
            ($($input:ty),+) => {$(
                if let Some(input) = context.input_mut().downcast_mut::<$input>() {
                    input.return_consumed_capacity.get_or_insert(ReturnConsumedCapacity::Indexes);
                }
            )+};
        }
        ask!(
            GetItemInput,
            PutItemInput,
            UpdateItemInput,
            DeleteItemInput,
            QueryInput,
            ScanInput,
            BatchGetItemInput,
            BatchWriteItemInput,
            TransactGetItemsInput,
            TransactWriteItemsInput
        );
        Ok(())
    }
}
