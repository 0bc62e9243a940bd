//! Infers the provider from the name of a model.
//!
//! This is a guess for programs that name only a model. An explicit provider always takes
//! precedence.

use tidegate_providers::Provider;

use super::planner::PlanRequest;

/// Provider of models that no rule matches.
pub const UNKNOWN_PROVIDER: &str = "unknown";

/// Table of patterns in model names and the providers they belong to. Case-insensitive.
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
    /// Returns whether it matches a name in lower case.
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
    /// Names that contain `gemini`, `gpt` or `claude` belong to Gemini, OpenAI and Anthropic. Names
    /// whose first word is `o1`, `o3` or `o4` belong to OpenAI.
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
    /// Creates an empty table, which maps every model to `unknown`.
    pub const fn none() -> Self {
        Self { rules: Vec::new() }
    }

    /// Maps models whose name contains `text` to a provider. Takes precedence over existing rules.
    pub fn contains(self, text: &str, provider: impl Into<Provider>) -> Self {
        self.rule(Pattern::Contains(text.to_lowercase()), provider.into())
    }

    /// Maps models whose name begins with this word to a provider: `o1` matches `o1` and `o1-mini`,
    /// but not `o10`. Takes precedence over existing rules.
    pub fn first_word(self, word: &str, provider: impl Into<Provider>) -> Self {
        self.rule(Pattern::FirstWord(word.to_lowercase()), provider.into())
    }

    fn rule(mut self, pattern: Pattern, provider: Provider) -> Self {
        self.rules.insert(0, (pattern, provider));
        self
    }

    /// Returns the provider of a model, or `unknown`.
    #[must_use]
    pub fn provider(&self, model: &str) -> Provider {
        let model = model.to_lowercase();
        let rule = self.rules.iter().find(|(pattern, _)| pattern.matches(&model));
        rule.map_or_else(|| Provider::new(UNKNOWN_PROVIDER), |(_, provider)| provider.clone())
    }

    /// Returns the provider that a request names, or else the provider of its model.
    #[must_use]
    pub fn provider_of(&self, request: &PlanRequest) -> Provider {
        let inferred = || self.provider(request.model_or_default());
        request.provider_name().map_or_else(inferred, Provider::new)
    }
}
