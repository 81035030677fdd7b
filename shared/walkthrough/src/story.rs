//! A walk, step by step.

use crate::action::Action;
use crate::archetype::Archetype;
use crate::cost::{Cost, refused};
use crate::images::{Images, declared_in_answer};
use crate::terminal::Live;
use crate::transcript::{Entry, SeenCall, Step, Transcript};
use anyhow::{Context, Result, bail, ensure};
use cloud::Cloud;
use cloud::tap::Call;
use std::future::Future;
use std::sync::Arc;

/// Tells and does. An archetype's story gets one, and calls it from top to bottom.
pub struct Story {
    archetype: Archetype,
    cloud: Cloud,
    transcript: Transcript,
    live: Option<Live>,
}

impl Story {
    pub(crate) fn new(archetype: &Archetype, cloud: Cloud, live: Option<Live>) -> Self {
        Self {
            archetype: *archetype,
            cloud,
            transcript: Transcript::new(archetype),
            live,
        }
    }

    /// The cloud: a clock that is turned by hand, and counted ids.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// What has been told so far: a story may compare the costs of its own steps.
    pub fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Begins a new part.
    pub fn section(&mut self, title: &str, text: &str) {
        self.add(Entry::Section {
            title: title.to_owned(),
            text: text.to_owned(),
        });
    }

    /// Tells something.
    pub fn say(&mut self, text: &str) {
        self.add(Entry::Say(text.to_owned()));
    }

    /// Claims something, and fails if it does not hold.
    pub fn check(&mut self, holds: bool, claim: &str) -> Result<()> {
        ensure!(holds, "the story claims what does not hold: {claim}");
        self.add(Entry::Check(claim.to_owned()));
        Ok(())
    }

    /// Runs an action and shows it: the calls it made, the items it changed, what it cost.
    ///
    /// # Errors
    /// If `work` fails; if there is no such action; if the calls are none of the sequences the
    /// action declares; if one of them is a Scan; if an item has an attribute that its table does
    /// not declare.
    pub async fn step<T>(
        &mut self,
        action: &str,
        why: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let action = self.archetype.action(action)?;
        let number = self.transcript.steps().count() + 1;
        if let Some(live) = &mut self.live {
            live.before_step(number).await?;
        }
        let images = Arc::new(Images::new(self.archetype, &self.cloud));
        let (result, mut calls) = {
            let recording = self.cloud.tap().record();
            let _installed = self.cloud.tap().install(images.clone());
            (work.await, recording.take())
        };
        // Calls made at once are answered in any order; they leave in the same one every time.
        calls.sort_by_key(|call| call.left);
        let here = || format!("step {number}, {}", action.name);
        let result = result.with_context(here)?;
        let step = self
            .seen(number, action, why, &calls, &images)
            .await
            .with_context(here)?;
        self.add(Entry::Step(Box::new(step)));
        if let Some(live) = &mut self.live {
            live.still_heard()?;
        }
        Ok(result)
    }

    async fn seen(
        &self,
        number: usize,
        action: &Action,
        why: &str,
        calls: &[Call],
        images: &Images,
    ) -> Result<Step> {
        no_scan(calls)?;
        let shapes: Vec<String> = calls.iter().map(Call::shape).collect();
        let Some(way) = action.way(&shapes) else {
            let made = if shapes.is_empty() {
                "nothing".to_owned()
            } else {
                shapes.join("; ")
            };
            let declared = action
                .calls
                .iter()
                .map(|calls| format!("'{}': {}", calls.when, calls.sequence.join("; ")));
            let declared: Vec<_> = declared.collect();
            bail!(
                "it called what it does not declare. Called: {made}. Declared {}",
                declared.join(" | ")
            );
        };
        for call in calls {
            declared_in_answer(&self.archetype, call, &self.cloud)?;
        }
        let changes = images.changes().await?;
        let met = images.met();
        let mut seen = Vec::new();
        for call in calls {
            let images = met
                .get(&call.request.number)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let keys: Vec<_> = images
                .iter()
                .map(|image| {
                    self.archetype
                        .key_text(&image.touched.table, &image.touched.key)
                })
                .collect();
            let refused = refused(call, images)?;
            seen.push(SeenCall::new(call, &keys, refused.as_f64(), &self.cloud));
        }
        let cost = Cost::of(calls, &met, &changes, &self.archetype)?;
        Ok(Step {
            number,
            action: action.name.to_owned(),
            entities: action.entities.iter().map(ToString::to_string).collect(),
            why: why.to_owned(),
            abstract_layer: action.abstract_layer.to_owned(),
            concrete_layer: action.concrete_layer.to_owned(),
            when: way.when.to_owned(),
            calls: SeenCall::collapsed(seen),
            changes,
            cost,
        })
    }

    fn add(&mut self, entry: Entry) {
        if let Some(live) = &mut self.live {
            live.show(&entry);
        }
        self.transcript.entries.push(entry);
    }
}

/// A Scan reads, and bills, the whole table: no action of this suite may need one.
fn no_scan(calls: &[Call]) -> Result<()> {
    match calls.iter().find(|call| call.request.operation == "Scan") {
        Some(scan) => bail!(
            "it called {}: a Scan reads and bills the whole table",
            scan.shape()
        ),
        None => Ok(()),
    }
}

/// Walks the story without showing it.
///
/// # Errors
/// If the story fails, if an action is never walked, or if anything scans.
pub async fn walk(archetype: &Archetype, cloud: Cloud) -> Result<Transcript> {
    walk_shown(archetype, cloud, None).await
}

/// [`walk`] on a cloud for tests, which the environment chooses.
pub async fn walk_for_tests(archetype: &Archetype) -> Result<Transcript> {
    walk(archetype, cloud::connect_for_tests().await?).await
}

pub(crate) async fn walk_shown(
    archetype: &Archetype,
    cloud: Cloud,
    live: Option<Live>,
) -> Result<Transcript> {
    archetype.check()?;
    archetype.create(&cloud).await?;
    // From here to the end, so that a Scan between two steps is found as well.
    let recording = cloud.tap().record();
    let mut story = Story::new(archetype, cloud, live);
    if let Some(live) = &mut story.live {
        live.begin(&story.transcript);
    }
    (archetype.story)(&mut story).await?;
    no_scan(&recording.take()).context("between the steps")?;
    let walked = |action: &&Action| {
        story
            .transcript
            .steps()
            .any(|step| step.action == action.name)
    };
    let missing = archetype.actions.iter().filter(|action| !walked(action));
    let missing: Vec<_> = missing.map(|action| action.name).collect();
    ensure!(
        missing.is_empty(),
        "the story never walks: {}",
        missing.join(", ")
    );
    if let Some(live) = &mut story.live {
        live.end(&story.transcript);
        live.still_heard()?;
    }
    Ok(story.transcript)
}
