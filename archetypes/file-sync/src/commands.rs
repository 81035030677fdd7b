//! The command line: `sync` keeps a directory and a folder of the store alike; `ls`, `log`, `restore`,
//! `share` and `gc` look at the store and change it.

use crate::bench::BENCH;
use crate::domain::{Actor, Entry, EntryId, EntryStatus, FileVersion, Kind, Permission};
use crate::sync::{Device, Report, Settings, SyncError};
use crate::{FileSync, FileSyncError};
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::{Backend, Cloud, Millis, Options};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use walkthrough::Command as Own;

/// All commands of this archetype.
pub const COMMANDS: [Own; 7] = [
    Own {
        name: "sync",
        about: "Make a directory and a folder of the store alike",
        args: sync_args,
        run: |cloud, args| Box::pin(async move { sync(cloud, &args).await }),
    },
    Own {
        name: "ls",
        about: "List a folder of the store",
        args: ls_args,
        run: |cloud, args| Box::pin(async move { say(&ls(cloud, &args).await?) }),
    },
    Own {
        name: "log",
        about: "List the versions of a file, newest first",
        args: log_args,
        run: |cloud, args| Box::pin(async move { say(&log(cloud, &args).await?) }),
    },
    Own {
        name: "restore",
        about: "Bring back a version of a file, also of a deleted one",
        args: restore_args,
        run: |cloud, args| Box::pin(async move { say(&restore(cloud, &args).await?) }),
    },
    Own {
        name: "share",
        about: "Share a file or folder with another user, or end that",
        args: share_args,
        run: |cloud, args| Box::pin(async move { say(&share(cloud, &args).await?) }),
    },
    Own {
        name: "gc",
        about: "Delete chunks that no version and no upload needs",
        args: gc_args,
        run: |cloud, args| Box::pin(async move { say(&gc(cloud, &args).await?) }),
    },
    BENCH,
];

/// Prints it. A reader that has gone away is an error, and no panic.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn whose() -> [Arg; 2] {
    let id = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("ID")
            .default_value(default)
            .help(help)
    };
    [
        id("tenant", "default", "Whose storage"),
        id("user", "me", "Who asks"),
    ]
}

/// Without `--data` the store is kept where programs keep such things: one that ends with the process would
/// be of no use to a directory.
fn kept() -> Arg {
    let arg = Arg::new("data")
        .long("data")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help("Where the embedded store is kept; ARCHETYPES_DATA says so, too");
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(set("HOME")?).join(".local/share"));
    let shared = || set("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    let chosen = set("ARCHETYPES_DATA")
        .or_else(|| Some(shared()?.join("archetypes/file-sync").into_os_string()));
    match chosen {
        Some(place) => arg.default_value(place),
        None => arg.required(true),
    }
}

/// Elsewhere, too, a store that ends with the process would take with it what was just said to be safe.
fn is_kept(backend: Backend, prefix: Option<&str>) -> Result<()> {
    match backend {
        Backend::Embedded => Ok(()),
        Backend::Docker => bail!(
            "the containers end with this process, and the store with them: use the embedded backend, or aws"
        ),
        Backend::Aws if prefix.is_some() => Ok(()),
        Backend::Aws => bail!(
            "say --prefix NAME: without one, what is created is removed when the command ends"
        ),
    }
}

fn entry_arg() -> Arg {
    Arg::new("entry")
        .long("entry")
        .value_name("ID")
        .conflicts_with("path")
        .help("In place of a path: what `ls --shared` and `ls --deleted` show in brackets")
}

fn json_arg() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Print JSON")
}

fn path_arg() -> Arg {
    Arg::new("path")
        .value_name("PATH")
        .help("As in photos/2026/one.jpg: the remote, then the path in it")
}

