//! Which providers can be fallbacks of which.

use tidegate_providers::Dialect;

/// Returns the reason why calls in one dialect cannot fall back to a provider of another, or `None`
/// if they can. `has_key` says whether the target has a key of its own.
///
/// ```
/// use tidegate_llm::Dialect;
/// use tidegate_llm::fallback::unsuitable_reason;
/// assert_eq!(unsuitable_reason(Dialect::OpenAi, Dialect::Groq, true), None);
/// let reason = unsuitable_reason(Dialect::OpenAi, Dialect::Anthropic, true);
/// assert_eq!(reason, Some("it speaks another API"));
/// ```
#[must_use]
pub fn unsuitable_reason(from: Dialect, to: Dialect, has_key: bool) -> Option<&'static str> {
    // Self-hosted servers need no key.
    let needs_key = !matches!(to, Dialect::Ollama | Dialect::Compatible);
    if from.family() != to.family() {
        Some("it speaks another API")
    } else if needs_key && !has_key {
        Some("it has no key of its own, and a caller's key is not shown to another provider")
    } else if to == Dialect::Azure && from != Dialect::Azure {
        Some("its paths name deployments of its own")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_deployments_matter_within_a_family() {
        let from = Dialect::OpenAi;
        assert!(
            unsuitable_reason(from, Dialect::Groq, false).unwrap().contains("no key of its own")
        );
        assert_eq!(unsuitable_reason(from, Dialect::Compatible, false), None);
        assert!(unsuitable_reason(from, Dialect::Azure, true).unwrap().contains("deployments"));
        assert_eq!(unsuitable_reason(Dialect::Azure, Dialect::Azure, true), None);
    }
}
