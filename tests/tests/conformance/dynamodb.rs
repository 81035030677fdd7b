//! DynamoDB and DynamoDB Streams.

use crate::toy::{Toy, eventually, n, s, tables};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, ConsumedCapacity, Delete, DeleteRequest, Get,
    KeysAndAttributes, Put, PutRequest, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure, TimeToLiveStatus, TransactGetItem, TransactWriteItem,
    Update, WriteRequest,
};
use aws_sdk_dynamodbstreams::types::{OperationType, Record, ShardIteratorType};
use cloud::Item;
use futures::future::join_all;

impl Toy {
    fn put(&self, id: &str) -> PutItemFluentBuilder {
        self.db
            .put_item()
            .table_name(&self.things)
            .item("thing_id", s(id))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
    }

    fn update(&self, id: &str, expression: &str) -> UpdateItemFluentBuilder {
        self.db
            .update_item()
            .table_name(&self.things)
            .key("thing_id", s(id))
            .update_expression(expression)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
    }

    async fn get(&self, id: &str) -> Option<Item> {
        let got = self
            .db
            .get_item()
            .table_name(&self.things)
            .key("thing_id", s(id));
        got.consistent_read(true).send().await.unwrap().item
    }

    async fn entry(&self, list: &str, position: i64, title: &str) {
        self.db
            .put_item()
            .table_name(&self.lists)
            .item("list_id", s(list))
            .item("position", n(position))
            .item("title", s(title))
            .send()
            .await
            .unwrap();
    }

    fn list(&self, list: &str, and: &str) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&self.lists)
            .consistent_read(true)
            .key_condition_expression(format!("list_id = :list{and}"))
            .expression_attribute_values(":list", s(list))
    }

    /// What the index says about a group: keys and titles, eventually.
    fn group(&self, group: &str) -> QueryFluentBuilder {
        self.db
            .query()
            .table_name(&self.things)
            .index_name("by-group")
            .key_condition_expression("group_id = :group")
            .expression_attribute_values(":group", s(group))
    }

    fn transact_put(&self, id: &str) -> aws_sdk_dynamodb::types::builders::PutBuilder {
        Put::builder()
            .table_name(&self.things)
            .item("thing_id", s(id))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    fn transact_add(&self, id: &str, amount: u32) -> TransactWriteItem {
        let add = Update::builder()
            .table_name(&self.things)
            .key("thing_id", s(id))
            .update_expression("ADD amount :amount")
            .expression_attribute_values(":amount", n(amount))
            .build()
            .unwrap();
        TransactWriteItem::builder().update(add).build()
    }
}

fn put(put: aws_sdk_dynamodb::types::builders::PutBuilder) -> TransactWriteItem {
    TransactWriteItem::builder()
        .put(put.build().unwrap())
        .build()
}

fn positions(items: &[Item]) -> Vec<i64> {
    items
        .iter()
        .map(|item| item["position"].as_n().unwrap().parse().unwrap())
        .collect()
}

fn ids(items: &[Item]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["thing_id"].as_s().unwrap().as_str())
        .collect()
}

fn code<T: std::fmt::Debug, E: ProvideErrorMetadata>(answer: Result<T, SdkError<E>>) -> String {
    let error = answer.expect_err("expected a refusal");
    error.code().unwrap_or("no code").to_owned()
}

/// The item of a failed condition, which DynamoDB gave with the refusal.
fn old<T: std::fmt::Debug, E>(answer: Result<T, SdkError<E>>) -> Option<Item>
where
    Result<T, SdkError<E>>: cloud::Guarded<T>,
{
    match cloud::Guarded::guarded(answer).unwrap() {
        cloud::Guard::Failed(old) => old,
        cloud::Guard::Passed(_) => panic!("the condition must fail"),
    }
}

// Conditional writes.

#[tokio::test]
async fn a_failed_condition_returns_the_old_item() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let create = |amount: u32| {
        let put = toy.put(&id).item("amount", n(amount));
        put.condition_expression("attribute_not_exists(thing_id)")
            .send()
    };
    create(1).await.unwrap();
    assert_eq!(old(create(2).await).unwrap()["amount"], n(1));
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(1));

    let raise = toy
        .update(&id, "SET amount = :new")
        .condition_expression("amount > :new")
        .expression_attribute_values(":new", n(5));
    assert_eq!(old(raise.send().await).unwrap()["amount"], n(1));
}

#[tokio::test]
async fn a_failed_condition_on_no_item_returns_none() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let update = toy
        .update(&id, "SET amount = :one")
        .condition_expression("attribute_exists(thing_id)")
        .expression_attribute_values(":one", n(1));
    assert_eq!(old(update.send().await), None);
    assert_eq!(toy.get(&id).await, None);
}

#[tokio::test]
async fn a_condition_compares_numbers_as_numbers() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id).item("amount", n(9)).send().await.unwrap();
    let outbid = |amount: u32| {
        toy.update(&id, "SET amount = :new")
            .condition_expression("amount < :new")
            .expression_attribute_values(":new", n(amount))
            .send()
    };
    outbid(10).await.unwrap();
    old(outbid(9).await);
    old(outbid(10).await);
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(10));
}

