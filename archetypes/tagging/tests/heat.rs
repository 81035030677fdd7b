//! The figures that the README quotes: what B buys and what it costs.
#![allow(clippy::unwrap_used)]

use tagging::heat::{heat_all, report};

#[tokio::test]
async fn write_capacity_grows_with_b_and_so_does_the_cost_of_a_page() {
    let all = heat_all().await.unwrap();
    for pair in all.windows(2) {
        let [less, more] = pair else { unreachable!() };
        assert!(
            more.attaches_per_second > less.attaches_per_second,
            "{pair:?}"
        );
        assert!(
            more.throttled_per_second < less.throttled_per_second,
            "{pair:?}"
        );
        assert!(
            more.read_units_per_page > less.read_units_per_page,
            "{pair:?}"
        );
        assert!(more.queries_per_page >= more.buckets as usize, "{pair:?}");
    }
    // The README shows what this prints.
    let readme = include_str!("../README.md");
    assert!(
        readme.contains(&report(&all)),
        "the README should say:\n{}",
        report(&all)
    );
}
