//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod venue;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use chaos::Interleave;
use cloud::{Guarded, Transaction};
use ticket_holds::domain::{TicketStatus, block_id};
use ticket_holds::{BoxOffice, Realization, Reserved};
use venue::{Told, Venue, forget, held, late_reserver, open, seat};

/// The documents' hold: "changing ticket AVAILABLE -> HELD". By `late`'s clock Alice's hold is over.
async fn naive_hold(venue: &Venue, office: &BoxOffice, user: &str) -> bool {
    let cloud = office.cloud();
    let update = Update::builder()
        .table_name(cloud.names().table("tickets"))
        .key("block_id", S(block_id(&venue.event_id, "A")))
        .key("seat", S(seat(1).key()))
        .update_expression("SET #status = :held, booking_id = :booking, hold_expires_at = :until")
        .condition_expression("#status = :available")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":available", S("AVAILABLE".into()))
        .expression_attribute_values(":held", S("HELD".into()))
        .expression_attribute_values(":booking", S(venue.id(user)))
        .expression_attribute_values(":until", N((cloud.now() + 600_000).to_string()));
    let put = Put::builder()
        .table_name(cloud.names().table("bookings"))
        .item("booking_id", S(venue.id(user)))
        .item("status", S("IN_PROGRESS".into()));
    let items = vec![
        TransactWriteItem::builder()
            .update(update.build().unwrap())
            .build(),
        TransactWriteItem::builder()
            .put(put.build().unwrap())
            .build(),
    ];
    let held = cloud.transact(&["ticket", "booking"], items).await.unwrap();
    matches!(held, Transaction::Committed(_))
}

#[tokio::test]
async fn row_10_a_naive_hold_is_blocked_by_one_that_is_over() {
    let venue = held(Realization::Pure).await;
    // Alice is gone, her ten minutes are over, and no sweeper has come yet.
    assert!(!naive_hold(&venue, &venue.late, "bob").await);
    assert_eq!(
        venue.ticket(1).await.status_at(venue.late.cloud().now()),
        TicketStatus::Available,
        "the seat is blocked, and nobody holds it"
    );
    // The same moment, with the guard that looks at the time.
    let told = venue.late.reserve(&venue.new_booking("bob", &[1])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
}

/// The documents' sweeper: find expired HELD items, "conditionally update HELD -> AVAILABLE".
async fn naive_sweep(venue: &Venue) {
    let cloud = venue.late.cloud();
    let key = [
        ("block_id", S(block_id(&venue.event_id, "A"))),
        ("seat", S(seat(1).key())),
    ];
    let ticket = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("tickets"))
        .key(key[0].0, key[0].1.clone())
        .key(key[1].0, key[1].1.clone())
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item
        .unwrap();
    let until: i64 = ticket["hold_expires_at"].as_n().unwrap().parse().unwrap();
    if ticket["status"] != S("HELD".into()) || until > cloud.now() {
        return;
    }
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("tickets"))
        .key(key[0].0, key[0].1.clone())
        .key(key[1].0, key[1].1.clone())
        .update_expression("SET #status = :available REMOVE booking_id, hold_expires_at")
        .condition_expression("#status = :held")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":held", S("HELD".into()))
        .expression_attribute_values(":available", S("AVAILABLE".into()))
        .send()
        .await
        .guarded()
        .unwrap();
}

/// Bob takes the expired seat with the code that ships; the naive sweeper comes by.
fn naive_sweeping() -> Interleave<Venue, Told> {
    let actors = late_reserver(Interleave::of(|| held(Realization::Pure)), "bob", &[1]);
    actors
        .actor("sweeper", |venue| async move {
            naive_sweep(&venue).await;
            Told::Nothing
        })
        .check(|venue, _| async move {
            let ticket = venue.ticket(1).await;
            if ticket.booking_id == Some(venue.id("bob")) {
                return Ok("bob holds it".into());
            }
            // What that means: the next one gets it too.
            let new = venue.new_booking("carol", &[1]);
            let carol = venue.late.reserve(&new).await.unwrap();
            assert!(matches!(carol, Reserved::Held(_)));
            Err("Bob's live hold was released, and Carol has his seat".into())
        })
}

#[tokio::test]
async fn row_11_a_naive_sweeper_releases_a_live_hold() {
    // The sweeper reads Alice's expired hold; Bob takes the seat; the sweeper writes.
    let order = "sweeper bob bob sweeper".parse().unwrap();
    let broken = naive_sweeping().replay(&order).await.unwrap_err();
    let why = "Bob's live hold was released, and Carol has his seat";
    assert_eq!(broken.why, why);
    // Nobody has to think of that order: the explorer finds it.
    assert_eq!(naive_sweeping().run().await.unwrap_err().why, why);
}

