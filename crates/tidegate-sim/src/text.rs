//! What the simulator says, and how it counts tokens: four characters are one token.
//!
//! No tokenizer of a real model is imitated. A client's estimate of a prompt will differ from this
//! count, as it does from a provider's; a request can fix the count with a header where that matters.
//! What is said has one token for each word to OpenAI's vocabulary too, so that a client that counts
//! an answer can be compared with the ledger.

use serde_json::Value;

/// Characters of a token, in what is read and in what is said.
const CHARACTERS: u64 = 4;

/// What is said, over and over. Each is one token.
const WORDS: [&str; 12] = [
    "the ", "sea ", "ran ", "out ", "and ", "the ", "ebb ", "was ", "low ", "but ", "not ", "yet ",
];

/// Tokens of a text with this many characters; never none, as providers add some of their own.
pub(crate) fn tokens(characters: u64) -> u64 {
    characters.div_ceil(CHARACTERS).max(1)
}

/// The token at a place of an answer.
pub(crate) fn word(index: u64) -> &'static str {
    let place = index % WORDS.len() as u64;
    usize::try_from(place).ok().and_then(|place| WORDS.get(place)).copied().unwrap_or(WORDS[0])
}

/// An answer of so many tokens.
pub(crate) fn sentence(length: u64) -> String {
    (0..length).map(word).collect()
}

/// How many characters of text there are in a prompt, in whatever shape a dialect has it: strings,
/// lists, and the fields `text`, `content` and `parts` of objects.
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

/// How many characters a value has as it is written, as tools are described to a model; none if it
/// is not there.
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
