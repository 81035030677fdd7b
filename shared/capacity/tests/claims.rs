//! The arithmetic itself, one sentence per test.
#![allow(clippy::unwrap_used)]

use capacity::price::sqs_requests;
use capacity::{
    FreeTier, GB, Index, KB, Money, OnDemand, Prices, Projection, Provisioned, Read, Units,
    batch_get_units, item_size, limits, query_units, read_units, refused_write_units,
    replayed_transaction_units, storage_bytes, transact_write_units, write_units,
};
use serde_json::{Value, json};

// Reads

#[test]
fn a_read_costs_half_one_or_two_units_per_4_kb() {
    for (size, blocks) in [(1, 1), (4 * KB, 1), (4 * KB + 1, 2), (400 * KB, 100)] {
        assert_eq!(read_units(size, Read::Eventual), Units::halves(blocks));
        assert_eq!(read_units(size, Read::Strong), Units::whole(blocks));
        assert_eq!(
            read_units(size, Read::Transactional),
            Units::whole(2 * blocks)
        );
    }
}

#[test]
fn finding_nothing_is_not_free() {
    assert_eq!(read_units(0, Read::Eventual), Units::halves(1));
    assert_eq!(query_units(0, Read::Strong), Units::whole(1));
}

#[test]
fn a_query_adds_up_before_it_rounds_and_a_batch_rounds_each_item() {
    // The example of the developer guide: 1.5 KB and 6.5 KB are 8 KB to a query, 12 KB to a batch.
    let sizes = [1_536, 6_656];
    assert_eq!(
        query_units(sizes.iter().sum(), Read::Strong),
        Units::whole(2)
    );
    assert_eq!(batch_get_units(sizes, Read::Strong), Units::whole(3));
}

#[test]
fn a_full_page_costs_128_units_eventually_and_256_strongly() {
    assert_eq!(
        query_units(limits::PAGE_MAX_BYTES, Read::Eventual),
        Units::whole(128)
    );
    assert_eq!(
        query_units(limits::PAGE_MAX_BYTES, Read::Strong),
        Units::whole(256)
    );
}

// Writes

#[test]
fn a_write_costs_one_unit_per_kb_begun() {
    for (size, units) in [(1, 1), (KB, 1), (KB + 1, 2), (400 * KB, 400)] {
        assert_eq!(write_units(0, size), Units::whole(units));
    }
}

#[test]
fn the_larger_of_the_old_and_the_new_item_counts() {
    assert_eq!(write_units(3 * KB, 10), Units::whole(3), "shrinking");
    assert_eq!(write_units(10, 3 * KB), Units::whole(3), "growing");
    assert_eq!(write_units(3 * KB, 0), Units::whole(3), "deleting");
}

#[test]
fn deleting_a_missing_item_costs_one_unit() {
    assert_eq!(write_units(0, 0), Units::whole(1));
}

#[test]
fn a_refused_write_costs_as_much_as_an_accepted_one() {
    assert_eq!(
        refused_write_units(0, 0),
        Units::whole(1),
        "an update of a missing item"
    );
    assert_eq!(
        refused_write_units(2 * KB, 0),
        Units::whole(2),
        "a lost claim"
    );
    assert_eq!(
        refused_write_units(300 * KB, 310 * KB),
        Units::whole(310),
        "a lost put"
    );
}

#[test]
fn a_transaction_doubles_each_write_and_counts_a_condition_check_as_one() {
    let put = (0, 500);
    let grow = (KB, KB + 1);
    let check = (200, 200);
    assert_eq!(
        transact_write_units([put, grow, check]),
        Units::whole(2 + 4 + 2)
    );
}

#[test]
fn rounding_comes_before_doubling() {
    assert_eq!(
        transact_write_units([(0, KB + 512)]),
        Units::whole(4),
        "not 3"
    );
}

#[test]
fn a_replayed_transaction_is_charged_as_a_read() {
    assert_eq!(transact_write_units([(0, 9 * KB)]), Units::whole(18));
    assert_eq!(replayed_transaction_units([(0, 9 * KB)]), Units::whole(6));
}

// Units

#[test]
fn units_show_halves_and_nothing_finer() {
    assert_eq!(Units::halves(1).to_string(), "0.5");
    assert_eq!(Units::whole(3_500).to_string(), "3500");
    assert_eq!((Units::halves(3) + Units::whole(1)).to_string(), "2.5");
}

