//! The page of a simulated city: one file that needs nothing from elsewhere, no script, no font.

use crate::cell_index::RESOLUTION;
use crate::city::{Day, Figures, HALF_M, Ride, Spot, Today};
use crate::domain::RideStatus;
use h3o::{CellIndex as Cell, LatLng};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2433; --soft: #667085; --line: #d5d9e2; --paper: #fbfbf9;
  --free: #2f855a; --busy: #2b6cb0; --lost: #c53030; --wait: #d69e2e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #98a2b3; --line: #39404f;
  --paper: #14171e; --free: #68d391; --busy: #63b3ed; --lost: #fc8181; --wait: #f6e05e; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, figcaption { color: var(--soft); margin: .2rem 0 1rem; }
.days { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 2rem; }
svg { width: 100%; height: auto; display: block; } figure { margin: 0; max-width: 40rem; }
.cell { stroke: var(--line); stroke-width: 18; fill: var(--busy); }
.free { fill: var(--free); } .busy { fill: var(--busy); } .lost { fill: var(--lost); }
.wait { fill: var(--wait); } .bar { fill: var(--busy); } .axis { fill: var(--soft); font-size: 11px; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 500; }
td, th { padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
td { text-align: right; font-variant-numeric: tabular-nums; }
.key span { margin-right: 1.2rem; white-space: nowrap; } .key svg { width: .8rem; display: inline; }
";

/// The page.
pub fn page(today: &Today, days: &[Day]) -> String {
    let maps: String = days.iter().map(|day| figure(today, day)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>A city of {drivers} drivers</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>A city of {drivers} drivers, {minutes} minutes</h1>\n\
         <p>{rides} rides a minute, seed {seed}. Every request, offer, answer and trip is the real \
         call; people and streets are simulated.</p>\n\
         {table}\n<h2>The map at the end</h2>\n\
         <p class=\"key\">{keys} Hexagons are H3 cells, darker where more rides began.</p>\n\
         <div class=\"days\">{maps}</div>\n</body>\n</html>\n",
        drivers = today.drivers,
        minutes = today.minutes,
        rides = today.rides_per_minute,
        seed = today.seed,
        table = table(days),
        keys = keys(),
    )
}

fn keys() -> String {
    let key = |class: &str, text: &str| {
        format!(
            "<span><svg viewBox=\"0 0 10 10\"><circle class=\"{class}\" cx=\"5\" cy=\"5\" r=\"5\"/></svg> {text}</span>"
        )
    };
    [
        key("free", "free driver"),
        key("busy", "driver with a ride"),
        key("wait", "rider who waits"),
        key("lost", "rider who found nobody"),
    ]
    .concat()
}

fn table(days: &[Day]) -> String {
    type Cell = fn(&Figures) -> String;
    let rows: &[(&str, Cell)] = &[
        ("requests", |f| f.requests.to_string()),
        ("matched", |f| f.matched.to_string()),
        ("match rate", |f| format!("{:.1}%", f.match_rate_percent)),
        ("found nobody", |f| f.no_drivers.to_string()),
        ("given up by the rider", |f| f.cancelled.to_string()),
        ("offers for each match", |f| {
            format!("{:.2}", f.offers as f64 / f.matched.max(1) as f64)
        }),
        ("until a yes, mean", |f| {
            format!("{:.0} s", f.wait_for_a_yes_s.mean)
        }),
        ("pickup, mean", |f| format!("{:.0} s", f.pickup_s.mean)),
        ("pickup, 95 of 100", |f| format!("{} s", f.pickup_s.p95)),
        ("until the car is there, mean", |f| {
            format!("{:.0} s", f.wait_for_the_car_s.mean)
        }),
        ("all pickups together", |f| {
            format!("{:.1} h", f.total_pickup_hours)
        }),
        ("DynamoDB calls", |f| f.dynamodb_calls.to_string()),
        ("Redis calls", |f| f.redis_calls.to_string()),
        ("DynamoDB, a thousand requests", |f| {
            format!("${:.3}", f.dollars_per_thousand)
        }),
    ];
    let mut out = String::from("<table>\n<tr><th></th>");
    for day in days {
        let _ = write!(out, "<td>{}</td>", day.figures.matching.word());
    }
    out.push_str("</tr>\n");
    for (name, cell) in rows {
        let _ = write!(out, "<tr><th>{name}</th>");
        for day in days {
            let _ = write!(out, "<td>{}</td>", cell(&day.figures));
        }
        out.push_str("</tr>\n");
    }
    out + "</table>"
}

/// North is up.
fn place(spot: Spot) -> (f64, f64) {
    (spot.x + HALF_M, HALF_M - spot.y)
}

fn figure(today: &Today, day: &Day) -> String {
    let mut out = format!(
        "<figure><svg viewBox=\"0 0 {size} {size}\" role=\"img\" aria-label=\"map\">",
        size = 2.0 * HALF_M
    );
    hexagons(&mut out, &day.rides);
    let mut dot = |class: &str, spot: Spot, radius: u32| {
        let (x, y) = place(spot);
        let _ = write!(
            out,
            "<circle class=\"{class}\" cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"{radius}\"/>"
        );
    };
    for (spot, busy) in &day.cabs {
        dot(if *busy { "busy" } else { "free" }, *spot, 45);
    }
    for ride in &day.rides {
        match ride.end {
            RideStatus::NoDrivers => dot("lost", ride.pickup, 70),
            RideStatus::Open | RideStatus::Matching => dot("wait", ride.pickup, 70),
            _ => {}
        }
    }
    out.push_str("</svg>\n");
    let _ = writeln!(
        out,
        "<figcaption>{}: {} free and {} busy drivers after {} minutes. How long riders waited for \
         the car:</figcaption>",
        day.figures.matching.word(),
        day.cabs.iter().filter(|(_, busy)| !busy).count(),
        day.cabs.iter().filter(|(_, busy)| *busy).count(),
        today.minutes
    );
    histogram(&mut out, &day.rides);
    out + "</figure>\n"
}

/// The cells in which rides began, darker for more.
fn hexagons(out: &mut String, rides: &[Ride]) {
    let mut begun: BTreeMap<Cell, usize> = BTreeMap::new();
    for ride in rides {
        let at = ride.pickup.point();
        if let Ok(at) = LatLng::new(at.lat_degrees(), at.lon_degrees()) {
            *begun.entry(at.to_cell(RESOLUTION)).or_default() += 1;
        }
    }
    let most = begun.values().copied().max().unwrap_or(1) as f64;
    for (cell, rides) in begun {
        let corners: Vec<_> = cell
            .boundary()
            .iter()
            .map(|corner| {
                let (x, y) = place(Spot::of(corner.lat(), corner.lng()));
                format!("{x:.0},{y:.0}")
            })
            .collect();
        let _ = write!(
            out,
            "<polygon class=\"cell\" fill-opacity=\"{:.2}\" points=\"{}\"/>",
            0.04 + 0.3 * rides as f64 / most,
            corners.join(" ")
        );
    }
}

/// How many waited for how many minutes, to the nearest half.
fn histogram(out: &mut String, rides: &[Ride]) {
    const BARS: usize = 20;
    let mut counts = [0_u64; BARS];
    for ride in rides {
        if let (RideStatus::Matched, Some(arrived)) = (ride.end, ride.arrived) {
            let half_minutes = (arrived - ride.requested) as usize / 30;
            counts[half_minutes.min(BARS - 1)] += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1) as f64;
    out.push_str("<svg viewBox=\"0 0 400 110\" role=\"img\" aria-label=\"waits\">");
    for (at, count) in counts.into_iter().enumerate() {
        let height = 80.0 * count as f64 / most;
        let x = at as f64 * 20.0;
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{:.0}\" y=\"{:.1}\" width=\"17\" height=\"{height:.1}\"/>",
            x + 1.0,
            85.0 - height
        );
        if at % 4 == 0 {
            let minutes = at / 2;
            let _ = write!(
                out,
                "<text class=\"axis\" x=\"{x}\" y=\"100\">{minutes} min</text>"
            );
        }
    }
    out.push_str("</svg>\n");
}