#[tokio::test]
async fn a_comparison_with_a_missing_attribute_is_false() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id).send().await.unwrap();
    for condition in ["amount < :x", "amount >= :x", "amount = :x"] {
        let update = toy
            .update(&id, "SET touched = :x")
            .condition_expression(condition);
        old(update.expression_attribute_values(":x", n(1)).send().await);
    }
    // Not equal is the exception: what is not there differs from every value.
    let update = toy
        .update(&id, "SET touched = :x")
        .condition_expression("amount <> :x");
    update
        .expression_attribute_values(":x", n(1))
        .send()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_lease_is_taken_when_it_is_free_or_expired_and_not_before() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let claim = |owner: &str, now: u32| {
        toy.update(&id, "SET holder = :me, expires = :until ADD fence :one")
            .condition_expression("attribute_not_exists(holder) OR expires <= :now")
            .expression_attribute_values(":me", s(owner))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":until", n(now + 10))
            .expression_attribute_values(":one", n(1))
            .return_values(ReturnValue::AllNew)
            .send()
    };
    claim("a", 0).await.unwrap();
    assert_eq!(old(claim("b", 9).await).unwrap()["holder"], s("a"));
    let taken = claim("b", 10).await.unwrap().attributes.unwrap();
    assert_eq!((&taken["holder"], &taken["fence"]), (&s("b"), &n(2)));
}

#[tokio::test]
async fn a_conditional_delete_deletes_only_what_it_expects() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id).item("holder", s("a")).send().await.unwrap();
    let delete = |holder: &str| {
        toy.db
            .delete_item()
            .table_name(&toy.things)
            .key("thing_id", s(&id))
            .condition_expression("holder = :holder")
            .expression_attribute_values(":holder", s(holder))
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
    };
    assert_eq!(old(delete("b").await).unwrap()["holder"], s("a"));
    assert_eq!(
        delete("a").await.unwrap().attributes.unwrap()["holder"],
        s("a")
    );
    assert_eq!(toy.get(&id).await, None);
}

#[tokio::test]
async fn of_32_racing_conditional_writers_one_wins() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let answers = join_all((0..32).map(|writer| {
        let put = toy.put(&id).item("writer", n(writer));
        put.condition_expression("attribute_not_exists(thing_id)")
            .send()
    }))
    .await;
    let winners: Vec<_> = (0..32)
        .filter(|&writer: &usize| answers[writer].is_ok())
        .collect();
    assert_eq!(winners.len(), 1);
    for lost in answers.into_iter().filter(Result::is_err) {
        assert_eq!(old(lost).unwrap()["writer"], n(winners[0]));
    }
}

#[tokio::test]
async fn of_32_racing_adders_none_is_lost() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    join_all((0..32).map(|_| {
        let add = toy
            .update(&id, "ADD amount :one")
            .expression_attribute_values(":one", n(1));
        async { add.send().await.unwrap() }
    }))
    .await;
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(32));
}

#[tokio::test]
async fn of_32_racing_transactions_one_wins() {
    let toy = tables().await;
    let (seat, order) = (toy.fresh("thing"), toy.fresh("order"));
    let answers = join_all((0..32).map(|writer| {
        let seat = toy.transact_put(&seat).item("writer", n(writer));
        let order = toy.transact_put(&format!("{order}-{writer}"));
        toy.db
            .transact_write_items()
            .transact_items(put(
                seat.condition_expression("attribute_not_exists(thing_id)")
            ))
            .transact_items(put(order))
            .send()
    }))
    .await;
    let winners: Vec<_> = (0..32)
        .filter(|&writer: &usize| answers[writer].is_ok())
        .collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(toy.get(&seat).await.unwrap()["writer"], n(winners[0]));
    for writer in 0..32 {
        let order = toy.get(&format!("{order}-{writer}")).await;
        assert_eq!(order.is_some(), writer == winners[0]);
    }
}

// Update expressions.

#[tokio::test]
async fn add_creates_the_item_and_the_number() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    for expected in [3, 6] {
        let add = toy
            .update(&id, "ADD amount :three")
            .expression_attribute_values(":three", n(3));
        let new = add
            .return_values(ReturnValue::UpdatedNew)
            .send()
            .await
            .unwrap();
        assert_eq!(new.attributes.unwrap()["amount"], n(expected));
    }
}

#[tokio::test]
async fn updated_new_returns_only_what_was_updated() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id)
        .item("title", s("kept"))
        .item("amount", n(1))
        .send()
        .await
        .unwrap();
    let update = toy.update(&id, "SET amount = amount + :one");
    let update = update.expression_attribute_values(":one", n(1));
    let new = update
        .return_values(ReturnValue::UpdatedNew)
        .send()
        .await
        .unwrap();
    assert_eq!(
        new.attributes.unwrap(),
        Item::from([("amount".to_owned(), n(2))])
    );
}

#[tokio::test]
async fn all_old_returns_the_item_before_the_update() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id).item("amount", n(1)).send().await.unwrap();
    let update = toy
        .update(&id, "SET amount = :two")
        .expression_attribute_values(":two", n(2));
    let before = update
        .return_values(ReturnValue::AllOld)
        .send()
        .await
        .unwrap();
    assert_eq!(before.attributes.unwrap()["amount"], n(1));
}

#[tokio::test]
async fn if_not_exists_keeps_the_first_value() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    for value in ["first", "second"] {
        let update = toy.update(&id, "SET title = if_not_exists(title, :value)");
        update
            .expression_attribute_values(":value", s(value))
            .send()
            .await
            .unwrap();
    }
    assert_eq!(toy.get(&id).await.unwrap()["title"], s("first"));
}

