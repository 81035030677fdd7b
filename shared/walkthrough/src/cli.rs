//! The command line that every archetype has.

use crate::archetype::{Archetype, Command as Own};
use crate::story::walk_shown;
use crate::terminal::{Live, Look};
use crate::{listing, walk, workload};
use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use cloud::{Backend, Clock, Cloud, Ids, Options, TEST_EPOCH};
use serde_json::Value;
use std::fmt;
use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The `main` of every archetype: `walkthrough::main(archetype())`.
///
/// Ends with 0, with 1 and a line on standard error, with 2 if it was called wrongly, or with 130
/// after Ctrl-C.
pub fn main(archetype: Archetype) -> ExitCode {
    let mut command = command(&archetype);
    let matches = command.get_matches_mut();
    if let Err(error) = understood(&mut command, &matches) {
        error.exit();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let done = runtime.block_on(run(&archetype, &matches));
    // A read from the terminal cannot be taken back; do not wait for it.
    runtime.shutdown_background();
    match done {
        Ok(End::Done) => ExitCode::SUCCESS,
        Ok(End::Interrupted) => ExitCode::from(130),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    if causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
        // Whoever read this has read enough, as `head` does.
        return ExitCode::SUCCESS;
    }
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::FAILURE
}

enum End {
    Done,
    Interrupted,
}

/// The command line, as data.
pub fn command(archetype: &Archetype) -> Command {
    let json = || {
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print JSON")
    };
    let walking = |command: Command| {
        command
            .arg(
                Arg::new("step")
                    .long("step")
                    .action(ArgAction::SetTrue)
                    .conflicts_with_all(["json", "html"])
                    .help("Wait for Enter between steps; at the end of the input, go on without waiting"),
            )
            .arg(json().help("Print the transcript as JSON, in place of the story"))
            .arg(
                Arg::new("html")
                    .long("html")
                    .value_name("FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("Write one self-contained page, in place of the story"),
            )
    };
    let mut command = walking(Command::new(archetype.name))
        .about(format!("{}\n{}", archetype.title, archetype.question))
        .after_help("Without a command it walks.")
        .arg(
            Arg::new("backend")
                .long("backend")
                .global(true)
                .value_parser(["embedded", "docker", "aws"])
                .help("Where the services run [default: ARCHETYPES_BACKEND, else embedded]"),
        )
        .arg(
            Arg::new("data")
                .long("data")
                .global(true)
                .value_name("DIR")
                .value_parser(clap::value_parser!(PathBuf))
                .help("Keep the embedded store here; walk and cost always begin empty [default: ARCHETYPES_DATA]"),
        )
        .arg(
            Arg::new("prefix")
                .long("prefix")
                .global(true)
                .value_parser(prefix)
                .help("Begin the name of everything created with this [default: ARCHETYPES_PREFIX, else a fresh one]"),
        )
        .subcommand(walking(Command::new("walk").about("Walk through every action, with the calls it really makes")))
        .subcommand(Command::new("actions").about("List the actions: both layers, and the calls each may make").arg(json()))
        .subcommand(Command::new("tables").about("List the tables: keys, indexes, attributes and their reasons").arg(json()))
        .subcommand(
            Command::new("cost")
                .about("Price the workload: units per second, the hottest partition, dollars per month")
                .arg(
                    Arg::new("rate")
                        .long("rate")
                        .value_name("N")
                        .value_parser(rate)
                        .allow_negative_numbers(true)
                        .default_value("100")
                        .help(format!("{} per second", capitalized(archetype.workload.unit))),
                )
                .arg(json()),
        )
        .subcommand(Command::new("cloudformation").about("Print a CloudFormation template of the tables"))
        .subcommand(Command::new("teardown").about("Remove what was created under --prefix, or in --data, with everything in it"));
    for own in archetype.commands {
        command = command.subcommand((own.args)(Command::new(own.name).about(own.about)));
    }
    command
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(chars).collect()
    })
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text
        .replace([',', '_'], "")
        .parse()
        .map_err(|_| "not a number".to_owned())?;
    if !(rate > 0.0 && rate <= 1e9) {
        return Err("the rate must be above 0, and at most a billion".into());
    }
    Ok(rate)
}