#[test]
fn a_reported_figure_survives_the_way_there_and_back() {
    for halves in [0, 1, 2, 7, 1_000_001] {
        let units = Units::halves(halves);
        assert_eq!(Units::try_from(units.as_f64()), Ok(units));
    }
}

#[test]
fn a_figure_dynamodb_never_sends_is_refused() {
    for figure in [-0.5, 0.3, f64::NAN, f64::INFINITY, 1e300] {
        let refusal = Units::try_from(figure).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!("{figure} is not a number of capacity units")
        );
    }
}

// Sizes

fn size_of(value: Value) -> u64 {
    item_size(&json!({ "a": value })).unwrap() - 1
}

#[test]
fn names_and_strings_count_their_utf8_bytes() {
    assert_eq!(item_size(&json!({"name": {"S": "Zoë"}})).unwrap(), 4 + 4);
    assert_eq!(item_size(&json!({})).unwrap(), 0);
}

#[test]
fn a_number_costs_a_byte_and_one_per_two_significant_digits() {
    for (number, bytes) in [
        ("0", 1),
        ("-0.00", 1),
        ("7", 2),
        ("42", 2),
        ("123", 3),
        ("1200", 2),
        ("0.00012", 2),
        ("1.2e10", 2),
        ("+12E-3", 2),
        ("1767225600000", 5), // eight digits, the zeros are free
        ("1767225600001", 8),
    ] {
        assert_eq!(size_of(json!({"N": number})), bytes, "{number}");
    }
}

#[test]
fn a_negative_number_costs_one_byte_more() {
    assert_eq!(
        size_of(json!({"N": "-42"})),
        size_of(json!({"N": "42"})) + 1
    );
}

#[test]
fn digits_do_not_share_a_byte_across_the_decimal_point() {
    assert_eq!(size_of(json!({"N": "15"})), 2);
    assert_eq!(size_of(json!({"N": "1.5"})), 3);
    assert_eq!(size_of(json!({"N": "10.5"})), 3);
    assert_eq!(size_of(json!({"N": "15e-1"})), 3, "however it is written");
}

#[test]
fn the_longest_number_costs_20_bytes_and_21_if_negative() {
    let digits = "1".repeat(38);
    assert_eq!(size_of(json!({"N": digits})), 20);
    assert_eq!(size_of(json!({"N": format!("-{digits}")})), 21);
}

#[test]
fn binary_counts_raw_bytes_not_base64_letters() {
    for (base64, bytes) in [
        ("", 0),
        ("QQ==", 1),
        ("QUI=", 2),
        ("QUJD", 3),
        ("QUJDRA==", 4),
    ] {
        assert_eq!(size_of(json!({"B": base64})), bytes, "{base64}");
    }
}

#[test]
fn booleans_and_null_cost_one_byte() {
    assert_eq!(size_of(json!({"BOOL": false})), 1);
    assert_eq!(size_of(json!({"NULL": true})), 1);
}

#[test]
fn lists_and_maps_cost_three_bytes_and_one_per_element() {
    assert_eq!(size_of(json!({"L": []})), 3);
    assert_eq!(size_of(json!({"M": {}})), 3);
    assert_eq!(
        size_of(json!({"L": [{"S": "ab"}, {"N": "1"}]})),
        3 + (1 + 2) + (1 + 2)
    );
    assert_eq!(
        size_of(json!({"M": {"key": {"L": [{"BOOL": true}]}}})),
        3 + (1 + 3 + 3 + (1 + 1))
    );
}

#[test]
fn a_set_costs_its_elements_and_no_overhead() {
    assert_eq!(size_of(json!({"SS": ["ab", "c"]})), 3);
    assert_eq!(size_of(json!({"NS": ["1", "-100"]})), 2 + 3);
    assert_eq!(size_of(json!({"BS": ["QQ==", "QUJD"]})), 4);
}

#[test]
fn what_is_not_dynamodb_json_is_refused_by_name() {
    for broken in [
        json!("text"),
        json!({"a": "plain"}),
        json!({"a": {"S": 1}}),
        json!({"a": {"S": "x", "N": "1"}}),
        json!({"a": {"N": "twelve"}}),
        json!({"a": {"N": ""}}),
        json!({"a": {"N": "1.2.3"}}),
        json!({"a": {"N": "1".repeat(39)}}),
        json!({"a": {"B": "QQ"}}),
        json!({"a": {"NS": ["1", 2]}}),
        json!({"a": {"L": [{"X": "y"}]}}),
    ] {
        let refusal = item_size(&broken).unwrap_err();
        assert!(
            refusal.to_string().starts_with("not DynamoDB JSON: "),
            "{broken}"
        );
    }
}