#[tokio::test]
async fn remove_takes_the_attribute_away() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id)
        .item("title", s("gone"))
        .item("amount", n(1))
        .send()
        .await
        .unwrap();
    let update = toy.update(&id, "REMOVE title SET amount = :two");
    update
        .expression_attribute_values(":two", n(2))
        .send()
        .await
        .unwrap();
    let item = toy.get(&id).await.unwrap();
    assert!(!item.contains_key("title"));
    assert_eq!(item["amount"], n(2));
}

#[tokio::test]
async fn an_update_reads_the_item_as_it_was_before() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id).item("best", n(5)).send().await.unwrap();
    let update = toy.update(&id, "SET previous = best, best = :new");
    update
        .expression_attribute_values(":new", n(7))
        .send()
        .await
        .unwrap();
    let item = toy.get(&id).await.unwrap();
    assert_eq!((&item["previous"], &item["best"]), (&n(5), &n(7)));
}

#[tokio::test]
async fn a_set_grows_and_shrinks_and_is_gone_when_empty() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let tags = |names: &[&str]| AttributeValue::Ss(names.iter().map(ToString::to_string).collect());
    let change = |expression: &str, names: &[&str]| {
        toy.update(&id, expression)
            .expression_attribute_values(":tags", tags(names))
            .send()
    };
    change("ADD tags :tags", &["red", "blue"]).await.unwrap();
    change("ADD tags :tags", &["red", "green"]).await.unwrap();
    let mut held = toy.get(&id).await.unwrap()["tags"].as_ss().unwrap().clone();
    held.sort();
    assert_eq!(held, ["blue", "green", "red"]);
    change("DELETE tags :tags", &["red", "blue", "green"])
        .await
        .unwrap();
    assert!(!toy.get(&id).await.unwrap().contains_key("tags"));
}

#[tokio::test]
async fn a_condition_sees_into_maps_and_sets() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let place = AttributeValue::M([("city".to_owned(), s("Oslo"))].into());
    let tags = AttributeValue::Ss(vec!["red".into()]);
    toy.put(&id)
        .item("place", place)
        .item("tags", tags)
        .send()
        .await
        .unwrap();
    let touch = |condition: &str, value: &str| {
        toy.update(&id, "SET touched = :value")
            .condition_expression(condition)
            .expression_attribute_values(":value", s(value))
            .send()
    };
    touch("place.city = :value", "Oslo").await.unwrap();
    old(touch("place.city = :value", "Rome").await);
    touch("contains(tags, :value)", "red").await.unwrap();
    old(touch("contains(tags, :value)", "blue").await);
}

#[tokio::test]
async fn a_number_keeps_38_digits() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let digits = "12345678901234567890123456789012345678";
    toy.put(&id).item("amount", n(digits)).send().await.unwrap();
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(digits));
}

// What is refused.

#[tokio::test]
async fn a_reserved_word_needs_a_placeholder() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let bare = toy
        .update(&id, "SET status = :x")
        .expression_attribute_values(":x", s("open"));
    assert_eq!(code(bare.send().await), "ValidationException");
    let named = toy
        .update(&id, "SET #status = :x")
        .expression_attribute_values(":x", s("open"));
    named
        .expression_attribute_names("#status", "status")
        .send()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_placeholder_that_is_not_used_is_refused() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let update = toy
        .update(&id, "SET amount = :x")
        .expression_attribute_values(":x", n(1))
        .expression_attribute_values(":unused", n(1));
    assert_eq!(code(update.send().await), "ValidationException");
}

#[tokio::test]
async fn an_empty_key_is_refused() {
    let toy = tables().await;
    assert_eq!(code(toy.put("").send().await), "ValidationException");
}

#[tokio::test]
async fn a_key_cannot_be_updated() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let update = toy
        .update(&id, "SET thing_id = :x")
        .expression_attribute_values(":x", s("other"));
    assert_eq!(code(update.send().await), "ValidationException");
}

#[tokio::test]
async fn an_item_over_400_kb_is_refused() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let body = |bytes: usize| toy.put(&id).item("body", s("x".repeat(bytes))).send();
    assert_eq!(code(body(400 * 1024).await), "ValidationException");
    assert_eq!(toy.get(&id).await, None);
    body(399 * 1024).await.unwrap();
}

#[tokio::test]
async fn an_update_that_grows_an_item_over_400_kb_is_refused() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    toy.put(&id)
        .item("body", s("x".repeat(300 * 1024)))
        .send()
        .await
        .unwrap();
    let grow = toy.update(&id, "SET more = :more");
    let grow = grow.expression_attribute_values(":more", s("x".repeat(200 * 1024)));
    assert_eq!(code(grow.send().await), "ValidationException");
    assert!(!toy.get(&id).await.unwrap().contains_key("more"));
}

// Transactions.

