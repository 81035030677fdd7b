//! The worked examples of the source documents, done again.
//!
//! Where a document's own figure is wrong, the test's name says so and the test shows which reading
//! gives the document's figure and which one is right.
#![allow(clippy::unwrap_used)]

use capacity::{
    FreeTier, GB, Index, KB, Money, OnDemand, Prices, Projection, Provisioned, Read, Units,
    item_size, limits, query_units, read_units, refused_write_units, storage_bytes,
    transact_write_units, write_units,
};
use serde_json::{Value, json};

/// What the documents quote.
const QUOTED: Prices = Prices::BEFORE_NOVEMBER_2024;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const DAYS: u64 = 30;

/// One write of a whole item and of its entries in these indexes: (table, indexes).
fn write(indexes: &[Index<'_>], old: Option<&Value>, new: Option<&Value>) -> (Units, Units) {
    let size = |item: Option<&Value>| item.map_or(0, |item| item_size(item).unwrap());
    let in_indexes = indexes
        .iter()
        .map(|index| index.write_units(old, new).unwrap())
        .sum();
    (write_units(size(old), size(new)), in_indexes)
}

/// The item with these string attributes set.
fn with(item: &Value, changes: &[(&str, &str)]) -> Value {
    let mut item = item.clone();
    for (name, value) in changes {
        item[name] = json!({ "S": value });
    }
    item
}

mod document_002_the_course {
    use super::*;

    #[test]
    fn an_eventually_consistent_read_of_8_kb_is_one_rcu() {
        assert_eq!(read_units(8 * KB, Read::Eventual), Units::whole(1));
    }

    #[test]
    fn a_standard_write_of_3_kb_is_three_wcu() {
        assert_eq!(write_units(0, 3 * KB), Units::whole(3));
    }

    #[test]
    fn an_item_of_3_3_kb_needs_4_wcu_and_1_rcu_if_it_is_read_strongly() {
        let size = 33 * KB / 10;
        assert_eq!(write_units(0, size), Units::whole(4));
        assert_eq!(read_units(size, Read::Strong), Units::whole(1));
        assert_eq!(
            read_units(size, Read::Eventual),
            Units::halves(1),
            "what the text leaves out"
        );
    }

    fn first_bill(prices: &Prices, gb: u64, free_tier: FreeTier) -> String {
        let month = OnDemand {
            reads: Units::whole(8_000_000),
            writes: Units::whole(4_000_000),
            stored_bytes: gb * GB,
        };
        prices
            .monthly_on_demand(&month, free_tier)
            .total()
            .to_string()
    }

    #[test]
    fn the_first_bill_says_30_gb_and_is_computed_with_10() {
        assert_eq!(
            first_bill(&QUOTED, 10, FreeTier::Ignored),
            "$9.50",
            "the document's total"
        );
        assert_eq!(first_bill(&QUOTED, 30, FreeTier::Ignored), "$14.50");
        assert_eq!(first_bill(&QUOTED, 30, FreeTier::Applied), "$8.25");
    }

    #[test]
    fn no_reading_of_the_free_tier_leaves_10_gb_of_30_to_pay_for() {
        // 30 GB less 25 are 5; and 10 GB would not have been billed at all.
        let storage = |gb| {
            QUOTED
                .monthly_storage(gb * GB, FreeTier::Applied)
                .to_string()
        };
        assert_eq!(storage(30), "$1.25");
        assert_eq!(storage(10), "$0.00");
    }

    #[test]
    fn since_november_2024_the_first_bill_is_11_dollars_or_4_75() {
        let now = Prices::SINCE_NOVEMBER_2024;
        assert_eq!(first_bill(&now, 30, FreeTier::Ignored), "$11.00");
        assert_eq!(first_bill(&now, 30, FreeTier::Applied), "$4.75");
    }

    #[test]
    fn the_second_bill_is_right_because_it_does_apply_the_free_tier() {
        let month = Provisioned {
            reads_per_second: 50,
            writes_per_second: 50,
            stored_bytes: 25 * GB,
        };
        let bill = QUOTED.monthly_provisioned(&month, FreeTier::Applied);
        assert_eq!(bill.writes.to_string(), "$11.70");
        assert_eq!(bill.reads.to_string(), "$2.34");
        assert_eq!(bill.storage, Money::ZERO);
        assert_eq!(bill.total().to_string(), "$14.04");

        // The two bills of the course therefore cannot be compared with each other.
        let alike = QUOTED.monthly_provisioned(&month, FreeTier::Ignored);
        assert_eq!(alike.total().to_string(), "$34.33");
    }

    #[test]
    fn a_terabyte_is_250_dollars_only_if_it_is_1000_gb_and_nothing_is_free() {
        let storage = |gb, free_tier| QUOTED.monthly_storage(gb * GB, free_tier).to_string();
        assert_eq!(
            storage(1_000, FreeTier::Ignored),
            "$250.00",
            "the document's figure"
        );
        assert_eq!(storage(1_000, FreeTier::Applied), "$243.75");
        assert_eq!(storage(1_024, FreeTier::Ignored), "$256.00");
        assert_eq!(storage(1_024, FreeTier::Applied), "$249.75");
    }

    #[test]
    fn provisioned_is_cheaper_only_for_a_table_that_is_busy() {
        let provisioned = Provisioned {
            reads_per_second: 0,
            writes_per_second: 100,
            stored_bytes: 0,
        };
        let provisioned = QUOTED
            .monthly_provisioned(&provisioned, FreeTier::Ignored)
            .total();
        let on_demand = |prices: &Prices, percent_busy: u64| {
            let writes = Units::whole(SECONDS_PER_DAY * DAYS * percent_busy);
            prices.on_demand(Units::ZERO, writes)
        };
        assert!(on_demand(&QUOTED, 14) < provisioned);
        assert!(on_demand(&QUOTED, 15) > provisioned);
        // The price cut doubled how busy it has to be.
        assert!(on_demand(&Prices::SINCE_NOVEMBER_2024, 28) < provisioned);
        assert!(on_demand(&Prices::SINCE_NOVEMBER_2024, 29) > provisioned);
    }
}

mod document_000_the_task_queue {
    use super::*;

    const PER_SECOND: u64 = 500;

    const GSI1: Index<'_> = Index {
        table_key: &["PK", "SK"],
        key: &["GSI1-PK", "GSI1-SK"],
        projection: Projection::All,
    };

    fn item(pk: &str, sk: &str) -> Value {
        json!({"PK": {"S": pk}, "SK": {"S": sk}})
    }

    fn meta(status: &str) -> Value {
        with(
            &item("TASK#t-123", "META"),
            &[
                ("status", status),
                ("GSI1-PK", &format!("STATUS#{status}")),
                ("GSI1-SK", "CREATED#2026-09-23T10:00:00Z"),
            ],
        )
    }

    /// A row that is put once, or deleted once: event, idempotency record, claim.
    fn row() -> Units {
        let (table, index) = write(&[GSI1], None, Some(&item("TASK#t-123", "EVENT#0001")));
        assert_eq!(
            index,
            Units::ZERO,
            "a row without GSI1 attributes is not in GSI1"
        );
        table
    }

    fn submit_meta() -> (Units, Units) {
        write(&[GSI1], None, Some(&meta("PENDING")))
    }

    fn move_meta(from: &str, to: &str) -> (Units, Units) {
        write(&[GSI1], Some(&meta(from)), Some(&meta(to)))
    }

    /// The two lists of the document: submission, then processing.
    fn six_terms() -> [Units; 6] {
        let (submit, claim) = (submit_meta().0, move_meta("PENDING", "PROCESSING").0);
        [row(), row(), submit, claim, row(), row()]
    }

    /// Those, and the write of META that the lists leave out.
    fn seven_terms() -> Units {
        six_terms().into_iter().sum::<Units>() + move_meta("PROCESSING", "COMPLETED").0
    }

    #[test]
    fn document_000_adds_its_own_six_terms_to_3000_not_3500() {
        let terms = six_terms();
        let per_second = |terms: &[Units]| terms.iter().copied().sum::<Units>() * PER_SECOND;
        assert_eq!(
            per_second(&terms[..3]),
            Units::whole(1_500),
            "submission, as it says"
        );
        assert_eq!(
            per_second(&terms),
            Units::whole(3_000),
            "where it says about 3,500"
        );
    }

    #[test]
    fn the_missing_500_is_the_write_that_marks_the_task_completed() {
        // The COMPLETED event is put, but META would stay PROCESSING for ever.
        assert_eq!(seven_terms() * PER_SECOND, Units::whole(3_500));
    }

    #[test]
    fn with_the_claim_row_and_the_index_it_is_7000() {
        let moves = [
            submit_meta(),
            move_meta("PENDING", "PROCESSING"),
            move_meta("PROCESSING", "COMPLETED"),
        ];
        let index: Units = moves.iter().map(|(_, index)| *index).sum();
        assert_eq!(
            index * PER_SECOND,
            Units::whole(2_500),
            "one insert, two moves"
        );

        // WORKER#… is put at the claim and deleted at the end; the document's schema has it, its
        // arithmetic does not.
        let claim_row = row() * 2;
        let per_task = seven_terms() + claim_row + index;
        assert_eq!(per_task * PER_SECOND, Units::whole(7_000));
    }

    #[test]
    fn submitting_in_one_transaction_costs_1500_more() {
        let row_size = item_size(&item("TASK#t-123", "EVENT#0001")).unwrap();
        let meta_size = item_size(&meta("PENDING")).unwrap();
        let safe = transact_write_units([(0, row_size), (0, row_size), (0, meta_size)]);
        assert_eq!(safe * PER_SECOND, Units::whole(1_500 + 1_500));
    }

    #[test]
    fn five_hundred_tasks_a_second_fill_the_one_index_partition_of_pending() {
        // Each task enters STATUS#PENDING once and leaves it once, each one unit.
        let (_, entering) = submit_meta();
        let leaving = GSI1.write_units(Some(&meta("PENDING")), None).unwrap();
        let per_second = (entering + leaving) * PER_SECOND;
        assert_eq!(per_second, Units::whole(limits::PARTITION_WCU_PER_SECOND));
    }

    #[test]
    fn the_idempotency_read_of_every_submission_is_not_counted_at_all() {
        assert_eq!(
            read_units(0, Read::Eventual) * PER_SECOND,
            Units::whole(250)
        );
        // An eventually consistent check can miss the record of a moment ago.
        assert_eq!(read_units(0, Read::Strong) * PER_SECOND, Units::whole(500));
    }
}

