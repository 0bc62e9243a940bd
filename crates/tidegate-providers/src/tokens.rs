//! Counting tokens where no provider does, or before it does.
//!
//! With the feature `tokenizer` texts are counted with the vocabulary of OpenAI's present models.
//! Other providers publish none, and how far the count is off is learned for each model. Without
//! the feature four characters are a token, as providers themselves say for English.

use crate::chat::Chat;

/// What a turn and a tool cost beside their text, for the marks around them.
const AROUND: u64 = 4;

/// Input tokens of a chat.
#[must_use]
pub fn count_chat(chat: &Chat) -> u64 {
    let pieces = chat.messages.len() + chat.tools.len() + usize::from(chat.system.is_some());
    let around = u64::try_from(pieces).unwrap_or(u64::MAX).saturating_mul(AROUND);
    let schemas = chat.tools.iter().map(|tool| count(&tool.parameters.to_string()));
    chat.texts().map(count).chain(schemas).fold(around, u64::saturating_add)
}

/// Tokens of a text.
#[cfg(feature = "tokenizer")]
#[must_use]
pub fn count(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u64::MAX)
}

/// Tokens of a text, by its length.
#[cfg(not(feature = "tokenizer"))]
#[must_use]
pub fn count(text: &str) -> u64 {
    u64::try_from(text.chars().count().div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Message, Tool};

    #[test]
    fn everything_that_is_sent_is_counted() {
        let short = Chat::user("one two three four");
        let counted = count_chat(&short);
        assert!((5..=12).contains(&counted), "{counted}");
        let more = short.clone().system("be brief").message(Message::assistant("yes"));
        assert!(count_chat(&more) > counted);
        let parameters = serde_json::json!({ "type": "object", "properties": { "city": {} } });
        let tool = Tool { name: "weather".into(), description: None, parameters };
        assert!(count_chat(&more.clone().tool(tool)) > count_chat(&more) + 5);
    }

    #[cfg(feature = "tokenizer")]
    #[test]
    fn counts_are_those_of_the_vocabulary() {
        assert_eq!(count("hello world, how are you"), 6);
        assert_eq!(count(""), 0);
    }
}
