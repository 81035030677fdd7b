//! Two devices with random edits, crashes and a network that loses things become alike, and nothing that
//! was acknowledged is lost. By seed; every schedule is on a real store. Whoever changes the device looks further
//! once, with other seeds at the end of this file.
#![allow(clippy::unwrap_used)]

mod devices;

use chaos::{Faults, Tokenless};
use devices::{AtCall, Devices, cloud, fingerprint};
use file_sync::ChunkHash;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;

/// Few names, so that the devices meet; a file and a folder of the same name, too.
const FILES: [&str; 6] = [
    "a.txt",
    "b.txt",
    "both",
    "both/c.txt",
    "dir/d.txt",
    "dir/deep/e",
];
const FOLDERS: [&str; 3] = ["both", "dir/deep", "empty"];

/// One thing that somebody does in a directory. What cannot be done is not done.
fn edit(at: &Path, random: &mut SmallRng) {
    let file = at.join(FILES.choose(random).unwrap());
    match random.random_range(0..10) {
        0..4 => {
            let mut content = vec![0; random.random_range(0..300)];
            random.fill_bytes(&mut content);
            make_room(&file);
            let _ = fs::write(&file, content);
        }
        4..7 => {
            if let Ok(mut content) = fs::read(&file) {
                let place = random.random_range(0..=content.len());
                content.insert(place, random.random());
                let _ = fs::write(&file, content);
            }
        }
        7 => {
            let to = at.join(FILES.choose(random).unwrap());
            make_room(&to);
            if !to.exists() && file.is_file() {
                let _ = fs::rename(&file, to);
            }
        }
        8 => {
            let _ = fs::remove_file(&file);
        }
        _ => {
            let folder = at.join(FOLDERS.choose(random).unwrap());
            if fs::remove_dir(&folder).is_err() {
                let _ = fs::create_dir_all(&folder);
            }
        }
    }
}

/// The folder for a file; somebody who wants one there may remove a file for it.
fn make_room(file: &Path) {
    let parent = file.parent().unwrap();
    if parent.is_file() {
        let _ = fs::remove_file(parent);
    }
    let _ = fs::create_dir_all(parent);
}

/// What the schedules met, so that we know that they met something.
#[derive(Debug, Default)]
struct Met {
    deaths: usize,
    losses: usize,
    edits_during: usize,
    conflicts: usize,
    acknowledged: usize,
    failed_syncs: usize,
}

fn contents(devices: &Devices, device: usize) -> BTreeSet<ChunkHash> {
    let tree = devices.tree(device);
    let files = tree.values().flatten();
    files.map(|content| fingerprint(content)).collect()
}

async fn schedule(cloud: &cloud::Cloud, seed: u64, met: &mut Met) {
    let mut random = SmallRng::seed_from_u64(seed);
    let devices = Devices::on(cloud, &format!("tenant-{seed}"));
    let mut acknowledged = BTreeSet::new();
    for _ in 0..3 {
        let device = random.random_range(0..2);
        let directory = devices.directories[device].path().to_owned();
        for _ in 0..random.random_range(1..3) {
            edit(&directory, &mut random);
        }
        // The other device edits as well, and syncs later.
        if random.random() {
            edit(devices.directories[1 - device].path(), &mut random);
        }
        let call = random.random_range(1..25);
        let before = random.random();
        match random.random_range(0..5) {
            // The process dies at some call, which was carried out or was not.
            0 | 1 => {
                let dead = Arc::new(Notify::new());
                let tell = Arc::clone(&dead);
                let plan = AtCall::new(call, before, true, move || tell.notify_one());
                let _installed = cloud.tap().install(Arc::new(plan));
                tokio::select! {
                    report = devices.try_sync(device) => drop(report.unwrap()),
                    () = dead.notified() => met.deaths += 1,
                }
            }
            // The network loses requests and answers, and the store has too much to do.
            2 => {
                let faults = Faults::seeded(seed)
                    .throttle(0.05)
                    .lose_request(0.1)
                    .lose_answer(0.1);
                let faults = Arc::new(faults);
                let _tokenless = cloud.tap().install(Arc::new(Tokenless));
                let _installed = cloud.tap().install(faults.clone());
                match devices.try_sync(device).await {
                    Ok(report) => {
                        if report.settled && report.problems.is_empty() {
                            acknowledged.extend(contents(&devices, device));
                        }
                    }
                    Err(_) => met.failed_syncs += 1,
                }
                met.losses += faults.injected().values().sum::<usize>();
            }
            // Somebody edits while it syncs.
            3 => {
                let mut theirs = SmallRng::seed_from_u64(seed ^ 0xed17);
                let act = move || edit(&directory, &mut theirs);
                let plan = AtCall::new(call, before, false, act);
                let _installed = cloud.tap().install(Arc::new(plan));
                devices.try_sync(device).await.unwrap();
                met.edits_during += 1;
            }
            _ => {
                devices.sync(device).await;
                acknowledged.extend(contents(&devices, device));
            }
        }
    }
    // Also what nobody has acknowledged yet, but is in a directory, must not be lost by what comes.
    acknowledged.extend(contents(&devices, 0));
    acknowledged.extend(contents(&devices, 1));
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1), "seed {seed}: they differ");
    let history = devices.history().await;
    let lost: Vec<_> = acknowledged.difference(&history).collect();
    assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
    assert_eq!((devices.leftovers(0), devices.leftovers(1)), (0, 0));
    let copies = devices.tree(0).into_keys();
    met.conflicts += copies
        .filter(|name| name.contains("conflicted copy"))
        .count();
    met.acknowledged += acknowledged.len();
}

async fn schedules(seeds: std::ops::Range<u64>) {
    let cloud = cloud().await;
    let mut met = Met::default();
    for seed in seeds {
        schedule(&cloud, seed, &mut met).await;
    }
    println!("{met:?}");
    assert!(met.deaths > 10 && met.losses > 30, "{met:?}");
    assert!(met.conflicts > 2 && met.edits_during > 10, "{met:?}");
    assert!(met.acknowledged > 80, "{met:?}");
}

#[tokio::test]
async fn two_devices_converge_and_lose_nothing_1() {
    schedules(0..50).await;
}

#[tokio::test]
async fn two_devices_converge_and_lose_nothing_2() {
    schedules(50..100).await;
}

#[tokio::test]
async fn two_devices_converge_and_lose_nothing_3() {
    schedules(100..150).await;
}

#[tokio::test]
async fn two_devices_converge_and_lose_nothing_4() {
    schedules(150..200).await;
}