/// The documents' hold with Redis: SET NX EX 600, then PutItem of the booking.
async fn naive_lease(venue: &Venue, user: &str) -> bool {
    let cloud = venue.office.cloud();
    let mut redis = cloud.redis().await.unwrap();
    let block = block_id(&venue.event_id, "A");
    let key = venue.office.lease_key(&block, &seat(1).key());
    let mut set = redis::cmd("SET");
    set.arg(key)
        .arg(venue.id(user))
        .arg("NX")
        .arg("EX")
        .arg(600);
    let leased: Option<String> = set.query_async(&mut redis).await.unwrap();
    if leased.is_none() {
        return false;
    }
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("bookings"))
        .item("booking_id", S(venue.id(user)))
        .item("status", S("IN_PROGRESS".into()))
        .send()
        .await
        .unwrap();
    true
}

/// The documents' confirmation with Redis: "confirms booking and sets ticket SOLD after revalidating
/// booking state". The booking is its own, and is as it should be.
async fn naive_confirm(venue: &Venue, user: &str) -> bool {
    let cloud = venue.office.cloud();
    let booking = Update::builder()
        .table_name(cloud.names().table("bookings"))
        .key("booking_id", S(venue.id(user)))
        .update_expression("SET #status = :confirmed")
        .condition_expression("#status = :in_progress")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":in_progress", S("IN_PROGRESS".into()))
        .expression_attribute_values(":confirmed", S("CONFIRMED".into()));
    let ticket = Update::builder()
        .table_name(cloud.names().table("tickets"))
        .key("block_id", S(block_id(&venue.event_id, "A")))
        .key("seat", S(seat(1).key()))
        .update_expression("SET #status = :sold, booking_id = :booking")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":sold", S("SOLD".into()))
        .expression_attribute_values(":booking", S(venue.id(user)));
    let items = vec![
        TransactWriteItem::builder()
            .update(booking.build().unwrap())
            .build(),
        TransactWriteItem::builder()
            .update(ticket.build().unwrap())
            .build(),
    ];
    let sold = cloud.transact(&["booking", "ticket"], items).await.unwrap();
    matches!(sold, Transaction::Committed(_))
}

fn naive_leasing() -> Interleave<Venue, bool> {
    let buys = |user: &'static str| {
        move |venue: std::sync::Arc<Venue>| async move {
            naive_lease(&venue, user).await && naive_confirm(&venue, user).await
        }
    };
    Interleave::of(|| open(Realization::Leased))
        .actor("alice", buys("alice"))
        .actor("bob", buys("bob"))
        // A failover, a FLUSHALL, or ten minutes of payment.
        .actor("redis", |venue| async move {
            forget(&venue, venue.office.cloud()).await;
            false
        })
        .check(|_, told| async move {
            let owners: Vec<_> = told
                .iter()
                .filter(|(_, sold)| *sold)
                .map(|(who, _)| *who)
                .collect();
            match owners.as_slice() {
                [one] => Ok(format!("{one} owns it")),
                _ => Err(format!("it was sold to {}", owners.join(" and to "))),
            }
        })
}

#[tokio::test]
async fn row_12_with_a_naive_lease_there_are_two_holders() {
    // Alice leases; Redis forgets; Bob leases and buys; Alice buys.
    let order = "alice alice redis bob bob bob alice".parse().unwrap();
    let broken = naive_leasing().replay(&order).await.unwrap_err();
    assert_eq!(broken.why, "it was sold to alice and to bob");
    let found = naive_leasing().run().await.unwrap_err();
    assert_eq!(found.why, broken.why);
}

/// The documents let a lease be "deleted early": with a plain DEL, whoever lost it deletes that of
/// the next.
#[tokio::test]
async fn row_12_a_naive_release_deletes_the_next_holders_lease() {
    let venue = open(Realization::Leased).await;
    assert!(naive_lease(&venue, "alice").await);
    venue.redis_forgets().await;
    assert!(naive_lease(&venue, "bob").await);
    // Alice is done and deletes what she thinks is hers.
    forget(&venue, venue.office.cloud()).await;
    assert!(
        naive_lease(&venue, "carol").await,
        "Bob's seat is leased to Carol"
    );
}