#[tokio::test]
async fn cancellation_reasons_come_in_the_order_of_the_items() {
    let toy = tables().await;
    let [free, taken, check, also] = ["free", "taken", "check", "also"].map(|kind| toy.fresh(kind));
    toy.put(&taken).item("amount", n(7)).send().await.unwrap();
    let absent = "attribute_not_exists(thing_id)";
    let check = ConditionCheck::builder()
        .table_name(&toy.things)
        .key("thing_id", s(&check))
        .condition_expression("attribute_exists(thing_id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .unwrap();
    let error = toy
        .db
        .transact_write_items()
        .transact_items(put(toy.transact_put(&free).condition_expression(absent)))
        .transact_items(put(toy.transact_put(&taken).condition_expression(absent)))
        .transact_items(TransactWriteItem::builder().condition_check(check).build())
        .transact_items(put(toy.transact_put(&also)))
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else {
        panic!("expected a cancellation, got {error:?}");
    };
    let reasons = cancelled.cancellation_reasons();
    let codes: Vec<_> = reasons
        .iter()
        .map(|reason| reason.code().unwrap_or("None"))
        .collect();
    assert_eq!(
        codes,
        [
            "None",
            "ConditionalCheckFailed",
            "ConditionalCheckFailed",
            "None"
        ]
    );
    assert_eq!(reasons[1].item().unwrap()["amount"], n(7));
    assert!(reasons[2].item().is_none_or(|item| item.is_empty()));
    for id in [free, also] {
        assert_eq!(
            toy.get(&id).await,
            None,
            "a cancelled transaction writes nothing"
        );
    }
}

#[tokio::test]
async fn the_same_request_token_writes_once() {
    let toy = tables().await;
    let (id, token) = (toy.fresh("thing"), toy.fresh("token"));
    for _ in 0..3 {
        let add = toy
            .db
            .transact_write_items()
            .transact_items(toy.transact_add(&id, 1));
        add.client_request_token(&token).send().await.unwrap();
    }
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(1));
}

#[tokio::test]
async fn the_same_token_with_another_body_is_refused() {
    let toy = tables().await;
    let (id, token) = (toy.fresh("thing"), toy.fresh("token"));
    let add = |amount: u32| {
        let add = toy
            .db
            .transact_write_items()
            .transact_items(toy.transact_add(&id, amount));
        add.client_request_token(&token).send()
    };
    add(1).await.unwrap();
    assert_eq!(code(add(2).await), "IdempotentParameterMismatchException");
    assert_eq!(toy.get(&id).await.unwrap()["amount"], n(1));
}

#[tokio::test]
async fn a_transaction_of_more_than_100_items_is_refused() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let write = |count: usize| {
        let puts = (0..count).map(|i| put(toy.transact_put(&format!("{id}-{i}"))));
        toy.db
            .transact_write_items()
            .set_transact_items(Some(puts.collect()))
            .send()
    };
    assert_eq!(code(write(101).await), "ValidationException");
    assert_eq!(toy.get(&format!("{id}-0")).await, None);
    write(100).await.unwrap();
    assert!(toy.get(&format!("{id}-99")).await.is_some());
}

#[tokio::test]
async fn a_transaction_that_names_an_item_twice_is_refused() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let twice = toy
        .db
        .transact_write_items()
        .transact_items(put(toy.transact_put(&id)))
        .transact_items(toy.transact_add(&id, 1));
    assert_eq!(code(twice.send().await), "ValidationException");
}

#[tokio::test]
async fn a_transaction_spans_tables_and_deletes() {
    let toy = tables().await;
    let (id, list) = (toy.fresh("thing"), toy.fresh("list"));
    toy.put(&id).send().await.unwrap();
    let delete = Delete::builder()
        .table_name(&toy.things)
        .key("thing_id", s(&id))
        .condition_expression("attribute_exists(thing_id)")
        .build()
        .unwrap();
    let entry = Put::builder()
        .table_name(&toy.lists)
        .item("list_id", s(&list))
        .item("position", n(1))
        .item("title", s("moved"))
        .build()
        .unwrap();
    toy.db
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().delete(delete).build())
        .transact_items(TransactWriteItem::builder().put(entry).build())
        .send()
        .await
        .unwrap();
    assert_eq!(toy.get(&id).await, None);
    assert_eq!(toy.list(&list, "").send().await.unwrap().count(), 1);
}

#[tokio::test]
async fn a_transactional_read_answers_in_the_order_asked() {
    let toy = tables().await;
    let [a, missing, b] = ["thing", "missing", "thing"].map(|kind| toy.fresh(kind));
    for id in [&a, &b] {
        toy.put(id).send().await.unwrap();
    }
    let gets = [&b, &missing, &a].map(|id| {
        let get = Get::builder()
            .table_name(&toy.things)
            .key("thing_id", s(id));
        TransactGetItem::builder().get(get.build().unwrap()).build()
    });
    let read = toy
        .db
        .transact_get_items()
        .set_transact_items(Some(gets.into()));
    let answers = read.send().await.unwrap().responses.unwrap();
    assert_eq!(answers[0].item().unwrap()["thing_id"], s(&b));
    assert!(answers[1].item().is_none_or(|item| item.is_empty()));
    assert_eq!(answers[2].item().unwrap()["thing_id"], s(&a));
}

// Batches.

