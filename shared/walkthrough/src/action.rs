//! An action and the calls it may make.

/// One action of an archetype in its two layers, written down once. The README, the walkthrough
/// and the checks all read it from here.
#[derive(Debug, Clone, Copy)]
pub struct Action {
    /// As the documents name it: `place bid`.
    pub name: &'static str,
    /// The entities it reads or writes: `["BidState", "BestBidState"]`.
    pub entities: &'static [&'static str],
    /// The write shape and the base mechanism: `append, append competitive child event`.
    pub abstract_layer: &'static str,
    /// The service's own call, in words.
    pub concrete_layer: &'static str,
    /// What it may call, one entry for each way it can go.
    pub calls: &'static [Calls],
}

/// One permitted sequence of calls.
///
/// Each element is a [shape](cloud::tap::Request::shape): `GetItem auctions`,
/// `TransactWriteItems [Update auctions if, Put bids if]`. An element, or a part inside the
/// brackets, may end in ` *` (any number of times, or none) or ` ×4` (exactly four times).
/// Elements that repeat together stand in round brackets: `(GetItem a; Query b *) ×4`.
/// A `{name}` stands for whatever is there in its place, since a Redis key or an S3 path holds
/// identities: `PUBLISH auction:{auction_id}`.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// The situation: `one item`, `separate best, rejected`.
    pub when: &'static str,
    /// The calls, in order.
    pub sequence: &'static [&'static str],
}

impl Action {
    /// The first declared way that these calls went, if any.
    pub fn way<S: AsRef<str>>(&self, shapes: &[S]) -> Option<&'static Calls> {
        let shapes: Vec<&str> = shapes.iter().map(AsRef::as_ref).collect();
        self.calls
            .iter()
            .find(|calls| in_order(calls.sequence, &shapes))
    }
}

impl Calls {
    /// Whether exactly these calls are permitted.
    pub fn permit<S: AsRef<str>>(&self, shapes: &[S]) -> bool {
        let shapes: Vec<&str> = shapes.iter().map(AsRef::as_ref).collect();
        in_order(self.sequence, &shapes)
    }
}

enum Times {
    Any,
    Exactly(usize),
}

fn in_order(declared: &[&str], seen: &[&str]) -> bool {
    let Some((first, rest)) = declared.split_first() else {
        return seen.is_empty();
    };
    let (element, times) = repetition(first);
    if let Some(group) = group(element) {
        let once = || {
            // Without an empty turn, or a group of stars would go round for ever.
            (1..=seen.len()).filter(|n| in_order(&group, &seen[..*n]))
        };
        return match times {
            Times::Exactly(0) => in_order(rest, seen),
            Times::Exactly(n) => {
                let left = format!("{element} ×{}", n - 1);
                let rest = [&[left.as_str()], rest].concat();
                (in_order(&group, &[]) && in_order(&rest, seen))
                    || once().any(|n| in_order(&rest, &seen[n..]))
            }
            Times::Any => in_order(rest, seen) || once().any(|n| in_order(declared, &seen[n..])),
        };
    }
    let alike = seen.iter().take_while(|seen| same(element, seen)).count();
    match times {
        Times::Exactly(n) => alike >= n && in_order(rest, &seen[n..]),
        Times::Any => (0..=alike).any(|n| in_order(rest, &seen[n..])),
    }
}

/// `(GetItem a; Query b *)` as its elements.
fn group(element: &str) -> Option<Vec<&str>> {
    let inner = element.strip_prefix('(')?.strip_suffix(')')?;
    Some(inner.split("; ").collect())
}

fn repetition(element: &str) -> (&str, Times) {
    if let Some(shape) = element.strip_suffix(" *") {
        return (shape, Times::Any);
    }
    match element.rsplit_once(" ×") {
        Some((shape, count)) => match count.parse() {
            Ok(count) => (shape, Times::Exactly(count)),
            Err(_) => (element, Times::Exactly(1)),
        },
        None => (element, Times::Exactly(1)),
    }
}

fn same(declared: &str, seen: &str) -> bool {
    match (parts(declared), parts(seen)) {
        (Some((operation, declared)), Some((other, seen))) => {
            operation == other && in_order(&declared, &seen)
        }
        (None, None) => filled(declared, seen),
        _ => false,
    }
}