fn sync_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("dir")
                .value_name("DIR")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The directory"),
        )
        .arg(
            Arg::new("remote")
                .long("remote")
                .value_name("NAME")
                .required(true)
                .help("The folder of the store; made if it is not there"),
        )
        .arg(
            Arg::new("device")
                .long("device")
                .value_name("NAME")
                .help("What this directory is called in conflict copies [default: the one it has, else a fresh one]"),
        )
        .arg(
            Arg::new("watch")
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Go on until Ctrl-C"),
        )
        .arg(
            Arg::new("every")
                .long("every")
                .value_name("SECONDS")
                .value_parser(value_parser!(u64).range(1..=86_400))
                .default_value("2")
                .help("With --watch: how often to look"),
        )
        .args(whose())
        .arg(kept())
        .arg(json_arg())
}

fn ls_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .default_value("")
                .help("A folder; without it the top, where the remotes are"),
        )
        .arg(
            Arg::new("deleted")
                .long("deleted")
                .action(ArgAction::SetTrue)
                .conflicts_with("entry")
                .help("What was deleted and can be restored, everywhere below"),
        )
        .arg(
            Arg::new("shared")
                .long("shared")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["path", "deleted", "entry"])
                .help("What others share with this user"),
        )
        .arg(entry_arg())
        .args(whose())
        .arg(kept())
        .arg(json_arg())
}

fn log_args(command: Command) -> Command {
    command
        .args(whose())
        .arg(path_arg().required_unless_present("entry"))
        .arg(entry_arg())
        .arg(kept())
        .arg(json_arg())
}

fn restore_args(command: Command) -> Command {
    command
        .args(whose())
        .arg(path_arg().required_unless_present("entry"))
        .arg(entry_arg())
        .arg(
            Arg::new("version")
                .long("version")
                .value_name("N")
                .value_parser(value_parser!(u64).range(1..))
                .help("Which one [default: the last]"),
        )
        .arg(kept())
        .arg(json_arg())
}

fn share_args(command: Command) -> Command {
    command
        .args(whose())
        .arg(path_arg().required(true))
        .arg(
            Arg::new("with")
                .long("with")
                .value_name("USER")
                .required(true)
                .help("With whom"),
        )
        .arg(
            Arg::new("write")
                .long("write")
                .action(ArgAction::SetTrue)
                .help("They may change it, too"),
        )
        .arg(
            Arg::new("revoke")
                .long("revoke")
                .action(ArgAction::SetTrue)
                .conflicts_with("write")
                .help("End it"),
        )
        .arg(kept())
        .arg(json_arg())
}

fn gc_args(command: Command) -> Command {
    let [tenant, _] = whose();
    command
        .arg(tenant)
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Only say what it would do"),
        )
        .arg(kept())
        .arg(json_arg())
}

fn given<'a>(args: &'a ArgMatches, name: &str) -> &'a str {
    args.get_one::<String>(name).map_or("", String::as_str)
}

fn actor(args: &ArgMatches) -> Actor {
    Actor::new(given(args, "tenant"), given(args, "user"))
}

/// The name under which this command line changes something.
const SELF: &str = "command-line";