#[test]
fn storage_counts_a_hundred_bytes_more_than_capacity() {
    assert_eq!(storage_bytes(924), KB);
    assert_eq!(
        write_units(0, KB),
        Units::whole(1),
        "the overhead is not written"
    );
}

// Indexes

const BY_STATUS: Index<'_> = Index {
    table_key: &["id"],
    key: &["status"],
    projection: Projection::Include(&["title"]),
};

fn task(status: &str, title: &str, notes: &str) -> Value {
    json!({"id": {"S": "t-1"}, "status": {"S": status}, "title": {"S": title}, "notes": {"S": notes}})
}

#[test]
fn entering_and_leaving_an_index_cost_one_write_each() {
    let open = task("OPEN", "x", "");
    let mut unlisted = open.clone();
    unlisted.as_object_mut().unwrap().remove("status");

    let units = |old, new| BY_STATUS.write_units(old, new).unwrap();
    assert_eq!(units(None, Some(&open)), Units::whole(1), "put");
    assert_eq!(units(Some(&open), None), Units::whole(1), "delete");
    assert_eq!(
        units(Some(&unlisted), Some(&open)),
        Units::whole(1),
        "the key appears"
    );
    assert_eq!(
        units(Some(&open), Some(&unlisted)),
        Units::whole(1),
        "the key is removed"
    );
    assert_eq!(units(None, Some(&unlisted)), Units::ZERO, "never listed");
}

#[test]
fn a_changed_index_key_costs_two_writes() {
    let units = BY_STATUS.write_units(Some(&task("OPEN", "x", "")), Some(&task("DONE", "x", "")));
    assert_eq!(units.unwrap(), Units::whole(2));
}

#[test]
fn the_delete_and_the_insert_are_rounded_apart() {
    let small = task("OPEN", "x", "");
    let large = task("DONE", &"x".repeat(1_500), "");
    assert_eq!(
        BY_STATUS.write_units(Some(&small), Some(&large)).unwrap(),
        Units::whole(1 + 2)
    );
}

#[test]
fn a_changed_projected_attribute_costs_one_write_by_the_larger_entry() {
    let short = task("OPEN", "x", "");
    let long = task("OPEN", &"x".repeat(1_500), "");
    assert_eq!(
        BY_STATUS.write_units(Some(&long), Some(&short)).unwrap(),
        Units::whole(2)
    );
}

#[test]
fn what_the_index_does_not_show_costs_it_nothing() {
    let before = task("OPEN", "x", "");
    let after = task("OPEN", "x", &"n".repeat(5_000));
    let all = Index {
        projection: Projection::All,
        ..BY_STATUS
    };
    assert_eq!(
        BY_STATUS.write_units(Some(&before), Some(&after)).unwrap(),
        Units::ZERO
    );
    assert_eq!(
        all.write_units(Some(&before), Some(&after)).unwrap(),
        Units::whole(5)
    );
}

#[test]
fn an_entry_holds_both_keys_and_what_is_projected() {
    let item = task("OPEN", "title", "notes");
    let keys_only = Index {
        projection: Projection::KeysOnly,
        ..BY_STATUS
    };
    let keys = (2 + 3) + (6 + 4);
    assert_eq!(keys_only.entry_size(&item).unwrap(), Some(keys));
    assert_eq!(BY_STATUS.entry_size(&item).unwrap(), Some(keys + 5 + 5));
    assert_eq!(
        BY_STATUS.entry_size(&json!({"id": {"S": "t-1"}})).unwrap(),
        None
    );
}

#[test]
fn a_set_listed_in_another_order_is_no_change() {
    let all = Index {
        projection: Projection::All,
        ..BY_STATUS
    };
    let tagged = |tags: Value| json!({"id": {"S": "t"}, "status": {"S": "OPEN"}, "tags": tags});
    let units = |old, new| {
        all.write_units(Some(&tagged(old)), Some(&tagged(new)))
            .unwrap()
    };

    assert_eq!(
        units(json!({"SS": ["a", "b"]}), json!({"SS": ["b", "a"]})),
        Units::ZERO
    );
    let list = |first, second| json!({"L": [{"S": first}, {"S": second}]});
    assert_eq!(
        units(list("a", "b"), list("b", "a")),
        Units::whole(1),
        "a list is ordered"
    );
}

// Money

