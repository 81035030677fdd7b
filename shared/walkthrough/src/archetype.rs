//! All that an archetype says about itself, as data.

use crate::action::Action;
use crate::story::Story;
use anyhow::{Result, bail, ensure};
use cloud::Cloud;
use cloud::tables::{Index, Scope, Table};
use futures::future::BoxFuture;

/// An archetype: its tables, its actions, its state machines, and the story that walks them.
#[derive(Clone, Copy)]
pub struct Archetype {
    /// The package's name: `auction`.
    pub name: &'static str,
    /// `Auction: competitive window`.
    pub title: &'static str,
    /// The question it answers.
    pub question: &'static str,
    /// Its tables.
    pub tables: &'static [Table],
    /// What it needs besides tables: queues, buckets.
    pub resources: &'static [Resource],
    /// Its actions.
    pub actions: &'static [Action],
    /// The states its entities go through.
    pub machines: &'static [Machine],
    /// What a busy day looks like, for `cost`.
    pub workload: Workload,
    /// The walk. It asserts while it narrates.
    pub story: for<'a> fn(&'a mut Story) -> BoxFuture<'a, Result<()>>,
    /// Its own subcommands, such as `serve`.
    pub commands: &'static [Command],
}

/// A queue, a bucket or anything else that has to be there and can be removed again.
/// Both functions get clients beside the tap: setting up is not part of any action.
#[derive(Clone, Copy)]
pub struct Resource {
    /// What it is: `queue due-jobs`.
    pub name: &'static str,
    /// Creates it. It may be there already.
    pub create: fn(Cloud) -> BoxFuture<'static, Result<()>>,
    /// Removes it. It may be gone already.
    pub remove: fn(Cloud) -> BoxFuture<'static, Result<()>>,
}

/// A subcommand of the archetype's own.
///
/// It gets a cloud with the system's clock and UUIDs, and with the tables created. When Ctrl-C
/// comes it has one second to end by itself; then it is dropped.
#[derive(Clone, Copy)]
pub struct Command {
    /// `serve`.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Adds its arguments.
    pub args: fn(clap::Command) -> clap::Command,
    /// Runs it.
    pub run: fn(Cloud, clap::ArgMatches) -> BoxFuture<'static, Result<()>>,
}

/// The states one entity goes through.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// `AuctionState`.
    pub entity: &'static str,
    /// Its states.
    pub states: &'static [&'static str],
    /// How it gets from one to another.
    pub transitions: &'static [Transition],
}

/// One step of a [`Machine`].
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    /// The state it leaves; empty for creation.
    pub from: &'static str,
    /// The state it enters.
    pub to: &'static str,
    /// The action that does it.
    pub action: &'static str,
}

/// Shorthand for a [`Transition`].
pub const fn step(from: &'static str, to: &'static str, action: &'static str) -> Transition {
    Transition { from, to, action }
}

/// What a busy day looks like, per unit of rate.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// What `--rate` counts, in the plural: `bids`.
    pub unit: &'static str,
    /// How often each action happens for one such unit.
    pub mix: &'static [Share],
    /// How unevenly the keys are hit. What is not named here is spread evenly.
    pub skew: &'static [Skew],
    /// How many days an item is kept before it is deleted or archived. What a day adds is measured.
    pub kept_days: u32,
}

/// How often an action happens for one unit of rate.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The action.
    pub action: &'static str,
    /// Which of its ways ([`Calls::when`](crate::Calls::when)); empty for the average of all that
    /// the walk took.
    pub when: &'static str,
    /// Times for each unit: five views for a bid are `5.0`.
    pub per_unit: f64,
    /// Bytes that each leaves in S3. Declared, since a walk uploads toys.
    pub object_bytes: u64,
}

/// Shorthand for a [`Share`] over all ways of an action.
pub const fn share(action: &'static str, per_unit: f64) -> Share {
    Share {
        action,
        when: "",
        per_unit,
        object_bytes: 0,
    }
}

impl Share {
    /// Only this way of the action.
    pub const fn when(self, when: &'static str) -> Self {
        Self { when, ..self }
    }