async fn sync(cloud: Cloud, args: &ArgMatches) -> Result<()> {
    let directory = args.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    if !directory.is_dir() {
        bail!("{} is not a directory", directory.display());
    }
    let prefix = args.get_one::<String>("prefix").cloned();
    is_kept(
        cloud.backend(),
        prefix.or(Options::from_env()?.prefix).as_deref(),
    )?;
    if cloud.backend() == Backend::Embedded {
        apart(&directory, args)?;
    }
    let json = args.get_flag("json");
    let settings = Settings {
        progress: bar(json)?,
        ..Settings::default()
    };
    let progress = settings.progress.clone();
    let device = args.get_one::<String>("device").map(String::as_str);
    let opening = Device::open(
        FileSync::new(cloud),
        actor(args),
        device,
        given(args, "remote"),
        &directory,
        settings,
    );
    let mut device = opening.await?;
    let every = args.get_one::<u64>("every").copied().unwrap_or(2);
    let watch = args.get_flag("watch");
    let interrupted = walkthrough::interrupted();
    tokio::pin!(interrupted);
    let mut first = true;
    let mut known_problems = Vec::new();
    let mut known_error = String::new();
    loop {
        // Dropped where it stands: what is half-written goes with it, all else the next sync finds. What
        // it had done is written down.
        let synced = tokio::select! {
            synced = device.sync() => synced,
            () = &mut interrupted => {
                progress.finish_and_clear();
                device.save()?;
                if watch {
                    return Ok(());
                }
                let _ = writeln!(
                    std::io::stderr(),
                    "interrupted; what was synced stays, and the next sync goes on"
                );
                return Err(walkthrough::Interrupted.into());
            }
        };
        progress.finish_and_clear();
        match synced {
            Ok(report) => {
                if first || !report.is_idle() {
                    say(&told(&report, json)?)?;
                }
                // A watch says once what it cannot sync, and not every two seconds.
                if report.problems != known_problems {
                    complain(&report);
                }
                let count = report.problems.len();
                if !watch && count > 0 {
                    bail!("{count} not synced");
                }
                known_problems = report.problems;
                known_error.clear();
            }
            // The store may be back the next time.
            Err(error) if watch && !matches!(error, SyncError::RemoteGone) => {
                let error = error.to_string();
                if error != known_error {
                    let _ = writeln!(std::io::stderr(), "not synced: {error}");
                }
                known_error = error;
            }
            Err(error) => return Err(error.into()),
        }
        if !watch {
            return Ok(());
        }
        first = false;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(every)) => {}
            () = &mut interrupted => return Ok(()),
        }
        progress.reset();
    }
}

/// The store must not be in the directory: it would be synced into itself, and grow without end. Nor the
/// other way round.
fn apart(directory: &Path, args: &ArgMatches) -> Result<()> {
    let Some(store) = args.get_one::<PathBuf>("data") else {
        return Ok(());
    };
    let (here, there) = (directory.canonicalize()?, store.canonicalize()?);
    if here.starts_with(&there) || there.starts_with(&here) {
        bail!(
            "the store is kept in {}, and {} is to be synced: neither may be in the other; choose with --data, and remove the first if it was made just now",
            there.display(),
            here.display()
        );
    }
    Ok(())
}

/// A bar where somebody sees it.
fn bar(json: bool) -> Result<ProgressBar> {
    let bar = ProgressBar::new(0);
    if json || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        return Ok(bar);
    }
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {pos}/{len} [{bar:24}] {elapsed} {msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(100));
    Ok(bar)
}

fn told(report: &Report, json: bool) -> Result<String> {
    if json {
        return Ok(format!("{}\n", serde_json::to_string(report)?));
    }
    let mut text = String::new();
    let lists = [
        ("made there", &report.made_there),
        ("made here", &report.made_here),
        ("published", &report.published),
        ("fetched", &report.fetched),
        ("deleted there", &report.deleted_there),
        ("deleted here", &report.deleted_here),
    ];
    for (word, paths) in lists {
        for path in paths {
            writeln!(text, "{word:<14}{path}")?;
        }
    }
    for (from, to) in &report.moved {
        writeln!(text, "{:<14}{from} → {to}", "moved there")?;
    }
    for (path, copy) in &report.conflicts {
        writeln!(text, "{:<14}{path}: this edit is now '{copy}'", "conflict")?;
    }
    for (path, name) in &report.renamed {
        writeln!(text, "{:<14}{path} is now '{name}'", "renamed")?;
    }
    let word = match (report.is_idle(), report.settled) {
        (_, false) => "not settled yet: sync again",
        (true, true) => "nothing to do",
        (false, true) => "done",
    };
    writeln!(
        text,
        "{word}; {} sent, {} fetched, {} found here",
        bytes(report.bytes_sent),
        bytes(report.bytes_fetched),
        bytes(report.bytes_reused)
    )?;
    Ok(text)
}

