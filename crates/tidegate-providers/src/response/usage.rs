//! What an answer in one piece has used, without reading the rest of it.
//!
//! For those who pass answers on: the words are none of their business, and a body without words,
//! such as a list of vectors, has counts too.

use serde::Deserialize;
use serde_json::Value;

use crate::dialect::{Dialect, Family, anthropic, gemini, ollama, openai};
use crate::usage::Usage;

impl Usage {
    /// What was used, if the body says so. A list of answers, as Gemini streams where it does not
    /// speak in events, counts as its last.
    ///
    /// ```
    /// use tidegate_providers::{Dialect, Usage};
    /// let body = br#"{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    /// assert_eq!(Usage::read(Dialect::OpenAi, body).unwrap().input, 8);
    /// assert_eq!(Usage::read(Dialect::OpenAi, b"no JSON"), None);
    /// ```
    #[must_use]
    pub fn read(dialect: Dialect, body: &[u8]) -> Option<Self> {
        let parts: Vec<Part> = match body.trim_ascii_start().first()? {
            b'[' => serde_json::from_slice(body).ok()?,
            _ => vec![serde_json::from_slice(body).ok()?],
        };
        parts.iter().rev().find_map(|part| part.usage(dialect))
    }
}

/// The places where counts are.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    usage: Value,
    #[serde(default, rename = "usageMetadata")]
    metadata: Value,
    /// Tokens of a request that was only to be counted.
    #[serde(default)]
    prompt_eval_count: Value,
    #[serde(default)]
    prompt_eval_cached_count: Value,
    #[serde(default)]
    eval_count: Value,
}

impl Part {
    fn usage(&self, dialect: Dialect) -> Option<Usage> {
        let usage = &self.usage;
        match Family::of(dialect) {
            Family::OpenAi if usage.is_object() => Some(openai::used(usage)),
            Family::Anthropic if usage.is_object() => Some(anthropic::used(usage)),
            Family::Gemini if self.metadata.is_object() => Some(gemini::used(&self.metadata)),
            Family::Ollama => ollama::used(&serde_json::json!({
                "prompt_eval_count": self.prompt_eval_count,
                "prompt_eval_cached_count": self.prompt_eval_cached_count,
                "eval_count": self.eval_count,
            })),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(dialect: Dialect, body: &str) -> (u64, u64) {
        let usage = Usage::read(dialect, body.as_bytes()).unwrap();
        (usage.input, usage.output)
    }

    #[test]
    fn every_family_has_its_place_for_counts() {
        let chat = r#"{"choices":[{}],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        assert_eq!(used(Dialect::Groq, chat), (3, 4));
        let response = r#"{"object":"response","usage":{"input_tokens":3,"output_tokens":4}}"#;
        assert_eq!(used(Dialect::OpenAi, response), (3, 4));
        let message =
            r#"{"usage":{"input_tokens":1,"cache_read_input_tokens":2,"output_tokens":4}}"#;
        assert_eq!(used(Dialect::Anthropic, message), (3, 4));
        let listed = r#"[{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1}},
            {"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}]"#;
        assert_eq!(used(Dialect::Gemini, listed), (3, 4));
        assert_eq!(used(Dialect::Ollama, r#"{"prompt_eval_count":3,"eval_count":4}"#), (3, 4));
    }

    #[test]
    fn no_counts_are_no_usage() {
        for body in ["", "[]", "{}", r#"{"usage":null}"#, r#"{"error":"x"}"#] {
            for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
                assert_eq!(Usage::read(dialect, body.as_bytes()), None, "{body}");
            }
        }
    }
}