/// `TransactWriteItems [Update auctions if, Put bids]` as its operation and its parts.
fn parts(shape: &str) -> Option<(&str, Vec<&str>)> {
    let (operation, list) = shape.strip_suffix(']')?.split_once(" [")?;
    Some((
        operation,
        list.split(", ").filter(|part| !part.is_empty()).collect(),
    ))
}

/// Whether `seen` is `declared` with something in the place of each `{name}`.
fn filled(declared: &str, seen: &str) -> bool {
    let hole = declared.split_once('{').and_then(|(before, rest)| {
        let (_, after) = rest.split_once('}')?;
        Some((before, after))
    });
    let Some((before, after)) = hole else {
        return declared == seen;
    };
    let Some(rest) = seen.strip_prefix(before) else {
        return false;
    };
    let ends = rest.char_indices().map(|(at, char)| at + char.len_utf8());
    ends.take_while(|end| !rest[..*end].ends_with(char::is_whitespace))
        .any(|end| filled(after, &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(sequence: &[&str], seen: &[&str]) -> bool {
        in_order(sequence, seen)
    }

    #[test]
    fn a_sequence_permits_exactly_its_calls_in_their_order() {
        let sequence = ["GetItem auctions", "UpdateItem auctions if"];
        assert!(permits(&sequence, &sequence));
        assert!(!permits(
            &sequence,
            &["UpdateItem auctions if", "GetItem auctions"]
        ));
        assert!(!permits(&sequence, &["GetItem auctions"]));
        assert!(!permits(
            &sequence,
            &["GetItem auctions", "UpdateItem auctions"]
        ));
        assert!(permits(&[], &[]));
        assert!(!permits(&[], &["GetItem auctions"]));
    }

    #[test]
    fn a_star_permits_any_number_of_times_and_none() {
        let sequence = ["Query due *", "Query due", "UpdateItem jobs if"];
        assert!(permits(&sequence, &["Query due", "UpdateItem jobs if"]));
        assert!(permits(
            &sequence,
            &["Query due", "Query due", "UpdateItem jobs if"]
        ));
        assert!(!permits(&sequence, &["UpdateItem jobs if"]));
    }

    #[test]
    fn a_count_permits_exactly_that_many() {
        assert!(permits(&["GetItem a ×2"], &["GetItem a", "GetItem a"]));
        assert!(!permits(&["GetItem a ×2"], &["GetItem a"]));
        assert!(!permits(
            &["GetItem a ×2"],
            &["GetItem a", "GetItem a", "GetItem a"]
        ));
    }

    #[test]
    fn a_group_repeats_as_a_whole() {
        let sequence = ["(GetItem a; Query b *) ×2", "PutItem c"];
        let permitted: [&[&str]; 3] = [
            &["GetItem a", "GetItem a", "PutItem c"],
            &["GetItem a", "Query b", "Query b", "GetItem a", "PutItem c"],
            &["GetItem a", "GetItem a", "Query b", "PutItem c"],
        ];
        for seen in permitted {
            assert!(permits(&sequence, seen), "{seen:?}");
        }
        assert!(!permits(&sequence, &["GetItem a", "PutItem c"]));
        assert!(!permits(
            &sequence,
            &["Query b", "GetItem a", "GetItem a", "PutItem c"]
        ));
        assert!(permits(&["(GetItem a; Query b) *"], &[]));
        assert!(!permits(&["(GetItem a; Query b) *"], &["GetItem a"]));
        assert!(permits(
            &["(Query a *; Query b *) ×3"],
            &["Query b", "Query a"]
        ));
    }

    #[test]
    fn the_parts_of_a_transaction_may_repeat() {
        let sequence = ["TransactWriteItems [Update seats if ×2, Put holds *]"];
        let seen = "TransactWriteItems [Update seats if, Update seats if, Put holds]";
        assert!(permits(&sequence, &[seen]));
        assert!(!permits(
            &sequence,
            &["TransactWriteItems [Update seats if]"]
        ));
    }

    #[test]
    fn a_placeholder_stands_for_an_identity() {
        let sequence = ["PUBLISH auction:{auction_id}:best"];
        assert!(permits(&sequence, &["PUBLISH auction:a-1:best"]));
        assert!(!permits(&sequence, &["PUBLISH auction::best"]));
        assert!(!permits(&sequence, &["PUBLISH auction:a-1:worst"]));
        assert!(permits(
            &["PutObject files/{key}"],
            &["PutObject files/a/b.txt"]
        ));
        assert!(!permits(
            &["PutObject files/{key}"],
            &["PutObject files/a if"]
        ));
    }
}
