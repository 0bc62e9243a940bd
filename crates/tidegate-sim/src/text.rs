//! Response text and token counts: four characters are one token.
//!
//! No real tokenizer is imitated. A client's estimate of a prompt differs from this count, as it
//! does from a provider's; a request can set the count with a header. Each word of a response is
//! one token in OpenAI's vocabulary too, so that token counts of clients can be compared with the
//! ledger.

use serde_json::Value;

/// Characters per token, in requests and responses.
const CHARACTERS: u64 = 4;

/// The words of responses, repeated. Each is one token.
const WORDS: [&str; 12] = [
    "the ", "sea ", "ran ", "out ", "and ", "the ", "ebb ", "was ", "low ", "but ", "not ", "yet ",
];

/// Returns the tokens of a text; at least one, because providers add some of their own.
pub(crate) fn tokens(characters: u64) -> u64 {
    characters.div_ceil(CHARACTERS).max(1)
}

/// Returns the token at an index of a response.
pub(crate) fn word(index: u64) -> &'static str {
    let place = index % WORDS.len() as u64;
    usize::try_from(place).ok().and_then(|place| WORDS.get(place)).copied().unwrap_or(WORDS[0])
}

/// Returns a response of `length` tokens.
pub(crate) fn sentence(length: u64) -> String {
    (0..length).map(word).collect()
}

/// Counts the characters of a prompt in any dialect's format: strings, lists, and the fields
/// `text`, `content` and `parts` of objects.
pub(crate) fn characters(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Array(items) => items.iter().map(characters).sum(),
        Value::Object(fields) => ["text", "content", "parts"]
            .iter()
            .filter_map(|name| fields.get(*name))
            .map(characters)
            .sum(),
        _ => 0,
    }
}

/// Counts the characters of a value's JSON text, as for tools; 0 for null.
pub(crate) fn json_characters(value: &Value) -> u64 {
    if value.is_null() { 0 } else { value.to_string().chars().count() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn response_has_the_requested_token_count() {
        for length in [0, 1, 12, 13, 500] {
            let text = sentence(length);
            assert_eq!(text.chars().count() as u64, length * CHARACTERS);
            assert_eq!(tokens(text.chars().count() as u64), length.max(1));
        }
    }

    #[test]
    fn characters_are_counted_in_every_prompt_format() {
        assert_eq!(characters(&json!("größe")), 5);
        assert_eq!(characters(&json!([{ "role": "user", "content": "abcd" }])), 4);
        assert_eq!(characters(&json!([{ "content": [{ "type": "text", "text": "ab" }] }])), 2);
        assert_eq!(characters(&json!({ "parts": [{ "text": "abc" }, { "text": "d" }] })), 4);
        assert_eq!(characters(&json!({ "image_url": "a long address" })), 0);
        assert_eq!((json_characters(&json!([{ "a": 1 }])), json_characters(&Value::Null)), (9, 0));
    }
}
