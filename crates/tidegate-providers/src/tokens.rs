//! Local token counts, for use before a provider reports them or when it does not.
//!
//! With the feature `tokenizer`, text is counted with the tokenizer of OpenAI's current models.
//! Most other providers publish none; `tidegate-llm` learns a correction for each model. Without
//! the feature, four characters count as one token, the providers' own rule of thumb for English.

use crate::chat::Chat;

/// Tokens that delimit each message and tool.
const OVERHEAD: u64 = 4;

/// Counts the input tokens of a chat.
#[must_use]
pub fn count_chat(chat: &Chat) -> u64 {
    let pieces = chat.messages.len() + chat.tools.len() + usize::from(chat.system.is_some());
    let overhead = u64::try_from(pieces).unwrap_or(u64::MAX).saturating_mul(OVERHEAD);
    let schemas = chat.tools.iter().map(|tool| count(&tool.parameters.to_string()));
    chat.texts().map(count).chain(schemas).fold(overhead, u64::saturating_add)
}

/// Counts the tokens of a text.
#[cfg(feature = "tokenizer")]
#[must_use]
pub fn count(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u64::MAX)
}

/// Estimates the tokens of a text by its length.
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
    fn system_messages_and_tools_are_counted() {
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
    fn counts_match_the_tokenizer() {
        assert_eq!(count("hello world, how are you"), 6);
        assert_eq!(count(""), 0);
    }
}