#[test]
fn money_is_shown_exactly_unless_a_precision_is_asked_for() {
    assert_eq!(Money::cents(950).to_string(), "$9.50");
    assert_eq!(Money::ZERO.to_string(), "$0.00");
    assert_eq!(Prices::CURRENT.on_demand_read.to_string(), "$0.000000125");
    assert_eq!(Money::pico_dollars(1).to_string(), "$0.000000000001");
    assert_eq!(format!("{:.2}", Money::nano_dollars(295_000_000)), "$0.30");
    assert_eq!(format!("{:.2}", Money::nano_dollars(999_994_999)), "$1.00");
    assert_eq!(format!("{:.0}", Money::cents(1_450)), "$15");
}

#[test]
fn half_a_read_unit_has_an_exact_price() {
    let one_read = Prices::CURRENT.on_demand(Units::halves(1), Units::ZERO);
    assert_eq!(one_read, Money::pico_dollars(62_500));
}

#[test]
fn on_demand_capacity_halved_in_november_2024_and_nothing_else_changed() {
    let (before, since) = (Prices::BEFORE_NOVEMBER_2024, Prices::SINCE_NOVEMBER_2024);
    assert!(before.as_of < since.as_of);
    assert_eq!(since.on_demand_read * 2, before.on_demand_read);
    assert_eq!(since.on_demand_write * 2, before.on_demand_write);
    let undone = Prices {
        as_of: before.as_of,
        on_demand_read: before.on_demand_read,
        on_demand_write: before.on_demand_write,
        ..since
    };
    assert_eq!(undone, before);
}

#[test]
fn on_demand_capacity_has_no_free_tier_and_storage_has_25_gb() {
    let month = OnDemand {
        reads: Units::whole(1_000_000),
        writes: Units::whole(1_000_000),
        stored_bytes: 26 * GB,
    };
    let bill = Prices::CURRENT.monthly_on_demand(&month, FreeTier::Applied);
    assert_eq!(bill.reads.to_string(), "$0.125");
    assert_eq!(bill.writes.to_string(), "$0.625");
    assert_eq!(bill.storage.to_string(), "$0.25");
}

#[test]
fn a_table_within_the_free_tier_costs_nothing() {
    let month = Provisioned {
        reads_per_second: 25,
        writes_per_second: 25,
        stored_bytes: 25 * GB,
    };
    let bill = Prices::CURRENT.monthly_provisioned(&month, FreeTier::Applied);
    assert_eq!(bill.total(), Money::ZERO);
}

#[test]
fn the_first_million_sqs_requests_and_2_5_million_stream_reads_are_free() {
    let prices = Prices::CURRENT;
    assert_eq!(
        prices.monthly_sqs(1_000_000, FreeTier::Applied),
        Money::ZERO
    );
    assert_eq!(
        prices.monthly_sqs(2_000_000, FreeTier::Applied).to_string(),
        "$0.40"
    );
    assert_eq!(
        prices.monthly_sqs(1_000_000, FreeTier::Ignored).to_string(),
        "$0.40"
    );
    assert_eq!(
        prices.monthly_streams(2_500_000, FreeTier::Applied),
        Money::ZERO
    );
    assert_eq!(
        prices
            .monthly_streams(2_600_000, FreeTier::Applied)
            .to_string(),
        "$0.02"
    );
}

#[test]
fn a_shard_polled_four_times_a_second_outgrows_the_free_stream_reads() {
    let calls = 4 * 3_600 * 24 * 30;
    assert_eq!(
        Prices::CURRENT
            .monthly_streams(calls, FreeTier::Applied)
            .to_string(),
        "$1.5736"
    );
}

#[test]
fn an_sqs_request_is_64_kb_however_many_messages_it_carries() {
    for (payload, requests) in [(0, 1), (64 * KB, 1), (64 * KB + 1, 2), (256 * KB, 4)] {
        assert_eq!(sqs_requests(payload), requests);
    }
}

#[test]
fn in_s3_a_put_costs_as_much_as_twelve_and_a_half_gets() {
    let prices = Prices::CURRENT;
    assert_eq!(prices.monthly_s3(1_000, 0, 0).to_string(), "$0.005");
    assert_eq!(prices.monthly_s3(0, 1_000, 0).to_string(), "$0.0004");
    assert_eq!(prices.monthly_s3(0, 0, 100 * GB).to_string(), "$2.30");
    assert_eq!(prices.s3_put * 2, prices.s3_get * 25);
}
