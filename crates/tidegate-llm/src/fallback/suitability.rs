//! Which providers can stand in for which.

use tidegate_providers::Dialect;

/// Why calls never fall back from one provider to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsuitable {
    /// Requests cannot be put into its words.
    #[error("it speaks another API")]
    OtherApi,
    /// A caller's key would have to be shown to it.
    #[error("it has no key of its own, and a caller's key is not shown to another provider")]
    NoKey,
    /// It names deployments where others name models.
    #[error("its paths name deployments of its own")]
    Deployments,
}

impl Unsuitable {
    /// Why calls in one dialect never fall back to a provider of another, if they do not.
    ///
    /// ```
    /// use tidegate_llm::Dialect;
    /// use tidegate_llm::fallback::Unsuitable;
    /// let reason = |to, has_key| Unsuitable::reason(Dialect::OpenAi, to, has_key);
    /// assert_eq!(reason(Dialect::Groq, true), None);
    /// assert_eq!(reason(Dialect::Groq, false), Some(Unsuitable::NoKey));
    /// assert_eq!(reason(Dialect::Anthropic, true), Some(Unsuitable::OtherApi));
    /// ```
    #[must_use]
    pub fn reason(from: Dialect, to: Dialect, has_key: bool) -> Option<Self> {
        // A server of one's own needs no key.
        let needs_key = !matches!(to, Dialect::Ollama | Dialect::Compatible);
        if from.family() != to.family() {
            Some(Self::OtherApi)
        } else if needs_key && !has_key {
            Some(Self::NoKey)
        } else if to == Dialect::Azure && from != Dialect::Azure {
            Some(Self::Deployments)
        } else {
            None
        }
    }
}