mod document_003_the_batch_pipeline {
    use super::*;

    const FILES: u64 = 10;
    const POLLS: u64 = 6;

    const STATUS_INDEX: Index<'_> = Index {
        table_key: &["FileID"],
        key: &["Status", "StatusUpdatedAt"],
        projection: Projection::All,
    };
    const BATCH_INDEX: Index<'_> = Index {
        table_key: &["FileID"],
        key: &["BatchID", "Status"],
        projection: Projection::All,
    };
    const POLLING_DATE_INDEX: Index<'_> = Index {
        table_key: &["BatchID"],
        key: &["PollingDate", "Status"],
        projection: Projection::All,
    };

    /// A job record with every attribute of the document; the URL is the only long one.
    fn job(status: &str, updated_at: &str, url_bytes: usize) -> Value {
        json!({
            "FileID": {"S": "accounts-2026-02-28"},
            "BatchID": {"S": "batch-2026-02-28-f47ac10b-58cc-4372-a567-0e02b2c3d479"},
            "Status": {"S": status},
            "Entity": {"S": "accounts"},
            "DownloadDate": {"S": "2026-02-28"},
            "PresignedURL": {"S": "u".repeat(url_bytes)},
            "EncryptedAESKey": {"S": "k".repeat(344)}, // RSA-2048 in base64
            "EncodedAESIV": {"S": "i".repeat(24)},
            "CreatedAt": {"S": "2026-02-28T06:00:00.000Z"},
            "StatusUpdatedAt": {"N": updated_at},
            "TTL": {"N": "1774850400"}
        })
    }

    fn batch(status: &str) -> Value {
        json!({
            "BatchID": {"S": "batch-2026-02-28-f47ac10b-58cc-4372-a567-0e02b2c3d479"},
            "PollingDate": {"S": "2026-02-28"},
            "Status": {"S": status}
        })
    }

    fn both(total: (Units, Units), one: (Units, Units)) -> (Units, Units) {
        (total.0 + one.0, total.1 + one.1)
    }

    /// (table, indexes) of a day's writes: each item is put and moved twice.
    fn day(url_bytes: usize) -> (Units, Units) {
        let three_steps = |indexes: &[Index<'_>], states: [Value; 3]| {
            let [first, second, third] = &states;
            let put = write(indexes, None, Some(first));
            let moved = write(indexes, Some(first), Some(second));
            both(both(put, moved), write(indexes, Some(second), Some(third)))
        };
        let file = three_steps(
            &[STATUS_INDEX, BATCH_INDEX],
            [
                job("available", "1772258400000", url_bytes),
                job("downloading", "1772258460000", url_bytes),
                job("completed", "1772258520000", url_bytes),
            ],
        );
        let run = three_steps(
            &[POLLING_DATE_INDEX],
            [batch("initiated"), batch("queued"), batch("completed")],
        );
        both((file.0 * FILES, file.1 * FILES), run)
    }

    /// A URL short enough for the record to fit the 1 KB that the document assumes.
    const SHORT_URL: usize = 300;
    /// One signed with a role's session token, as a Lambda function signs.
    const SIGNED_URL: usize = 1_400;

    #[test]
    fn the_day_writes_33_wcu_to_the_tables_as_the_document_says() {
        assert_eq!(day(SHORT_URL).0, Units::whole(33));
    }

    #[test]
    fn document_003_forgets_105_wcu_of_index_writes() {
        // A file enters two indexes (2) and moves in both twice (8); the run enters one and moves twice.
        let (tables, indexes) = day(SHORT_URL);
        assert_eq!(indexes, Units::whole(FILES * (2 + 8) + 1 + 4));
        assert_eq!(tables + indexes, Units::whole(138));
    }

    #[test]
    fn a_job_record_with_a_session_signed_url_is_over_1_kb_and_doubles_it() {
        let size = item_size(&job("available", "1772258400000", SIGNED_URL)).unwrap();
        assert!((KB + 1..=2 * KB).contains(&size), "{size}");
        let (tables, indexes) = day(SIGNED_URL);
        assert_eq!(tables + indexes, Units::whole(2 * 130 + 8));
    }

    #[test]
    fn sixty_eventually_consistent_polls_are_30_rcu_not_60() {
        let size = item_size(&job("available", "1772258400000", SIGNED_URL)).unwrap();
        assert_eq!(
            read_units(size, Read::Eventual) * (POLLS * FILES),
            Units::whole(30)
        );
        assert_eq!(
            read_units(size, Read::Strong) * (POLLS * FILES),
            Units::whole(60)
        );
    }

    #[test]
    fn the_downloaders_own_reads_are_missing_from_the_table() {
        // The text has each downloader begin with a GetItem; the table of operations does not.
        assert_eq!(
            read_units(KB, Read::Eventual) * (POLLS * FILES + FILES),
            Units::whole(35)
        );
    }

    #[test]
    fn one_query_of_the_batch_index_per_poll_is_9_rcu_where_ten_gets_are_30() {
        let entry = job("available", "1772258400000", SHORT_URL);
        let entry = BATCH_INDEX.entry_size(&entry).unwrap().unwrap();
        let polls = query_units(entry * FILES, Read::Eventual) * POLLS;
        assert_eq!(polls, Units::whole(9), "{entry} bytes an entry");
    }

    #[test]
    fn a_rerun_that_every_condition_refuses_costs_10_wcu_all_the_same() {
        let size = item_size(&job("available", "1772258400000", SHORT_URL)).unwrap();
        assert_eq!(refused_write_units(size, size) * FILES, Units::whole(10));
    }

    #[test]
    fn the_month_is_a_fraction_of_a_cent_even_with_what_was_forgotten() {
        let month = |reads, writes| QUOTED.on_demand(reads * DAYS, writes * DAYS);
        let as_written = month(Units::whole(60), Units::whole(33));
        assert_eq!(as_written.to_string(), "$0.0016875");
        let (tables, indexes) = day(SHORT_URL);
        let counted = month(Units::whole(35), tables + indexes);
        assert_eq!(counted.to_string(), "$0.0054375");
        assert!(counted < Money::cents(1));
    }

    #[test]
    fn a_days_33_wcu_do_not_overflow_25_wcu_because_those_are_per_second() {
        let free_per_day = QUOTED.free.provisioned_writes_per_second * SECONDS_PER_DAY;
        assert_eq!(free_per_day, 2_160_000);
        assert!(day(SIGNED_URL).0 + day(SIGNED_URL).1 < Units::whole(free_per_day));
    }

    #[test]
    fn provisioned_costs_more_than_on_demand_unless_the_free_tier_covers_it() {
        // The least there is: one unit each way for two tables and three indexes.
        let least = Provisioned {
            reads_per_second: 5,
            writes_per_second: 5,
            stored_bytes: 0,
        };
        let bill = |free_tier| {
            QUOTED
                .monthly_provisioned(&least, free_tier)
                .total()
                .to_string()
        };
        assert_eq!(bill(FreeTier::Ignored), "$2.808");
        assert_eq!(bill(FreeTier::Applied), "$0.00");
    }

    #[test]
    fn a_file_id_is_19_bytes_not_22_and_400_of_them_are_still_about_8_kb() {
        let id = "accounts-2026-02-28";
        assert_eq!(id.len(), 19);
        let ids: Vec<String> = (0..400)
            .map(|n| format!("entity{n:02}-2026-02-28"))
            .collect();
        let set = item_size(&json!({"ExpectedFiles": {"SS": ids}})).unwrap();
        assert!((7 * KB..9 * KB).contains(&set), "{set}");
        // As a list, which is what the record's type says, each costs a byte more.
        let list: Vec<Value> = ids.iter().map(|id| json!({"S": id})).collect();
        let list = item_size(&json!({"ExpectedFiles": {"L": list}})).unwrap();
        assert_eq!(list, set + 3 + 400);
    }

    #[test]
    fn expired_items_are_billed_and_read_until_they_are_deleted() {
        // The document says that they stop counting at expiry. Neither charge has a clock in it:
        // when deletion lags two days, a table that keeps 30 days of rows pays for 32.
        let size = item_size(&job("completed", "1772258520000", SHORT_URL)).unwrap();
        let stored = |days: u64| days * FILES * storage_bytes(size);
        let pay = |bytes| QUOTED.monthly_storage(bytes, FreeTier::Ignored);
        assert!(pay(stored(32)) > pay(stored(30)));
        let read = |days: u64| query_units(days * FILES * size, Read::Eventual);
        assert_eq!((read(30), read(32)), (Units::halves(67), Units::halves(71)));
    }

    #[test]
    fn the_quoted_prices_are_twice_those_of_the_year_in_its_examples() {
        // Its dates are of 2026, its prices of before November 2024.
        let (reads, writes) = (Units::whole(60 * DAYS), Units::whole(33 * DAYS));
        let now = Prices::SINCE_NOVEMBER_2024.on_demand(reads, writes);
        assert_eq!(now * 2, QUOTED.on_demand(reads, writes));
    }
}

