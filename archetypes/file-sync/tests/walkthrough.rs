//! The story, as it is committed.
#![allow(clippy::unwrap_used)]

#[tokio::test]
async fn the_transcript_equals_the_committed_one() {
    let transcript = walkthrough::walk_for_tests(&file_sync::archetype())
        .await
        .unwrap();
    expectorate::assert_contents("tests/walkthrough.txt", &transcript.text());
}
