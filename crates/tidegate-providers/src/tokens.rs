//! Local token counts, for use before a provider reports them or when it does not.
//!
//! With the feature `tokenizer`, text is counted with the vocabulary of OpenAI's current models.
//! Most other providers publish none; `tidegate-llm` learns a correction for each model. The
//! vocabulary is kept compressed until the first text is counted. Then a thread unpacks it, and
//! text is estimated until it is ready: no call waits for it. [`prepare`] waits. Without the
//! feature, all counts are [estimates](TokenCounter::is_provisional).

mod estimate;
#[cfg(feature = "tokenizer")]
mod merge;
#[cfg(feature = "tokenizer")]
mod split;
#[cfg(all(test, feature = "tokenizer"))]
mod tests;
#[cfg(feature = "tokenizer")]
mod tokenizer;
#[cfg(feature = "tokenizer")]
mod vocabulary;

use crate::chat::Chat;

/// Tokens that delimit each message and tool.
const OVERHEAD: u64 = 4;

/// Counts tokens in one way: of the parts of a request, either all are counted or all estimated.
///
/// ```
/// use tidegate_providers::tokens::{TokenCounter, prepare};
/// prepare();
/// let counter = TokenCounter::current();
/// assert!(!counter.is_provisional());
/// assert_eq!(counter.count("one two three"), 3);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TokenCounter {
    #[cfg(feature = "tokenizer")]
    tokenizer: Option<&'static tokenizer::Tokenizer>,
}

impl TokenCounter {
    /// Returns the best counter that is ready. Starts to unpack the vocabulary if nothing has.
    #[must_use]
    pub fn current() -> Self {
        Self {
            #[cfg(feature = "tokenizer")]
            tokenizer: tokenizer::get_or_start(),
        }
    }

    /// Returns whether the counts are estimates because the vocabulary is not ready yet. Nothing
    /// should be learned from them about the counts of a model. Always false without the feature
    /// `tokenizer`, since estimates are the only counts then.
    #[must_use]
    pub const fn is_provisional(&self) -> bool {
        #[cfg(feature = "tokenizer")]
        return self.tokenizer.is_none();
        #[cfg(not(feature = "tokenizer"))]
        return false;
    }

    /// Counts the tokens of a text.
    #[must_use]
    pub fn count(&self, text: &str) -> u64 {
        #[cfg(feature = "tokenizer")]
        if let Some(tokenizer) = self.tokenizer {
            return tokenizer.count(text);
        }
        estimate::tokens(text)
    }

    /// Counts the input tokens of a chat.
    #[must_use]
    pub fn count_chat(&self, chat: &Chat) -> u64 {
        let pieces = chat.messages.len() + chat.tools.len() + usize::from(chat.system.is_some());
        let overhead = u64::try_from(pieces).unwrap_or(u64::MAX).saturating_mul(OVERHEAD);
        let schemas = chat.tools.iter().map(|tool| self.count(&tool.parameters.to_string()));
        let texts = chat.texts().map(|text| self.count(text));
        texts.chain(schemas).fold(overhead, u64::saturating_add)
    }
}

/// Counts the tokens of a text with the [current](TokenCounter::current) counter.
#[must_use]
pub fn count(text: &str) -> u64 {
    TokenCounter::current().count(text)
}

/// Counts the input tokens of a chat with the [current](TokenCounter::current) counter.
#[must_use]
pub fn count_chat(chat: &Chat) -> u64 {
    TokenCounter::current().count_chat(chat)
}

/// Returns whether counts are no longer [provisional](TokenCounter::is_provisional). Starts nothing.
#[must_use]
pub fn is_ready() -> bool {
    #[cfg(feature = "tokenizer")]
    return tokenizer::is_ready();
    #[cfg(not(feature = "tokenizer"))]
    return true;
}

/// Unpacks the vocabulary, unless that is done, and waits until it is ready: some 50 ms. For
/// programs that need the same counts from the first call on, such as tests. Does nothing without
/// the feature `tokenizer`.
pub fn prepare() {
    #[cfg(feature = "tokenizer")]
    tokenizer::get_or_wait();
}
