//! The story, as it is committed.
#![allow(clippy::unwrap_used)]

#[tokio::test]
async fn the_transcript_equals_the_committed_one() {
    let transcript = walkthrough::walk_for_tests(&tagging::archetype())
        .await
        .unwrap();
    let text = without(&transcript.text(), "shardId-", |c| !" :".contains(c));
    let text = without(&text, "sequence_number ", |c| c.is_ascii_digit());
    expectorate::assert_contents("tests/walkthrough.txt", &text);
}

/// The text with dots for what follows `before`: the service's own numbers differ from run to run.
fn without(text: &str, before: &str, part: impl Fn(char) -> bool) -> String {
    let mut parts = text.split(before);
    let mut steady = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        steady.push_str(before);
        steady.push('…');
        steady.push_str(&rest[end..]);
    }
    steady
}