mod document_004_the_task_manager {
    use super::*;

    const GSI1: Index<'_> = Index {
        table_key: &["PK", "SK"],
        key: &["GSI1PK", "GSI1SK"],
        projection: Projection::All,
    };
    const GSI2: Index<'_> = Index {
        table_key: &["PK", "SK"],
        key: &["GSI2PK", "GSI2SK"],
        projection: Projection::All,
    };

    const UUID: &str = "0190c2f0-7b1e-7cc3-98c4-dc0c0c07398f";

    fn task(status: &str) -> Value {
        let (pk, gsi2) = (format!("TASK#{UUID}"), format!("STATUS#{status}"));
        with(
            &json!({}),
            &[
                ("PK", pk.as_str()),
                ("SK", "METADATA"),
                ("Title", "Write the report"),
                ("Status", status),
                ("GSI2PK", gsi2.as_str()),
                ("GSI2SK", "CREATED_AT#2026-01-01T00:00:00Z"),
            ],
        )
    }

    fn assignment() -> Value {
        let (task, user) = (format!("TASK#{UUID}"), format!("USER#{UUID}"));
        with(
            &json!({}),
            &[
                ("PK", task.as_str()),
                ("SK", &format!("ASSIGNMENT#{UUID}")),
                ("EntityType", "ASSIGNMENT"),
                ("TaskId", UUID),
                ("UserId", UUID),
                ("AssignedBy", UUID),
                ("AssignedAt", "2026-01-01T00:00:00Z"),
                ("GSI1PK", user.as_str()),
                ("GSI1SK", task.as_str()),
            ],
        )
    }

    #[test]
    fn one_item_is_half_an_rcu_eventually_and_one_strongly_not_1_and_2() {
        let size = item_size(&task("OPEN")).unwrap();
        assert_eq!(read_units(size, Read::Eventual), Units::halves(1));
        assert_eq!(read_units(size, Read::Strong), Units::whole(1));
        // 1 and 2 would be the strong and the transactional read, or an item of 4 to 8 KB.
        assert_eq!(read_units(size, Read::Transactional), Units::whole(2));
        assert_eq!(read_units(4 * KB + 1, Read::Eventual), Units::whole(1));
    }

    /// Five assignments, read from GSI1 in one query.
    fn my_tasks() -> Units {
        let entry = GSI1.entry_size(&assignment()).unwrap().unwrap();
        query_units(5 * entry, Read::Eventual)
    }

    #[test]
    fn a_query_for_five_assignments_is_half_an_rcu_not_5() {
        assert_eq!(my_tasks(), Units::halves(1));
    }

    #[test]
    fn the_days_reads_are_500_rcu_not_3000() {
        let size = item_size(&task("OPEN")).unwrap();
        let views = read_units(size, Read::Eventual) * 500;
        let queries = my_tasks() * 500;
        assert_eq!(views + queries, Units::whole(500));

        // The index holds assignments, not tasks: to show titles, five items follow each query.
        let titles = read_units(size, Read::Eventual) * 5 * 500;
        assert_eq!(views + queries + titles, Units::whole(1_750));
    }

    /// (table, indexes) of a day: 100 tasks made, 200 assigned, 300 moved.
    fn writes() -> (Units, Units) {
        let indexes = [GSI1, GSI2];
        let made = write(&indexes, None, Some(&task("OPEN")));
        let assigned = write(&indexes, None, Some(&assignment()));
        let moved = write(&indexes, Some(&task("OPEN")), Some(&task("IN_PROGRESS")));
        (
            made.0 * 100 + assigned.0 * 200 + moved.0 * 300,
            made.1 * 100 + assigned.1 * 200 + moved.1 * 300,
        )
    }

    #[test]
    fn the_days_writes_are_1500_wcu_not_600_because_of_the_indexes() {
        let (table, indexes) = writes();
        assert_eq!(table, Units::whole(600), "the document's figure");
        assert_eq!(indexes, Units::whole(100 + 200 + 2 * 300));
    }

    fn month(reads: Units, writes: Units, free_tier: FreeTier) -> String {
        let month = OnDemand {
            reads: reads * DAYS,
            writes: writes * DAYS,
            stored_bytes: GB,
        };
        format!("{:.2}", QUOTED.monthly_on_demand(&month, free_tier).total())
    }

    #[test]
    fn the_month_adds_up_to_30_cents_from_the_documents_own_terms() {
        let (reads, writes) = (Units::whole(3_000), Units::whole(600));
        let bill = QUOTED.on_demand(reads * DAYS, Units::ZERO);
        assert_eq!(bill.to_string(), "$0.0225", "shown as two cents");
        assert_eq!(month(reads, writes, FreeTier::Ignored), "$0.30");
    }

    #[test]
    fn the_right_terms_give_31_cents_by_luck_and_6_with_the_free_tier() {
        // Six times too many reads and two and a half times too few writes nearly cancel out.
        let (table, indexes) = writes();
        assert_eq!(
            month(Units::whole(500), table + indexes, FreeTier::Ignored),
            "$0.31"
        );
        assert_eq!(
            month(Units::whole(500), table + indexes, FreeTier::Applied),
            "$0.06"
        );
    }

    #[test]
    fn a_thousand_tasks_under_4_kb_are_nowhere_near_1_gb() {
        let at_most = 1_000 * 2 * storage_bytes(4 * KB); // each task, and its copy in GSI2
        assert!(at_most < GB / 100, "{at_most}");
        let needed = GB / 1_000;
        let limit = limits::ITEM_MAX_BYTES;
        assert!(needed > limit, "1 GB would take items that cannot exist");
    }
}
