//! Patterns of model names that select the models sharing a configured limit.

use std::fmt;
use std::sync::Arc;

/// A model name in which `*` matches any characters, including none. Case is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModelPattern(Arc<str>);

impl ModelPattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.trim().to_lowercase().into())
    }

    /// Returns whether the pattern matches exactly one name.
    pub(crate) fn is_exact(&self) -> bool {
        !self.0.contains('*')
    }

    /// Returns whether `model` matches.
    pub(crate) fn matches(&self, model: &str) -> bool {
        let model = model.to_lowercase();
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| model.strip_prefix(first)) else {
            return false;
        };
        let mut parts = parts.peekable();
        if parts.peek().is_none() {
            return rest.is_empty();
        }
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return rest.ends_with(part);
            }
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }

    /// Sort key: of several matching patterns, the largest applies.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        (self.is_exact(), self.0.bytes().filter(|byte| *byte != b'*').count())
    }

    /// Returns the pattern in lower case.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_characters() {
        for (pattern, matching, others) in [
            ("gpt-4o", vec!["gpt-4o", "GPT-4o"], vec!["gpt-4o-mini", "x-gpt-4o", ""]),
            ("gpt-4o*", vec!["gpt-4o", "gpt-4o-mini"], vec!["gpt-4", "openai/gpt-4o"]),
            ("*embedding*", vec!["text-embedding-3-small", "embedding"], vec!["gpt-4o"]),
            ("a*b*c", vec!["abc", "aXbYc", "abbc"], vec!["ac", "abcd", "acb"]),
            ("*a", vec!["a", "ba", "aa"], vec!["ab", ""]),
            ("a*a", vec!["aa", "aba"], vec!["a"]),
            ("*", vec!["", "anything"], vec![]),
        ] {
            let pattern = ModelPattern::new(pattern);
            for model in matching {
                assert!(pattern.matches(model), "{pattern} {model}");
            }
            for model in others {
                assert!(!pattern.matches(model), "{pattern} {model}");
            }
        }
    }

    #[test]
    fn exact_name_is_more_specific_than_any_pattern() {
        let specificity = |text: &str| ModelPattern::new(text).specificity();
        assert!(specificity("o1") > specificity("o1-preview*"));
        assert!(specificity("gpt-4o-mini*") > specificity("gpt-4o*"));
    }
}
