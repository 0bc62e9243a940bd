//! Usage of a response received in one piece, without decoding the rest.
//!
//! For proxies that forward responses. Bodies without text, such as embeddings, report usage too.

use serde::Deserialize;
use serde_json::Value;

use crate::dialect::{Dialect, Family, anthropic, gemini, ollama, openai};
use crate::usage::Usage;

impl Usage {
    /// Reads the usage from a body, if it is reported. For a list of responses, which Gemini sends
    /// when it does not stream events, the last usage is returned.
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

impl Usage {
    /// Reads the usage from the end of a body that was not kept as a whole, since providers report
    /// it last.
    ///
    /// ```
    /// use tidegate_providers::{Dialect, Usage};
    /// let end = br#"0.25,0.5]}],"usage":{"prompt_tokens":8,"total_tokens":8}}"#;
    /// assert_eq!(Usage::read_end(Dialect::OpenAi, end).unwrap().input, 8);
    /// ```
    #[must_use]
    pub fn read_end(dialect: Dialect, end: &[u8]) -> Option<Self> {
        let member = |name: &str| last_member(end, name).unwrap_or_default();
        let part = Part {
            usage: member("\"usage\""),
            metadata: member("\"usageMetadata\""),
            prompt_eval_count: member("\"prompt_eval_count\""),
            prompt_eval_cached_count: member("\"prompt_eval_cached_count\""),
            eval_count: member("\"eval_count\""),
        };
        part.usage(dialect)
    }
}

/// Returns the value of the last member with this quoted name. Inside a string the quotes would be
/// escaped.
fn last_member(end: &[u8], name: &str) -> Option<Value> {
    let mut found = (0..end.len()).rev().filter(|at| {
        let is_escaped = at.checked_sub(1).and_then(|before| end.get(before)) == Some(&b'\\');
        !is_escaped && end.get(*at..).is_some_and(|rest| rest.starts_with(name.as_bytes()))
    });
    let rest = end.get(found.next()? + name.len()..)?.trim_ascii_start();
    let value = rest.strip_prefix(b":")?;
    serde_json::Deserializer::from_slice(value).into_iter().next()?.ok()
}

/// Members that contain token counts.
#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    usage: Value,
    #[serde(default, rename = "usageMetadata")]
    metadata: Value,
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
    fn usage_of_every_family_is_read() {
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
    fn usage_is_read_from_the_end_of_a_body() {
        let end = r#"\"usage\":{\"prompt_tokens\":1}"}],"usage": {"prompt_tokens":3}}"#;
        assert_eq!(Usage::read_end(Dialect::OpenAi, end.as_bytes()).unwrap().input, 3);
        let end = r#"ok"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}"#;
        assert_eq!(Usage::read_end(Dialect::Gemini, end.as_bytes()).unwrap().output, 4);
        let end = r#"","done":true,"prompt_eval_count":3,"eval_count":4}"#;
        assert_eq!(Usage::read_end(Dialect::Ollama, end.as_bytes()).unwrap().total(), 7);
        for end in ["", "\"usage\"", "\"usage\":{\"prompt", "0.25,0.5,"] {
            assert_eq!(Usage::read_end(Dialect::OpenAi, end.as_bytes()), None, "{end}");
        }
    }

    #[test]
    fn body_without_counts_has_no_usage() {
        for body in ["", "[]", "{}", r#"{"usage":null}"#, r#"{"error":"x"}"#] {
            for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama] {
                assert_eq!(Usage::read(dialect, body.as_bytes()), None, "{body}");
            }
        }
    }
}