#[tokio::test]
async fn a_batch_write_of_25_leaves_nothing_unprocessed_and_26_are_refused() {
    let toy = tables().await;
    let list = toy.fresh("list");
    let batch = |count: usize| {
        let puts = (0..count).map(|i| {
            let put = PutRequest::builder()
                .item("list_id", s(&list))
                .item("position", n(i));
            WriteRequest::builder()
                .put_request(put.build().unwrap())
                .build()
        });
        toy.db
            .batch_write_item()
            .request_items(&toy.lists, puts.collect())
            .send()
    };
    assert_eq!(code(batch(26).await), "ValidationException");
    // AWS may leave some when it is busy, and always says so in a map that is empty when all is done.
    let mut unprocessed = batch(25).await.unwrap().unprocessed_items.unwrap();
    while !unprocessed.is_empty() {
        let again = toy
            .db
            .batch_write_item()
            .set_request_items(Some(unprocessed));
        unprocessed = again.send().await.unwrap().unprocessed_items.unwrap();
    }
    assert_eq!(toy.list(&list, "").send().await.unwrap().count(), 25);
}

#[tokio::test]
async fn a_batch_write_puts_and_deletes_but_never_one_key_twice() {
    let toy = tables().await;
    let (gone, new) = (toy.fresh("thing"), toy.fresh("thing"));
    toy.put(&gone).send().await.unwrap();
    let delete = |id: &str| {
        let delete = DeleteRequest::builder()
            .key("thing_id", s(id))
            .build()
            .unwrap();
        WriteRequest::builder().delete_request(delete).build()
    };
    let create = |id: &str| {
        let put = PutRequest::builder()
            .item("thing_id", s(id))
            .build()
            .unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    let batch = |writes: Vec<WriteRequest>| {
        toy.db
            .batch_write_item()
            .request_items(&toy.things, writes)
            .send()
    };
    assert_eq!(
        code(batch(vec![create(&new), delete(&new)]).await),
        "ValidationException"
    );
    let done = batch(vec![delete(&gone), create(&new)]).await.unwrap();
    assert!(done.unprocessed_items.unwrap().is_empty());
    assert_eq!(toy.get(&gone).await, None);
    assert!(toy.get(&new).await.is_some());
}

#[tokio::test]
async fn a_batch_get_finds_what_is_there_and_takes_no_more_than_100_keys() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    for i in [3, 50] {
        toy.put(&format!("{id}-{i}")).send().await.unwrap();
    }
    let batch = |count: usize| {
        let keys =
            (0..count).map(|i| Item::from([("thing_id".to_owned(), s(format!("{id}-{i}")))]));
        let keys = KeysAndAttributes::builder()
            .set_keys(Some(keys.collect()))
            .consistent_read(true);
        toy.db
            .batch_get_item()
            .request_items(&toy.things, keys.build().unwrap())
            .send()
    };
    assert_eq!(code(batch(101).await), "ValidationException");
    let answer = batch(100).await.unwrap();
    assert!(answer.unprocessed_keys.unwrap().is_empty());
    assert_eq!(answer.responses.unwrap()[&toy.things].len(), 2);
}

// Queries and indexes.

#[tokio::test]
async fn a_strong_get_after_a_put_sees_it() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    for amount in 0..20 {
        toy.put(&id).item("amount", n(amount)).send().await.unwrap();
        assert_eq!(toy.get(&id).await.unwrap()["amount"], n(amount));
    }
}

#[tokio::test]
async fn numeric_sort_keys_order_numerically_both_ways() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for position in [10, 9, -1, 100, 2] {
        toy.entry(&list, position, "x").await;
    }
    let up = toy.list(&list, "").send().await.unwrap();
    assert_eq!(positions(up.items()), [-1, 2, 9, 10, 100]);
    let down = toy
        .list(&list, "")
        .scan_index_forward(false)
        .limit(2)
        .send()
        .await
        .unwrap();
    assert_eq!(positions(down.items()), [100, 10]);
}

#[tokio::test]
async fn between_takes_both_ends_and_less_than_does_not() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for position in 1..=5 {
        toy.entry(&list, position, "x").await;
    }
    let between = toy
        .list(&list, " AND #at BETWEEN :low AND :high")
        .expression_attribute_names("#at", "position")
        .expression_attribute_values(":low", n(2))
        .expression_attribute_values(":high", n(4));
    assert_eq!(positions(between.send().await.unwrap().items()), [2, 3, 4]);
    let below = toy
        .list(&list, " AND #at < :high")
        .expression_attribute_names("#at", "position")
        .expression_attribute_values(":high", n(3));
    assert_eq!(positions(below.send().await.unwrap().items()), [1, 2]);
}

#[tokio::test]
async fn a_local_index_can_be_read_consistently() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for (position, title) in [(1, "pear"), (2, "apple"), (3, "peach"), (4, "quince")] {
        toy.entry(&list, position, title).await;
        let found = toy
            .list(&list, " AND title = :title")
            .index_name("by-title")
            .expression_attribute_values(":title", s(title));
        assert_eq!(positions(found.send().await.unwrap().items()), [position]);
    }
    let ordered = toy
        .list(&list, "")
        .index_name("by-title")
        .send()
        .await
        .unwrap();
    assert_eq!(positions(ordered.items()), [2, 3, 1, 4]);
}

#[tokio::test]
async fn begins_with_finds_a_prefix_of_the_sort_key() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for (position, title) in [(1, "a#1"), (2, "a#2"), (3, "ab#1"), (4, "b#1")] {
        toy.entry(&list, position, title).await;
    }
    let found = toy
        .list(&list, " AND begins_with(title, :prefix)")
        .index_name("by-title")
        .expression_attribute_values(":prefix", s("a#"));
    assert_eq!(positions(found.send().await.unwrap().items()), [1, 2]);
}

