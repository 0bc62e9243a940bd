//! Bounded model names. Callers choose the names, so their length is limited wherever they are
//! stored.

use std::borrow::Cow;

use tidegate_providers::name::short_hash;

/// Maximum length of a name that is kept as it is, in bytes.
const LONGEST: usize = 128;
/// Length of the prefix of a longer name that is kept before its hash.
const KEPT: usize = 100;

/// Shortens a long model name to a prefix and a hash.
#[must_use]
pub fn bounded(model: &str) -> Cow<'_, str> {
    if model.len() <= LONGEST {
        return model.into();
    }
    let end = (0..=KEPT).rev().find(|end| model.is_char_boundary(*end)).unwrap_or(0);
    let kept = model.get(..end).unwrap_or_default();
    format!("{kept}#{}", short_hash(model)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_and_stay_distinct() {
        assert_eq!(bounded("gpt-4o"), "gpt-4o");
        let (one, other) = ("ä".repeat(10_000), "ä".repeat(10_001));
        let (one, other) = (bounded(&one), bounded(&other));
        assert!(one != other && one.len() <= LONGEST, "{one} {other}");
        assert!(one.starts_with("äää"));
    }
}
