//! Keys that cannot stand beside each other: the one that was said last, or higher up, counts.
//!
//! Two layers together must not make a policy of two kinds, or a limit on tokens that is given as a
//! total and in parts. Within one layer such keys are a mistake, and told as one.

use crate::sections::policy::Kind;

/// Whether a key of a table pushes another one out of it.
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
