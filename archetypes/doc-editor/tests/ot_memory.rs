//! What a document takes in memory, counted by the allocator. Alone in its binary: the count is of the whole
//! process.
#![allow(clippy::unwrap_used)]

use doc_editor::ot::{Operation, Text};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Types at the end until the text has `len` characters, then goes on all over it, one in and one out, and returns
/// how many bytes are held at the end.
fn held_after(len: usize, keystrokes: usize) -> usize {
    let before = Region::new(COUNTED);
    let mut document = Text::default();
    for key in 0..keystrokes {
        let at = match document.len() < len {
            true => document.len(),
            false => key * 7_919 % len,
        };
        let operation = Operation::new().retain(at);
        let operation = match document.len() < len {
            true => operation.insert("k").retain(document.len() - at),
            false => operation.delete(1).retain(document.len() - at - 1),
        };
        document.apply(&operation).unwrap();
    }
    let held = before.change();
    assert!(document.len() >= len - 1);
    held.bytes_allocated - held.bytes_deallocated
}

#[test]
fn memory_is_proportional_to_the_document_not_to_its_log() {
    let short_log = held_after(10_000, 20_000);
    let long_log = held_after(10_000, 100_000);
    let long_text = held_after(40_000, 100_000);
    // 100,000 operations of at least two numbers and a letter would be megabytes.
    assert!(long_log < 4 * 10_000, "{long_log} bytes");
    assert!(long_log < 2 * short_log, "{short_log} and {long_log}");
    assert!(long_text < 5 * long_log, "{long_log} and {long_text}");
    assert!(long_text > 40_000, "counts nothing: {long_text}");
}