/// Tables would take more, buckets would not.
fn prefix(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        || !text.chars().all(plain)
    {
        return Err("use lower-case letters, digits and hyphens".into());
    }
    if text.len() > 30 {
        return Err("use at most 30 characters".into());
    }
    Ok(text.to_owned())
}

/// What clap cannot say by itself.
fn understood(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let for_walk =
        matches.get_flag("step") || matches.get_flag("json") || matches.contains_id("html");
    match matches.subcommand_name() {
        Some(name) if for_walk => {
            let text = format!("--step, --json and --html go behind the command: '{name} --json'");
            Err(command.error(ErrorKind::ArgumentConflict, text))
        }
        _ => Ok(()),
    }
}

async fn run(archetype: &Archetype, matches: &ArgMatches) -> Result<End> {
    archetype.check()?;
    let look = Look::of_stdout();
    let (name, given) = matches.subcommand().unwrap_or(("walk", matches));
    let json = |given: &ArgMatches| given.get_flag("json");
    match name {
        "walk" => return walking(archetype, given, look).await,
        "actions" if json(given) => print_json(&listing::actions_json(archetype))?,
        "actions" => print(&listing::actions(archetype, &look))?,
        "tables" if json(given) => print_json(&listing::tables_json(archetype))?,
        "tables" => print(&listing::tables(archetype, &look))?,
        "cloudformation" => print_json(&cloud::tables::cloudformation(archetype.tables))?,
        "cost" => {
            let rate = given.get_one("rate").copied().unwrap_or(100.0);
            let Some(estimate) = unless_interrupted(measured(archetype, rate)).await? else {
                return Ok(End::Interrupted);
            };
            match json(given) {
                true => print_json(&estimate.json())?,
                false => print(&estimate.text(&look))?,
            }
        }
        "teardown" => return teardown(archetype, given).await,
        name => {
            let own = archetype.commands.iter().find(|own| own.name == name);
            return own_command(archetype, own.context("no such command")?, given).await;
        }
    }
    Ok(End::Done)
}

/// The environment's choice, and what the command line says otherwise.
fn options(given: &ArgMatches) -> Result<Options> {
    let mut options = Options::from_env()?;
    if let Some(backend) = given.get_one::<String>("backend") {
        options.backend = backend.parse()?;
    }
    if let Some(data) = given.get_one::<PathBuf>("data") {
        options.data = Some(data.clone());
    }
    if let Some(prefix) = given.get_one::<String>("prefix") {
        options.prefix = Some(prefix.clone());
    }
    if options.backend != Backend::Embedded {
        options.data = None;
    }
    Ok(options)
}

/// A walk begins with nothing and leaves nothing: counted ids would meet those of the last walk,
/// and tables that somebody uses must not be removed with it.
fn options_for_walking(mut options: Options) -> Options {
    options.clock = Clock::manual(TEST_EPOCH);
    options.ids = Ids::counted();
    options.data = None;
    if let Some(prefix) = &mut options.prefix {
        let id = Ids::Uuid.next("walk");
        *prefix = format!(
            "{}-walk-{}",
            prefix.trim_end_matches('-'),
            &id[id.len() - 8..]
        );
    }
    options
}

async fn walking(archetype: &Archetype, given: &ArgMatches, look: Look) -> Result<End> {
    let html = given.get_one::<PathBuf>("html");
    let json = given.get_flag("json");
    let live = (html.is_none() && !json).then(|| Live::new(look, given.get_flag("step")));
    let options = options_for_walking(options(given)?);
    let Some(cloud) = unless_interrupted(async { Ok(cloud::connect_with(options).await?) }).await?
    else {
        return Ok(End::Interrupted);
    };
    let walked = unless_interrupted(walk_shown(archetype, cloud.clone(), live)).await;
    let removed = match cloud.backend() {
        Backend::Embedded => Ok(()),
        _ => remove(archetype, &cloud).await,
    };
    // Why the walk failed is the news; what was left behind is said as well.
    let walked = match (walked, removed) {
        (Err(error), Err(left)) => bail!("{error:#}; and {left:#}"),
        (walked, removed) => {
            let walked = walked?;
            removed?;
            walked
        }
    };
    let Some(transcript) = walked else {
        return Ok(End::Interrupted);
    };
    if json {
        print_json(&transcript.json())?;
    }
    if let Some(file) = html {
        // `--html target/page.html` in a fresh clone: the folder is not there yet.
        let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder
            .and_then(|()| std::fs::write(file, transcript.html(archetype)))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let _ = writeln!(
            io::stderr(),
            "wrote {}: {} steps",
            file.display(),
            transcript.steps().count()
        );
    }
    Ok(End::Done)
}