fn complain(report: &Report) {
    for (path, why) in &report.problems {
        let _ = writeln!(std::io::stderr(), "not synced: {path}: {why}");
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// `2026-01-01 00:00:00` in UTC.
fn time(at: Millis) -> String {
    let moment = chrono::DateTime::from_timestamp_millis(at).unwrap_or_default();
    moment.format("%Y-%m-%d %H:%M:%S").to_string()
}

/// The live entry at a path of the store.
async fn find(store: &FileSync, actor: &Actor, path: &str) -> Result<Option<Entry>> {
    let mut folder = EntryId::root();
    let mut found = None;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let listed = match store.list(actor, &folder).await {
            // A file on the way.
            Err(FileSyncError::NotFound(_)) => return Ok(None),
            listed => listed?,
        };
        let Some(entry) = listed.into_iter().find(|entry| entry.name == name) else {
            return Ok(None);
        };
        folder = entry.entry_id.clone();
        found = Some(entry);
    }
    Ok(found)
}

/// What was deleted and can be restored, with the path it had; the last deleted first. The feed still tells of
/// it. Whether it is purged by now, the entry itself says.
async fn deleted(store: &FileSync, actor: &Actor) -> Result<Vec<(String, Entry)>> {
    let mut entries: BTreeMap<EntryId, Entry> = BTreeMap::new();
    let mut cursor = 0;
    loop {
        let page = store.changes(actor, SELF, cursor).await?;
        for change in page.changes {
            entries.insert(change.entry.entry_id.clone(), change.entry);
        }
        cursor = page.cursor;
        if !page.more {
            break;
        }
    }
    let gone = |entry: &&Entry| entry.status == EntryStatus::Deleted && entry.kind == Kind::File;
    let ids: Vec<EntryId> = entries
        .values()
        .filter(gone)
        .map(|entry| entry.entry_id.clone())
        .collect();
    let mut found = Vec::new();
    for entry in store.read_entries(&actor.tenant, &ids).await? {
        if !gone(&&entry) {
            continue;
        }
        let mut path = entry.name.clone();
        let mut parent = entries.get(&entry.parent);
        while let Some(folder) = parent {
            path = format!("{}/{path}", folder.name);
            parent = entries.get(&folder.parent);
        }
        found.push((path, entry));
    }
    found.sort_by_key(|(_, entry)| std::cmp::Reverse(entry.deleted_at));
    Ok(found)
}

/// What was asked for, by path or by id: what is there, or what was there last.
async fn asked_for(store: &FileSync, actor: &Actor, args: &ArgMatches) -> Result<(String, Entry)> {
    if let Some(id) = args.get_one::<String>("entry") {
        let entry = store.view_entry(actor, &EntryId(id.clone())).await?;
        return Ok((entry.name.clone(), entry));
    }
    let path = given(args, "path").trim_matches('/').to_owned();
    let entry = match find(store, actor, &path).await? {
        Some(entry) => entry,
        None => {
            let gone = deleted(store, actor).await?;
            let last = gone.into_iter().find(|(was, _)| *was == path);
            last.with_context(|| nowhere(&path))?.1
        }
    };
    Ok((path, entry))
}

async fn find_or_say(store: &FileSync, actor: &Actor, path: &str) -> Result<Entry> {
    let found = find(store, actor, path).await?;
    found.with_context(|| nowhere(path))
}

fn nowhere(path: &str) -> String {
    format!("there is no '{path}' in the store; `ls` lists what is there, `ls --deleted` what was")
}

fn entry_json(entry: &Entry) -> Value {
    let mut value = serde_json::to_value(entry).unwrap_or_default();
    // What the store keeps for itself.
    if let Some(fields) = value.as_object_mut() {
        fields.remove("children");
    }
    value
}

fn entry_line(name: &str, entry: &Entry) -> String {
    match entry.kind {
        Kind::Folder => format!("{:>12}  {:>4}  {}  {name}/", "", "", time(entry.updated_at)),
        Kind::File => format!(
            "{:>12}  {:>4}  {}  {name}",
            bytes(entry.size),
            format!("v{}", entry.version),
            time(entry.updated_at)
        ),
    }
}

/// `ids`: whether they are shown, for what no path leads to.
fn listing(entries: Vec<(String, Entry)>, ids: bool, json: bool) -> Result<String> {
    if json {
        let all: Vec<Value> = entries
            .iter()
            .map(|(path, entry)| {
                let mut value = entry_json(entry);
                value["path"] = json!(path);
                value
            })
            .collect();
        return Ok(format!("{:#}\n", Value::from(all)));
    }
    let line = |(path, entry): &(String, Entry)| match ids {
        true => format!("{}  [{}]\n", entry_line(path, entry), entry.entry_id),
        false => format!("{}\n", entry_line(path, entry)),
    };
    Ok(entries.iter().map(line).collect())
}

async fn ls(cloud: Cloud, args: &ArgMatches) -> Result<String> {
    let store = FileSync::new(cloud);
    let (actor, json) = (actor(args), args.get_flag("json"));
    let path = given(args, "path").trim_matches('/');
    if args.get_flag("shared") {
        let shared = store.shared_with_me(&actor).await?;
        let named = shared.into_iter().map(|(share, entry)| {
            let name = format!("{} of {}", entry.name, share.granted_by);
            (name, entry)
        });
        return listing(named.collect(), true, json);
    }
    if args.get_flag("deleted") {
        let below = |name: &String| {
            path.is_empty()
                || name
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let gone = deleted(&store, &actor).await?;
        return listing(
            gone.into_iter().filter(|(name, _)| below(name)).collect(),
            true,
            json,
        );
    }
    let by_id = args.get_one::<String>("entry");
    let folder = match (by_id, path) {
        (None, "") => EntryId::root(),
        (by_id, path) => {
            let entry = match by_id {
                Some(id) => store.view_entry(&actor, &EntryId(id.clone())).await?,
                None => find_or_say(&store, &actor, path).await?,
            };
            if entry.kind == Kind::File {
                return listing(vec![(entry.name.clone(), entry)], false, json);
            }
            entry.entry_id
        }
    };
    let mut entries = store.list(&actor, &folder).await?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let named = entries.into_iter().map(|entry| (entry.name.clone(), entry));
    // By id came whoever has no path to it, nor to what is in it.
    listing(named.collect(), by_id.is_some(), json)
}

async fn log(cloud: Cloud, args: &ArgMatches) -> Result<String> {
    let store = FileSync::new(cloud);
    let actor = actor(args);
    let (path, entry) = asked_for(&store, &actor, args).await?;
    if entry.kind == Kind::Folder {
        bail!("'{path}' is a folder: files have versions");
    }
    let versions = store.log(&actor, &entry.entry_id).await?;
    if args.get_flag("json") {
        return Ok(format!("{:#}\n", serde_json::to_value(&versions)?));
    }
    let line = |version: &FileVersion| {
        let origin = match version.restored_from {
            Some(from) => format!("  restored from v{from}"),
            None => String::new(),
        };
        format!(
            "{:>4}  {:>12}  {}  {} on {}{origin}\n",
            format!("v{}", version.version),
            bytes(version.size),
            time(version.created_at),
            version.created_by,
            version.device
        )
    };
    Ok(versions.iter().map(line).collect())
}

async fn restore(cloud: Cloud, args: &ArgMatches) -> Result<String> {
    let store = FileSync::new(cloud);
    let actor = actor(args);
    let (path, entry) = asked_for(&store, &actor, args).await?;
    if entry.kind == Kind::Folder {
        bail!("'{path}' is a folder: files have versions");
    }
    let asked = args.get_one::<u64>("version").copied();
    let version = asked.unwrap_or(entry.version);
    let restored = store.restore_version(&actor, SELF, &entry.entry_id, version);
    let restored = match restored.await {
        Err(FileSyncError::NotFound(_)) => {
            bail!(
                "'{path}' has no version {version} that {} may restore",
                actor.user
            )
        }
        restored => restored?,
    };
    if args.get_flag("json") {
        return Ok(format!("{:#}\n", entry_json(&restored)));
    }
    if restored.version == version {
        return Ok(format!(
            "'{}' has version {version} already; choose an older one with --version\n",
            restored.name
        ));
    }
    Ok(format!(
        "'{}' has the content of version {version} again, as version {}\n",
        restored.name, restored.version
    ))
}

async fn share(cloud: Cloud, args: &ArgMatches) -> Result<String> {
    let store = FileSync::new(cloud);
    let actor = actor(args);
    let path = given(args, "path").trim_matches('/');
    let with = given(args, "with");
    let entry = find_or_say(&store, &actor, path).await?;
    let json = args.get_flag("json");
    if args.get_flag("revoke") {
        let was = store.unshare(&actor, &entry.entry_id, with).await?;
        return Ok(match (json, was) {
            (true, was) => format!("{:#}\n", json!({ "revoked": was })),
            (_, true) => format!("'{path}' is no longer shared with {with}\n"),
            (_, false) => format!("'{path}' was not shared with {with}\n"),
        });
    }
    let permission = match args.get_flag("write") {
        true => Permission::Write,
        false => Permission::Read,
    };
    let share = store
        .share(&actor, &entry.entry_id, with, permission)
        .await?;
    if json {
        return Ok(format!("{:#}\n", serde_json::to_value(&share)?));
    }
    let may = match permission {
        Permission::Read => "read",
        Permission::Write => "read and change",
    };
    Ok(format!("{with} may {may} '{path}'\n"))
}

async fn gc(cloud: Cloud, args: &ArgMatches) -> Result<String> {
    let store = FileSync::new(cloud);
    let dry_run = args.get_flag("dry-run");
    let done = store
        .garbage_collect(given(args, "tenant"), dry_run)
        .await?;
    if args.get_flag("json") {
        let value = json!({
            "dry_run": done.dry_run,
            "epoch": done.epoch,
            "reachable": done.reachable,
            "pinned": done.pinned,
            "deleted_chunks": done.condemned,
            "deleted_bytes": done.bytes(),
            "ended_uploads": done.expired,
            "purged_files": done.purged,
        });
        return Ok(format!("{value:#}\n"));
    }
    let would = if dry_run { "would delete" } else { "deleted" };
    let mut text = format!(
        "{} chunks are in use, {} are held by uploads\n{would} {} chunks, {}\n",
        done.reachable,
        done.pinned,
        done.condemned.len(),
        bytes(done.bytes())
    );
    for chunk in &done.condemned {
        writeln!(text, "  {}  {}", chunk.hash, bytes(u64::from(chunk.length)))?;
    }
    let ended = if dry_run { "would end" } else { "ended" };
    if !done.expired.is_empty() {
        writeln!(
            text,
            "{ended} {} uploads that took too long",
            done.expired.len()
        )?;
    }
    if !done.purged.is_empty() {
        let gone = if dry_run { "would forget" } else { "forgot" };
        writeln!(
            text,
            "{gone} {} files that were deleted long ago",
            done.purged.len()
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_ends_with_the_process_is_refused() {
        assert!(is_kept(Backend::Embedded, None).is_ok());
        assert!(is_kept(Backend::Aws, Some("mine")).is_ok());
        for (backend, word) in [(Backend::Docker, "containers"), (Backend::Aws, "--prefix")] {
            let refused = is_kept(backend, None).map_err(|error| error.to_string());
            assert!(refused.is_err_and(|told| told.contains(word)));
        }
    }
}
