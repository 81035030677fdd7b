//! Two operations at a time: one after the other ([`Operation::compose`]), or both at once
//! ([`Operation::transform`]). Both walk the two run by run, always by the shorter one's length.

use super::operation::split_chars;
use super::{Operation, OtError, Run};

/// What is left of the run in hand.
#[derive(Clone, Copy)]
enum Rest<'a> {
    Retain(usize),
    /// The text, and how many characters it has.
    Insert(&'a str, usize),
    Delete(usize),
}

/// A walk over an operation's runs, in steps of any length.
struct Walk<'a> {
    runs: std::slice::Iter<'a, Run>,
    head: Option<Rest<'a>>,
}

impl<'a> Walk<'a> {
    fn over(operation: &'a Operation) -> Self {
        let mut walk = Self {
            runs: operation.runs().iter(),
            head: None,
        };
        walk.next_run();
        walk
    }

    fn next_run(&mut self) {
        self.head = self.runs.next().map(|run| match run {
            Run::Retain(n) => Rest::Retain(*n),
            Run::Insert(text) => Rest::Insert(text, text.chars().count()),
            Run::Delete(n) => Rest::Delete(*n),
        });
    }

    fn retain_left(&mut self, left: usize) {
        match left {
            0 => self.next_run(),
            _ => self.head = Some(Rest::Retain(left)),
        }
    }

    fn delete_left(&mut self, left: usize) {
        match left {
            0 => self.next_run(),
            _ => self.head = Some(Rest::Delete(left)),
        }
    }

    fn insert_left(&mut self, text: &'a str, left: usize) {
        match left {
            0 => self.next_run(),
            _ => self.head = Some(Rest::Insert(text, left)),
        }
    }
}

impl Operation {
    /// This operation and then `after`, as one: `after` is made for the text that this one leaves.
    pub fn compose(&self, after: &Operation) -> Result<Operation, OtError> {
        let mismatch = OtError::NotConsecutive {
            first: self.target_len(),
            second: after.base_len(),
        };
        if self.target_len() != after.base_len() {
            return Err(mismatch);
        }
        let mut both = Operation::new();
        let (mut first, mut second) = (Walk::over(self), Walk::over(after));
        loop {
            match (first.head, second.head) {
                (None, None) => return Ok(both),
                // What the first deleted, the second never saw; what the second inserts, the first never saw.
                (Some(Rest::Delete(n)), _) => {
                    both.push_delete(n);
                    first.next_run();
                }
                (_, Some(Rest::Insert(text, n))) => {
                    both.push_insert(text, n);
                    second.next_run();
                }
                (Some(Rest::Retain(a)), Some(Rest::Retain(b))) => {
                    let n = a.min(b);
                    both.push_retain(n);
                    first.retain_left(a - n);
                    second.retain_left(b - n);
                }
                (Some(Rest::Retain(a)), Some(Rest::Delete(b))) => {
                    let n = a.min(b);
                    both.push_delete(n);
                    first.retain_left(a - n);
                    second.delete_left(b - n);
                }
                (Some(Rest::Insert(text, a)), Some(Rest::Retain(b))) => {
                    let n = a.min(b);
                    let (kept, rest) = split_chars(text, n);
                    both.push_insert(kept, n);
                    first.insert_left(rest, a - n);
                    second.retain_left(b - n);
                }
                (Some(Rest::Insert(text, a)), Some(Rest::Delete(b))) => {
                    let n = a.min(b);
                    first.insert_left(split_chars(text, n).1, a - n);
                    second.delete_left(b - n);
                }
                // The lengths agree, so neither ends before the other.
                (None, _) | (_, None) => return Err(mismatch),
            }
        }
    }

    /// Both operations were made on one text. Returns this one as it is after `other`, and `other` as it
    /// is after this one: either order leaves the same text. Where both insert at one place, what this one
    /// inserts stands first.
    pub fn transform(&self, other: &Operation) -> Result<(Operation, Operation), OtError> {
        let mismatch = OtError::NotConcurrent {
            left: self.base_len(),
            right: other.base_len(),
        };
        if self.base_len() != other.base_len() {
            return Err(mismatch);
        }
        let mut self_after = Operation::new();
        let mut other_after = Operation::new();
        let (mut left, mut right) = (Walk::over(self), Walk::over(other));
        loop {
            match (left.head, right.head) {
                (None, None) => return Ok((self_after, other_after)),
                (Some(Rest::Insert(text, n)), _) => {
                    self_after.push_insert(text, n);
                    other_after.push_retain(n);
                    left.next_run();
                }
                (_, Some(Rest::Insert(text, n))) => {
                    self_after.push_retain(n);
                    other_after.push_insert(text, n);
                    right.next_run();
                }
                (Some(Rest::Retain(a)), Some(Rest::Retain(b))) => {
                    let n = a.min(b);
                    self_after.push_retain(n);
                    other_after.push_retain(n);
                    left.retain_left(a - n);
                    right.retain_left(b - n);
                }
                (Some(Rest::Delete(a)), Some(Rest::Retain(b))) => {
                    let n = a.min(b);
                    self_after.push_delete(n);
                    left.delete_left(a - n);
                    right.retain_left(b - n);
                }
                (Some(Rest::Retain(a)), Some(Rest::Delete(b))) => {
                    let n = a.min(b);
                    other_after.push_delete(n);
                    left.retain_left(a - n);
                    right.delete_left(b - n);
                }
                // Both deleted it: nothing is left to do for either.
                (Some(Rest::Delete(a)), Some(Rest::Delete(b))) => {
                    let n = a.min(b);
                    left.delete_left(a - n);
                    right.delete_left(b - n);
                }
                (None, _) | (_, None) => return Err(mismatch),
            }
        }
    }
}