    /// Each leaves so many bytes in S3.
    pub const fn storing(self, object_bytes: u64) -> Self {
        Self {
            object_bytes,
            ..self
        }
    }
}

/// What part of the traffic to a table or index hits its hottest partition key.
#[derive(Debug, Clone, Copy)]
pub struct Skew {
    /// The table or `table/index`.
    pub resource: &'static str,
    /// The action whose traffic this is; empty for every action without a skew of its own here.
    pub action: &'static str,
    /// From 0 (spread evenly) to 1 (all on one key).
    pub hottest: f64,
    /// Why so much.
    pub why: &'static str,
}

impl Archetype {
    /// The action of this name.
    pub fn action(&self, name: &str) -> Result<&'static Action> {
        let found = self.actions.iter().find(|action| action.name == name);
        let Some(found) = found else {
            let names: Vec<_> = self.actions.iter().map(|action| action.name).collect();
            bail!(
                "there is no action '{name}': {} declares {}",
                self.name,
                names.join(", ")
            );
        };
        Ok(found)
    }

    pub(crate) fn table(&self, name: &str) -> Option<&'static Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Tables and indexes as capacity is charged to them: `auctions`, `auctions/due`.
    pub(crate) fn charged(&self) -> Vec<String> {
        let each = self.tables.iter().flat_map(|table| {
            let indexes = table
                .indexes
                .iter()
                .map(|index| format!("{}/{}", table.name, index.name));
            std::iter::once(table.name.to_owned()).chain(indexes)
        });
        each.collect()
    }

    /// Whose partitions carry the load of this table or index: a local index has none of its own.
    pub(crate) fn partitioned_as<'a>(&self, charged: &'a str) -> &'a str {
        let Some((table, index)) = charged.split_once('/') else {
            return charged;
        };
        let indexes = self.table(table).map_or(&[][..], |table| table.indexes);
        let is_local = |found: &Index| found.name == index && found.scope == Scope::Local;
        if indexes.iter().any(is_local) {
            table
        } else {
            charged
        }
    }

    /// Creates tables and resources.
    pub async fn create(&self, cloud: &Cloud) -> Result<()> {
        cloud.create_tables(self.tables).await?;
        for resource in self.resources {
            (resource.create)(cloud.beside_tap()).await?;
        }
        Ok(())
    }

    /// Removes tables and resources.
    pub async fn remove(&self, cloud: &Cloud) -> Result<()> {
        for resource in self.resources {
            (resource.remove)(cloud.beside_tap()).await?;
        }
        cloud.delete_tables(self.tables).await?;
        Ok(())
    }

    /// Finds names that lead nowhere: this is data, and the compiler does not read it.
    pub fn check(&self) -> Result<()> {
        for (at, action) in self.actions.iter().enumerate() {
            let twice = self.actions[..at]
                .iter()
                .any(|other| other.name == action.name);
            ensure!(!twice, "the action '{}' is declared twice", action.name);
        }
        for machine in self.machines {
            for step in machine.transitions {
                self.action(step.action)?;
                for state in [step.from, step.to] {
                    let known =
                        machine.states.contains(&state) || state == step.from && state.is_empty();
                    ensure!(
                        known,
                        "{} has a transition at '{state}', which is none of its states",
                        machine.entity
                    );
                }
            }
        }
        for share in self.workload.mix {
            let action = self.action(share.action)?;
            let known =
                share.when.is_empty() || action.calls.iter().any(|calls| calls.when == share.when);
            ensure!(
                known,
                "the workload counts '{}' when '{}', which it does not declare",
                share.action,
                share.when
            );
            ensure!(
                share.per_unit >= 0.0 && share.per_unit.is_finite(),
                "the workload counts '{}' {} times",
                share.action,
                share.per_unit
            );
        }
        for skew in self.workload.skew {
            if !skew.action.is_empty() {
                self.action(skew.action)?;
            }
            ensure!(
                self.charged().iter().any(|name| name == skew.resource),
                "the workload has a skew on '{}', which is no table or index",
                skew.resource
            );
            ensure!(
                (0.0..=1.0).contains(&skew.hottest),
                "the skew on '{}' is {}, which is no fraction",
                skew.resource,
                skew.hottest
            );
        }
        Ok(())
    }
}
