//! Which provider a model belongs to, by its name.
//!
//! A guess, for programs that name a model only. A provider that was named is never guessed at.

use tidegate_providers::Provider;

use super::planner::PlanRequest;

/// The provider of a model whose name says nothing.
pub const UNKNOWN_PROVIDER: &str = "unknown";

/// A table of words in names of models and the providers that use them. Case does not matter.
///
/// ```
/// use tidegate_llm::plan::Inference;
/// let inference = Inference::default().contains("gpt-oss", "ollama");
/// assert_eq!(inference.provider("GPT-4o").as_str(), "openai");
/// assert_eq!(inference.provider("o3-mini").as_str(), "openai");
/// assert_eq!(inference.provider("gpt-oss:20b").as_str(), "ollama");
/// assert_eq!(inference.provider("mistral-large").as_str(), "unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Inference {
    rules: Vec<(Pattern, Provider)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// Anywhere in the name.
    Contains(String),
    /// The first word of the name.
    FirstWord(String),
}

impl Pattern {
    /// Whether it fits a name in lower case.
    fn matches(&self, model: &str) -> bool {
        match self {
            Self::Contains(text) => model.contains(text),
            Self::FirstWord(word) => model
                .strip_prefix(word.as_str())
                .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)),
        }
    }
}

impl Default for Inference {
    /// `gemini` is Gemini's, `gpt` OpenAI's, `claude` Anthropic's, wherever they stand; and names
    /// whose first word is `o1`, `o3` or `o4` are OpenAI's.
    fn default() -> Self {
        Self::none()
            .first_word("o4", "openai")
            .first_word("o3", "openai")
            .first_word("o1", "openai")
            .contains("claude", "anthropic")
            .contains("gpt", "openai")
            .contains("gemini", "gemini")
    }
}

impl Inference {
    /// An empty table, by which every provider is unknown.
    pub const fn none() -> Self {
        Self { rules: Vec::new() }
    }

    /// Models with this text in their name belong to the provider. It is asked before the rules
    /// that are there.
    pub fn contains(self, text: &str, provider: impl Into<Provider>) -> Self {
        self.rule(Pattern::Contains(text.to_lowercase()), provider.into())
    }

    /// Models whose name begins with this word belong to the provider: with `o1`, `o1` and
    /// `o1-mini` do, and `o10` does not. It is asked before the rules that are there.
    pub fn first_word(self, word: &str, provider: impl Into<Provider>) -> Self {
        self.rule(Pattern::FirstWord(word.to_lowercase()), provider.into())
    }

    fn rule(mut self, pattern: Pattern, provider: Provider) -> Self {
        self.rules.insert(0, (pattern, provider));
        self
    }

    /// The provider of a model, or `unknown`.
    #[must_use]
    pub fn provider(&self, model: &str) -> Provider {
        let model = model.to_lowercase();
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches(&model));
        rule.map_or_else(|| Provider::new(UNKNOWN_PROVIDER), |(_, provider)| provider.clone())
    }

    /// The provider that a request names, or else that of its model.
    #[must_use]
    pub fn provider_of(&self, request: &PlanRequest) -> Provider {
        let inferred = || self.provider(request.model_or_default());
        request.provider_name().map_or_else(inferred, Provider::new)
    }
}