async fn remove(archetype: &Archetype, cloud: &Cloud) -> Result<()> {
    let left = || {
        let prefix = cloud.names().prefix().trim_end_matches('-');
        format!(
            "what was created is still there, remove it with: {} teardown --backend aws --prefix {prefix}",
            archetype.name
        )
    };
    let removed = unless_interrupted(archetype.remove(cloud))
        .await
        .with_context(left)?;
    removed.with_context(left)
}

/// Units per action are measured where it costs nothing, whatever backend is chosen.
async fn measured(archetype: &Archetype, rate: f64) -> Result<workload::Estimate> {
    let mut options = Options::from_env()?;
    options.backend = Backend::Embedded;
    let cloud = cloud::connect_with(options_for_walking(options)).await?;
    let transcript = walk(archetype, cloud).await?;
    workload::estimate(archetype, &transcript, rate)
}

async fn teardown(archetype: &Archetype, given: &ArgMatches) -> Result<End> {
    let options = options(given)?;
    match (options.backend, &options.data, &options.prefix) {
        (Backend::Embedded, None, _) => {
            print(
                "Without --data there is nothing to remove: the embedded backend keeps nothing, but for commands whose --help names a place.\n",
            )?;
            return Ok(End::Done);
        }
        (Backend::Docker, ..) => {
            print("The containers end with the process that started them: nothing to remove.\n")?;
            return Ok(End::Done);
        }
        (Backend::Aws, _, None) => {
            bail!("teardown needs --prefix: it removes what was created under it, and nothing else")
        }
        _ => {}
    }
    let removing = async {
        let cloud = cloud::connect_with(options).await?;
        archetype.remove(&cloud).await?;
        Ok(cloud)
    };
    let Some(cloud) = unless_interrupted(removing).await? else {
        return Ok(End::Interrupted);
    };
    let tables = archetype
        .tables
        .iter()
        .map(|table| cloud.names().table(table.name));
    let resources = archetype
        .resources
        .iter()
        .map(|resource| resource.name.to_owned());
    let all: Vec<_> = tables.chain(resources).collect();
    print(&format!("removed {}\n", all.join(", ")))?;
    Ok(End::Done)
}

/// How long an archetype's own command has after Ctrl-C to end by itself.
const GRACE: Duration = Duration::from_secs(1);

async fn own_command(archetype: &Archetype, own: &Own, given: &ArgMatches) -> Result<End> {
    let options = options(given)?;
    // Under a name that somebody gave, things are there to be found again.
    let lasting = options.prefix.is_some() || options.backend == Backend::Embedded;
    let connecting = async { Ok(cloud::connect_with(options).await?) };
    let Some(cloud) = unless_interrupted(connecting).await? else {
        return Ok(End::Interrupted);
    };
    let working = async {
        archetype.create(&cloud).await?;
        (own.run)(cloud.clone(), given.clone()).await
    };
    tokio::pin!(working);
    let done = tokio::select! {
        done = &mut working => done.map(|()| End::Done),
        () = interrupted() => tokio::select! {
            done = &mut working => done.map(|()| End::Done),
            () = interrupted() => Ok(End::Interrupted),
            () = tokio::time::sleep(GRACE) => Ok(End::Interrupted),
        },
    };
    if !lasting {
        remove(archetype, &cloud).await?;
    }
    match done {
        Err(error) if error.is::<Interrupted>() => Ok(End::Interrupted),
        done => done,
    }
}

/// An archetype's own command that was interrupted, has ended by itself, and has not done what it was asked
/// for, ends with this: the process then ends as after Ctrl-C.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// What came of it, or nothing if Ctrl-C came first. `work` is then dropped where it stands.
async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        done = work => done.map(Some),
        () = interrupted() => Ok(None),
    }
}

/// Ctrl-C, or a polite request to end.
pub async fn interrupted() {
    let ctrl_c = async {
        // Without a handler there is nothing to wait for, and the signal ends the process anyway.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = ctrl_c => {}
        () = terminate => {}
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn print_json(value: &Value) -> Result<()> {
    print(&format!("{value:#}\n"))
}
