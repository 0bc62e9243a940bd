//! Keys that exclude each other. The key of the higher layer, or the one set later, wins.
//!
//! Merging two layers must not produce a policy of two kinds, or a token limit that is given both
//! as a total and in parts. Within one layer such keys are an error.

use crate::sections::policy::Kind;

/// Returns whether the key `above` of a table excludes the key `below`.
pub(crate) fn conflict(table: &[impl AsRef<str>], above: &str, below: &str) -> bool {
    let table: Vec<&str> = table.iter().map(AsRef::as_ref).collect();
    match table.as_slice() {
        ["limits", _] => of_policy(above, below),
        ["providers", _] => of_tokens(above, below),
        _ => false,
    }
}

fn of_policy(above: &str, below: &str) -> bool {
    const RATES: [&str; 2] = ["rate", "tokens_per_second"];
    match (Kind::of(above), Kind::of(below)) {
        (Some((above, _)), Some((below, _))) if above != below => true,
        _ => above != below && RATES.contains(&above) && RATES.contains(&below),
    }
}

fn of_tokens(above: &str, below: &str) -> bool {
    const TOTAL: &str = "tokens_per_minute";
    const PARTS: [&str; 2] = ["input_tokens_per_minute", "output_tokens_per_minute"];
    (above == TOTAL && PARTS.contains(&below)) || (below == TOTAL && PARTS.contains(&above))
}