#[tokio::test]
async fn a_filter_is_applied_after_the_limit() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for position in 1..=4 {
        toy.entry(&list, position, if position > 2 { "match" } else { "x" })
            .await;
    }
    let page = toy
        .list(&list, "")
        .filter_expression("title = :title")
        .expression_attribute_values(":title", s("match"))
        .limit(2)
        .send()
        .await
        .unwrap();
    assert_eq!((page.count(), page.scanned_count()), (0, 2));
    assert!(
        page.last_evaluated_key().is_some(),
        "an empty page is not the end"
    );
}

#[tokio::test]
async fn a_page_ends_at_one_megabyte() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for position in 0..4 {
        let put = toy.db.put_item().table_name(&toy.lists);
        let put = put.item("list_id", s(&list)).item("position", n(position));
        put.item("body", s("x".repeat(390_000)))
            .send()
            .await
            .unwrap();
    }
    let first = toy.list(&list, "").send().await.unwrap();
    assert!(first.count() < 4);
    let next = toy
        .list(&list, "")
        .set_exclusive_start_key(first.last_evaluated_key.clone());
    let second = next.send().await.unwrap();
    assert!(second.last_evaluated_key().is_none());
    let all = [positions(first.items()), positions(second.items())].concat();
    assert_eq!(all, [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_query_on_an_index_pages_with_limit_and_last_evaluated_key() {
    let toy = tables().await;
    let group = toy.fresh("group");
    let things: Vec<_> = (0..5).map(|_| toy.fresh("thing")).collect();
    for (i, id) in things.iter().enumerate() {
        // Two share a rank: the pages must not lose one between them.
        let put = toy
            .put(id)
            .item("group_id", s(&group))
            .item("rank", n(i.min(3)));
        put.send().await.unwrap();
    }
    eventually("all five in the index", async || {
        let all = toy.group(&group).send().await.unwrap();
        (all.count() == 5).then_some(())
    })
    .await;
    let mut pages = Vec::new();
    let mut start = None;
    loop {
        let page = toy.group(&group).limit(2).set_exclusive_start_key(start);
        let page = page.send().await.unwrap();
        pages.push(
            ids(page.items())
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        );
        start = page.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    assert!(pages.iter().all(|page| page.len() <= 2), "{pages:?}");
    let mut seen = pages.concat();
    assert_eq!(seen[..3], things[..3]);
    seen.sort();
    assert_eq!(seen, things);
}

#[tokio::test]
async fn a_sparse_index_holds_only_items_with_its_key() {
    let toy = tables().await;
    let group = toy.fresh("group");
    let [both, only_group, neither] = ["both", "only-group", "neither"].map(|kind| toy.fresh(kind));
    toy.put(&neither).send().await.unwrap();
    toy.put(&only_group)
        .item("group_id", s(&group))
        .send()
        .await
        .unwrap();
    toy.put(&both)
        .item("group_id", s(&group))
        .item("rank", n(1))
        .send()
        .await
        .unwrap();
    let found = async || toy.group(&group).send().await.unwrap().items.unwrap();
    eventually("the complete one in the index", async || {
        (ids(&found().await) == [&both]).then_some(())
    })
    .await;
    toy.update(&both, "REMOVE group_id").send().await.unwrap();
    eventually("out of the index", async || {
        found().await.is_empty().then_some(())
    })
    .await;
    assert!(toy.get(&both).await.is_some());
}

#[tokio::test]
async fn an_index_carries_only_what_it_projects() {
    let toy = tables().await;
    let (id, group) = (toy.fresh("thing"), toy.fresh("group"));
    let put = toy.put(&id).item("group_id", s(&group)).item("rank", n(1));
    put.item("title", s("carried"))
        .item("body", s("not"))
        .send()
        .await
        .unwrap();
    let item = eventually("it in the index", async || {
        toy.group(&group).send().await.unwrap().items.unwrap().pop()
    })
    .await;
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["group_id", "rank", "thing_id", "title"]);
}

#[tokio::test]
async fn a_global_index_cannot_be_read_consistently() {
    let toy = tables().await;
    let query = toy.group(&toy.fresh("group")).consistent_read(true);
    assert_eq!(code(query.send().await), "ValidationException");
}

// What calls cost.

/// Units in all, of the table alone, and of its indexes.
fn units(consumed: Option<ConsumedCapacity>) -> (f64, f64, f64) {
    let consumed = consumed.expect("the request asked for it");
    let table = consumed
        .table()
        .and_then(|table| table.capacity_units())
        .unwrap_or_default();
    let indexes = [
        consumed.global_secondary_indexes(),
        consumed.local_secondary_indexes(),
    ];
    let indexes = indexes
        .into_iter()
        .flatten()
        .flat_map(|indexes| indexes.values());
    let indexes = indexes.filter_map(|index| index.capacity_units()).sum();
    (consumed.capacity_units().unwrap(), table, indexes)
}

#[tokio::test]
async fn a_strong_read_costs_one_unit_and_an_eventual_one_half() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let read = async |strong: bool| {
        let get = toy
            .db
            .get_item()
            .table_name(&toy.things)
            .key("thing_id", s(&id));
        let get = get.consistent_read(strong);
        let get = get.return_consumed_capacity(ReturnConsumedCapacity::Indexes);
        units(get.send().await.unwrap().consumed_capacity).0
    };
    // Looking for what is not there is a read too.
    assert_eq!((read(true).await, read(false).await), (1.0, 0.5));
    toy.put(&id).send().await.unwrap();
    assert_eq!((read(true).await, read(false).await), (1.0, 0.5));
    // Each 4 KB begun.
    toy.put(&id)
        .item("body", s("x".repeat(8_000)))
        .send()
        .await
        .unwrap();
    assert_eq!((read(true).await, read(false).await), (2.0, 1.0));
}

#[tokio::test]
async fn a_write_costs_one_unit_for_each_kilobyte_begun() {
    let toy = tables().await;
    let id = toy.fresh("thing");
    let write = async |bytes: usize| {
        let put = toy.put(&id).item("body", s("x".repeat(bytes)));
        units(put.send().await.unwrap().consumed_capacity).0
    };
    assert_eq!(write(10).await, 1.0);
    assert_eq!(write(1_500).await, 2.0);
    // The larger of before and after.
    assert_eq!(write(10).await, 2.0);
    let delete = toy
        .db
        .delete_item()
        .table_name(&toy.things)
        .key("thing_id", s(&id));
    let delete = delete.return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    assert_eq!(units(delete.send().await.unwrap().consumed_capacity).0, 1.0);
}

#[tokio::test]
async fn a_query_costs_the_sum_of_what_it_read_not_a_unit_for_each_item() {
    let toy = tables().await;
    let list = toy.fresh("list");
    for position in 0..20 {
        toy.entry(&list, position, &"x".repeat(300)).await;
    }
    let query = toy
        .list(&list, "")
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    // Twenty items of about 350 bytes are 7 KB: two units of 4 KB.
    assert_eq!(units(query.send().await.unwrap().consumed_capacity).0, 2.0);
}

#[tokio::test]
async fn a_transaction_costs_twice() {
    let toy = tables().await;
    let (a, b) = (toy.fresh("thing"), toy.fresh("thing"));
    let write = toy
        .db
        .transact_write_items()
        .transact_items(put(toy.transact_put(&a)))
        .transact_items(put(toy.transact_put(&b)))
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    let consumed = write.send().await.unwrap().consumed_capacity.unwrap();
    let total: f64 = consumed
        .into_iter()
        .map(|of_table| units(Some(of_table)).0)
        .sum();
    assert_eq!(total, 4.0);

    let gets = [&a, &b].map(|id| {
        let get = Get::builder()
            .table_name(&toy.things)
            .key("thing_id", s(id));
        TransactGetItem::builder().get(get.build().unwrap()).build()
    });
    let read = toy
        .db
        .transact_get_items()
        .set_transact_items(Some(gets.into()));
    let read = read.return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    let consumed = read.send().await.unwrap().consumed_capacity.unwrap();
    let total: f64 = consumed
        .into_iter()
        .map(|of_table| units(Some(of_table)).0)
        .sum();
    assert_eq!(total, 4.0);
}

#[tokio::test]
async fn an_item_outside_a_sparse_index_costs_nothing_there() {
    let toy = tables().await;
    let put = toy
        .put(&toy.fresh("thing"))
        .item("title", s("alone"))
        .send()
        .await
        .unwrap();
    assert_eq!(units(put.consumed_capacity), (1.0, 1.0, 0.0));
}

#[tokio::test]
async fn a_changed_index_key_costs_a_delete_and_an_insert() {
    let toy = tables().await;
    let (id, group) = (toy.fresh("thing"), toy.fresh("group"));
    let put = toy.put(&id).item("group_id", s(&group)).item("rank", n(1));
    let inserted = put.item("title", s("a")).send().await.unwrap();
    assert_eq!(units(inserted.consumed_capacity), (2.0, 1.0, 1.0));
    let update = async |expression: &str, value: AttributeValue| {
        let update = toy
            .update(&id, expression)
            .expression_attribute_values(":x", value);
        let names = expression
            .contains("#rank")
            .then(|| [("#rank".into(), "rank".into())].into());
        let update = update.set_expression_attribute_names(names);
        units(update.send().await.unwrap().consumed_capacity)
    };
    assert_eq!(
        update("SET body = :x", s("x")).await,
        (1.0, 1.0, 0.0),
        "not projected"
    );
    assert_eq!(
        update("SET title = :x", s("b")).await,
        (2.0, 1.0, 1.0),
        "projected"
    );
    assert_eq!(
        update("SET #rank = :x", n(2)).await,
        (3.0, 1.0, 2.0),
        "the key itself"
    );
    let removed = toy.update(&id, "REMOVE group_id").send().await.unwrap();
    assert_eq!(
        units(removed.consumed_capacity),
        (2.0, 1.0, 1.0),
        "out of the index"
    );
}

#[tokio::test]
async fn a_query_on_an_index_is_charged_to_the_index() {
    let toy = tables().await;
    let query = toy.group(&toy.fresh("group"));
    let query = query.return_consumed_capacity(ReturnConsumedCapacity::Indexes);
    assert_eq!(
        units(query.send().await.unwrap().consumed_capacity),
        (0.5, 0.0, 0.5)
    );
}

// Streams and TTL.

/// The records of one key, in order, when there are `count` of them.
async fn records(toy: &Toy, id: &str, count: usize) -> Vec<Record> {
    let table = toy
        .db
        .describe_table()
        .table_name(&toy.changes)
        .send()
        .await
        .unwrap();
    let arn = table.table.unwrap().latest_stream_arn.unwrap();
    let streams = toy.cloud.streams();
    eventually("all records in the stream", async || {
        let stream = streams
            .describe_stream()
            .stream_arn(&arn)
            .send()
            .await
            .unwrap();
        let mut found = Vec::new();
        for shard in stream.stream_description.unwrap().shards() {
            let iterator = streams
                .get_shard_iterator()
                .stream_arn(&arn)
                .shard_id(shard.shard_id().unwrap())
                .shard_iterator_type(ShardIteratorType::TrimHorizon);
            let mut iterator = iterator.send().await.unwrap().shard_iterator;
            // An open shard has no end: enough when a few pages in a row are empty.
            let mut empty = 0;
            while let Some(at) = iterator.take().filter(|_| empty < 3) {
                let page = streams
                    .get_records()
                    .shard_iterator(at)
                    .send()
                    .await
                    .unwrap();
                empty = if page.records().is_empty() {
                    empty + 1
                } else {
                    0
                };
                iterator = page.next_shard_iterator;
                found.extend(page.records.unwrap());
            }
        }
        found.retain(|record| {
            let keys = record.dynamodb().unwrap().keys().unwrap();
            keys["change_id"].as_s().is_ok_and(|key| key == id)
        });
        (found.len() >= count).then_some(found)
    })
    .await
}

#[tokio::test]
async fn a_stream_shows_both_images_in_order() {
    let toy = tables().await;
    let id = toy.fresh("change");
    for amount in [1, 2] {
        let put = toy.db.put_item().table_name(&toy.changes);
        put.item("change_id", s(&id))
            .item("amount", n(amount))
            .send()
            .await
            .unwrap();
    }
    let delete = toy
        .db
        .delete_item()
        .table_name(&toy.changes)
        .key("change_id", s(&id));
    delete.send().await.unwrap();

    let records = records(&toy, &id, 3).await;
    let amount = |image: Option<&std::collections::HashMap<String, _>>| {
        image.filter(|image| !image.is_empty()).map(|image| {
            let amount: &aws_sdk_dynamodbstreams::types::AttributeValue = &image["amount"];
            amount.as_n().unwrap().clone()
        })
    };
    let seen: Vec<_> = records
        .iter()
        .map(|record| {
            let change = record.dynamodb().unwrap();
            let images = (amount(change.old_image()), amount(change.new_image()));
            (record.event_name().unwrap().clone(), images)
        })
        .collect();
    let text = |amount: &str| Some(amount.to_owned());
    assert_eq!(
        seen,
        [
            (OperationType::Insert, (None, text("1"))),
            (OperationType::Modify, (text("1"), text("2"))),
            (OperationType::Remove, (text("2"), None)),
        ]
    );
    let numbers: Vec<u128> = records
        .iter()
        .map(|record| {
            record
                .dynamodb()
                .unwrap()
                .sequence_number()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[tokio::test]
async fn a_failed_condition_leaves_no_record_in_the_stream() {
    let toy = tables().await;
    let id = toy.fresh("change");
    let create = |amount: u32| {
        let put = toy
            .db
            .put_item()
            .table_name(&toy.changes)
            .item("change_id", s(&id));
        let put = put.item("amount", n(amount));
        put.condition_expression("attribute_not_exists(change_id)")
            .send()
    };
    create(1).await.unwrap();
    create(2).await.unwrap_err();
    let delete = toy
        .db
        .delete_item()
        .table_name(&toy.changes)
        .key("change_id", s(&id));
    delete.send().await.unwrap();
    let names: Vec<_> = records(&toy, &id, 2).await;
    let names: Vec<_> = names
        .iter()
        .map(|record| record.event_name().unwrap())
        .collect();
    assert_eq!(names, [&OperationType::Insert, &OperationType::Remove]);
}

#[tokio::test]
async fn a_transaction_is_in_the_stream_whole() {
    let toy = tables().await;
    let (a, b) = (toy.fresh("change"), toy.fresh("change"));
    let puts = [&a, &b].map(|id| {
        let put = Put::builder()
            .table_name(&toy.changes)
            .item("change_id", s(id));
        TransactWriteItem::builder()
            .put(put.build().unwrap())
            .build()
    });
    toy.db
        .transact_write_items()
        .set_transact_items(Some(puts.into()))
        .send()
        .await
        .unwrap();
    for id in [a, b] {
        let records = records(&toy, &id, 1).await;
        assert_eq!(records[0].event_name(), Some(&OperationType::Insert));
    }
}

#[tokio::test]
async fn ttl_settings_are_kept() {
    let toy = tables().await;
    let described = toy
        .db
        .describe_time_to_live()
        .table_name(&toy.changes)
        .send()
        .await
        .unwrap();
    let ttl = described.time_to_live_description.unwrap();
    assert_eq!(ttl.attribute_name(), Some("expires_at"));
    let status = ttl.time_to_live_status().unwrap();
    assert!(
        matches!(
            status,
            TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling
        ),
        "{status:?}"
    );
    let without = toy
        .db
        .describe_time_to_live()
        .table_name(&toy.things)
        .send()
        .await
        .unwrap();
    let without = without.time_to_live_description.unwrap();
    assert_eq!(
        without.time_to_live_status(),
        Some(&TimeToLiveStatus::Disabled)
    );
}
