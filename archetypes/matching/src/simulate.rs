//! `simulate`: a city by seed, and what it shows: match rate, waits, cost, and a map.

use crate::Realization;
use crate::city::{Choice, Day, Figures, Spread, Today, simulate};
use crate::city_page::page;
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;

/// The `simulate` command.
pub const SIMULATE: walkthrough::Command = walkthrough::Command {
    name: "simulate",
    about: "Run a city by seed: match rate, waits, cost, and a page with the map",
    args,
    run: |cloud, args| Box::pin(run(cloud, args)),
};

fn args(command: Command) -> Command {
    let number = |name: &'static str, default: &'static str, most: u64, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u64).range(1..=most))
            .default_value(default)
            .help(help)
    };
    command
        .arg(number("drivers", "500", 20_000, "How many drivers"))
        .arg(number("minutes", "30", 24 * 60, "For how long, by the city's clock"))
        .arg(number("rides", "24", 10_000, "How many rides are requested each minute"))
        .arg(number(
            "collect",
            "1",
            60,
            "For how many seconds a batch collects rides",
        ))
        .arg(number("seed", "1", u64::MAX, "Everything follows from it"))
        .arg(
            Arg::new("matching")
                .long("matching")
                .value_parser(["greedy", "batched", "both"])
                .default_value("both")
                .help("The soonest for each ride; the least total time for those of a moment; or one after the other"),
        )
        .arg(
            Arg::new("realization")
                .long("realization")
                .value_parser(["geo", "cells"])
                .default_value("geo")
                .help("Locations in Redis, or in DynamoDB by H3 cell"),
        )
        .arg(
            Arg::new("html")
                .long("html")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .default_value("target/city.html")
                .help("Where to write the page with the map"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

async fn run(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let number = |name| args.get_one::<u64>(name).copied().unwrap_or(1);
    let today = Today {
        drivers: number("drivers") as usize,
        minutes: number("minutes"),
        rides_per_minute: number("rides") as f64,
        seed: number("seed"),
        collect_s: number("collect"),
    };
    let choices: &[Choice] = match args.get_one::<String>("matching").map(String::as_str) {
        Some("greedy") => &[Choice::Greedy],
        Some("batched") => &[Choice::Batched],
        _ => &[Choice::Greedy, Choice::Batched],
    };
    let realization = match args.get_one::<String>("realization").map(String::as_str) {
        Some("cells") => Realization::Cells,
        _ => Realization::Geo,
    };
    let quiet = args.get_flag("json");
    let file = args.get_one::<PathBuf>("html").context("no page")?;
    let mut days = Vec::new();
    for choice in choices {
        let bar = ProgressBar::new(today.minutes * 60);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_style(ProgressStyle::with_template(
            "{msg:8} {bar:40} {pos}/{len} seconds of the city, {elapsed}, {eta} to go",
        )?);
        bar.set_message(choice.word());
        days.push(simulate(&cloud, &today, *choice, realization, &bar).await?);
        bar.finish_and_clear();
    }
    write_page(file, &page(&today, &days))?;
    let figures: Vec<_> = days.iter().map(|day| &day.figures).collect();
    if quiet {
        println!(
            "{:#}",
            json!({"city": today, "days": figures, "page": file})
        );
        return Ok(());
    }
    println!(
        "{} drivers, {} minutes, {} rides a minute, seed {}",
        today.drivers, today.minutes, today.rides_per_minute, today.seed
    );
    for day in &days {
        println!("\n{}", told(day));
    }
    if let [greedy, batched] = figures.as_slice() {
        println!("\n{}", compared(greedy, batched));
    }
    println!("\nwrote {}", file.display());
    Ok(())
}

fn write_page(file: &PathBuf, text: &str) -> Result<()> {
    // A fresh clone has no such folder yet.
    let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder
        .and_then(|()| std::fs::write(file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn told(day: &Day) -> String {
    let figures = &day.figures;
    let spread = |spread: &Spread| {
        format!(
            "mean {:.0} s   p50 {} s   p95 {} s",
            spread.mean, spread.p50, spread.p95
        )
    };
    format!(
        "{}\n  \
           requests    {} ({} matched, {} cancelled, {} found nobody, {} completed)\n  \
           match rate  {:.1}%, with {:.2} offers for each match\n  \
           a yes       {}\n  \
           pickup      {}\n  \
           the car     {}\n  \
           calls       {} DynamoDB, {} Redis, {:.0} RCU, {:.0} WCU\n  \
           cost        ${:.3} for a thousand requests, in DynamoDB on demand\n  \
           took        {:.1} s",
        figures.matching.word(),
        figures.requests,
        figures.matched,
        figures.cancelled,
        figures.no_drivers,
        figures.completed,
        figures.match_rate_percent,
        figures.offers as f64 / figures.matched.max(1) as f64,
        spread(&figures.wait_for_a_yes_s),
        spread(&figures.pickup_s),
        spread(&figures.wait_for_the_car_s),
        figures.dynamodb_calls,
        figures.redis_calls,
        figures.rcu,
        figures.wcu,
        figures.dollars_per_thousand,
        figures.took_s,
    )
}

/// What batching changes.
pub fn compared(greedy: &Figures, batched: &Figures) -> String {
    let change = |from: f64, to: f64| 100.0 * (to - from) / from.max(0.001);
    format!(
        "batched against greedy: mean pickup {:+.1}%, total pickup {:.1} h → {:.1} h, the car {:+.1}%",
        change(greedy.pickup_s.mean, batched.pickup_s.mean),
        greedy.total_pickup_hours,
        batched.total_pickup_hours,
        change(
            greedy.wait_for_the_car_s.mean,
            batched.wait_for_the_car_s.mean
        ),
    )
}
