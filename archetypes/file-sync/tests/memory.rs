//! How much memory chunking takes: counted by the allocator, so alone in its process.

use file_sync::chunking::{Chunker, Sizes};
use peak_alloc::PeakAlloc;
use std::io::{self, Read};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[test]
fn a_file_of_any_size_takes_the_same_memory() {
    let mut chunker = Chunker::new(Sizes::DEFAULT);
    chunker.threads = 3;
    assert_eq!(chunker.memory(), 13 << 20);
    for megabytes in [1, 40, 400] {
        let bytes = megabytes << 20;
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let found = chunker.chunk(io::repeat(7).take(bytes));
        let most = ALLOCATOR.peak_usage() - before;
        assert_eq!(found.map(|found| found.size).ok(), Some(bytes));
        // Beside the bytes: the list of chunks, and what threads need.
        let room = chunker.memory() + (1 << 20);
        assert!(most < room, "{most} bytes for {megabytes} MB");
    }
}
