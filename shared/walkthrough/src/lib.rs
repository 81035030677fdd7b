//! Actions as data, the story that walks them, and the `main` that every archetype calls.
//!
//! An action is written down once, as an [`Action`]: what it writes, its abstract layer, its
//! concrete layer, and the calls it may make. A [`Story`] then runs it. Each [`Story::step`] shows
//! the calls that were really made, next to what the action says, with what changed in which item
//! and what it cost, and fails if the calls are not the declared ones. The same data fills the
//! README and prices a workload, so none of them can drift from what the code does.
//!
//! In reading order:
//! - [`action`]: an action and the calls it may make;
//! - [`archetype`]: all that an archetype says about itself;
//! - [`story`]: a walk, step by step;
//! - `images`: items before and after, read beside the tap;
//! - [`transcript`]: what a walk leaves behind;
//! - [`cost`]: what a step costs;
//! - [`workload`]: what many of them cost in a month;
//! - [`terminal`], [`html`], [`diagram`], [`readme`]: ways to show it;
//! - [`cli`]: the command line.

pub mod action;
pub mod archetype;
pub mod cli;
pub mod cost;
pub mod diagram;
pub mod html;
mod images;
mod listing;
pub mod readme;
pub mod story;
pub mod terminal;
pub mod transcript;
pub mod workload;

pub use action::{Action, Calls};
pub use archetype::{
    Archetype, Command, Machine, Resource, Share, Skew, Transition, Workload, share, step,
};
pub use cli::{Interrupted, interrupted, main};
pub use futures::future::BoxFuture;
pub use story::{Story, walk, walk_for_tests};
pub use transcript::{Change, Entry, SeenCall, Step, Transcript};
