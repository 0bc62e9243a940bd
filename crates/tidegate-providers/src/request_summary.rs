//! Summary of a request: the few fields that limits depend on.
//!
//! The body is read in one pass without building a tree. Reading is lenient: a field that is
//! missing, of the wrong type or after a syntax error is unknown, and the provider reports the
//! error. No text is kept except names.

mod member;
mod texts;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use texts::{Counter, Texts};

use crate::dialect::Dialect;
use crate::request::PathPurpose;

/// Maximum length of the name of a model or a user in bytes. A longer one is ignored.
const MAX_NAME: usize = 256;

/// What limits need to know of a request, as far as it can be read.
///
/// ```
/// use tidegate_providers::request::PathPurpose;
/// use tidegate_providers::{Dialect, RequestSummary};
/// let purpose = PathPurpose::lookup(Dialect::OpenAi, "/v1/chat/completions").unwrap();
/// let body = br#"{"model":"gpt-4o","messages":[{"role":"user","content":"A river?"}],
///     "max_tokens":50,"stream":true,"user":"team-a"}"#;
/// let summary = RequestSummary::read(&purpose, body);
/// assert_eq!(summary.model.as_deref(), Some("gpt-4o"));
/// assert_eq!((summary.max_output, summary.is_streamed), (Some(50), true));
/// assert_eq!(summary.user.as_deref(), Some("team-a"));
/// assert!(summary.input_tokens > 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestSummary {
    /// Name of the model.
    pub model: Option<String>,
    /// Maximum number of output tokens, over all choices.
    pub max_output: Option<u64>,
    /// Whether the response is to be streamed.
    pub is_streamed: bool,
    /// End user on whose behalf the request is made.
    pub user: Option<String>,
    /// Estimated input tokens: text is counted, and each image costs a typical amount. Audio is not
    /// counted.
    pub input_tokens: u64,
    /// Whether `input_tokens` is [provisional](crate::tokens::TokenCounter::is_provisional).
    pub is_input_provisional: bool,
    /// Whether the body is JSON and was read to its end. If not, other fields may be incomplete.
    pub is_complete: bool,
}

impl RequestSummary {
    /// Creates the summary of a request whose body is not read.
    #[must_use]
    pub fn of_path(purpose: &PathPurpose<'_>) -> Self {
        Self {
            model: purpose.model.map(str::to_owned),
            max_output: (!purpose.has_output()).then_some(0),
            is_streamed: purpose.is_streamed.unwrap_or(false),
            ..Self::default()
        }
    }

    /// Reads the summary from a JSON body and the purpose of its path.
    #[must_use]
    pub fn read(purpose: &PathPurpose<'_>, body: &[u8]) -> Self {
        let mut fields = Fields { counts_all: purpose.is_other(), ..Fields::default() };
        let mut reader = serde_json::Deserializer::from_slice(body);
        // Fields before a syntax error are kept.
        let read = reader.deserialize_map(FieldVisitor(&mut fields));
        let is_complete = read.and_then(|()| reader.end()).is_ok();
        let of_path = Self::of_path(purpose);
        let choices = fields.choices.unwrap_or(1).max(1);
        let is_streamed = match purpose.dialect {
            // Ollama streams by default.
            Dialect::Ollama => fields.stream.unwrap_or(true),
            _ => fields.stream.unwrap_or(false),
        };
        let input_tokens = fields.counter.tokens(per_image(purpose.dialect));
        // A request without input has no output either.
        let has_no_output =
            purpose.is_other() && (is_complete || body.is_empty()) && input_tokens == 0;
        Self {
            model: of_path.model.or(fields.model),
            max_output: of_path
                .max_output
                .or_else(|| fields.max_output.map(|most| most.saturating_mul(choices)))
                .or_else(|| has_no_output.then_some(0)),
            is_streamed: purpose.is_streamed.unwrap_or(is_streamed),
            user: fields.user,
            input_tokens,
            is_input_provisional: fields.counter.is_provisional(),
            is_complete,
        }
    }
}

/// Returns the tokens of a typical image. The real number depends on its size, which is not read.
const fn per_image(dialect: Dialect) -> u64 {
    match dialect {
        Dialect::Anthropic => 1_600,
        Dialect::Gemini => 258,
        _ => 1_000,
    }
}

/// Fields found so far.
#[derive(Default)]
struct Fields {
    model: Option<String>,
    stream: Option<bool>,
    max_output: Option<u64>,
    /// Number of choices, each of which may reach the maximum output.
    choices: Option<u64>,
    user: Option<String>,
    counter: Counter,
    /// Whether members with unknown names count as text: on an unknown path any may be the prompt.
    counts_all: bool,
}

/// Visitor for the body, or for a nested object that has some of the fields.
struct FieldVisitor<'f>(&'f mut Fields);

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.0;
        while let Some(Name(name)) = map.next_key()? {
            match name {
                Field::Model => fields.model = map.next_value::<Text>()?.0,
                Field::User => fields.user = fields.user.take().or(map.next_value::<Text>()?.0),
                Field::Stream => fields.stream = map.next_value::<Flag>()?.0,
                Field::MaxOutput => {
                    let most = map.next_value::<Number>()?.0;
                    fields.max_output = most.or(fields.max_output);
                }
                Field::Choices => {
                    let more = map.next_value::<Number>()?.0;
                    fields.choices = more.max(fields.choices);
                }
                Field::Nested => map.next_value_seed(Nested(&mut *fields))?,
                Field::Texts => drop(map.next_value_seed(Texts::new(&mut fields.counter))?),
                Field::Other if fields.counts_all => {
                    let _ = map.next_value_seed(Texts::new(&mut fields.counter))?;
                }
                Field::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl texts::AcceptsObjects for FieldVisitor<'_> {
    const ACCEPTS_OBJECTS: bool = true;
}

/// Reads a nested object of options; any other value is skipped.
struct Nested<'f>(&'f mut Fields);

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // Metadata may contain anything, including members named `model` or `stream`.
        let (model, stream) = (self.0.model.take(), self.0.stream.take());
        let read = deserializer.deserialize_any(texts::Lenient(FieldVisitor(&mut *self.0)));
        (self.0.model, self.0.stream) = (model, stream);
        read
    }
}

#[derive(Clone, Copy)]
enum Field {
    Model,
    User,
    Stream,
    MaxOutput,
    Choices,
    Nested,
    Texts,
    Other,
}

impl Field {
    /// Looks up a member name. The names of all providers share one table, since none is ambiguous.
    fn of(name: &str) -> Self {
        match name {
            "model" => Self::Model,
            "user" | "user_id" | "safety_identifier" => Self::User,
            "stream" => Self::Stream,
            "max_tokens"
            | "max_completion_tokens"
            | "max_output_tokens"
            | "maxOutputTokens"
            | "num_predict"
            | "max_tokens_to_sample" => Self::MaxOutput,
            "n" | "best_of" | "candidateCount" => Self::Choices,
            "options" | "metadata" | "generationConfig" | "generation_config" => Self::Nested,
            "messages" | "system" | "tools" | "functions" | "prompt" | "suffix" | "input"
            | "instructions" | "contents" | "content" | "systemInstruction"
            | "system_instruction" | "requests" | "query" | "documents" | "response_format" => {
                Self::Texts
            }
            _ => Self::Other,
        }
    }
}

/// Member name of the body.
struct Name(Field);

impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl Visitor<'_> for Key {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name, E> {
                Ok(Name(Field::of(name)))
            }
        }
        deserializer.deserialize_str(Key)
    }
}

/// Defines a value of one type that deserializes to `None` from any other type.
macro_rules! lenient {
    ($name:ident, $value:ty, $($visit:tt)*) => {
        struct $name(Option<$value>);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TypedVisitor;
                impl texts::AcceptsObjects for TypedVisitor {
                    const ACCEPTS_OBJECTS: bool = false;
                }
                impl Visitor<'_> for TypedVisitor {
                    type Value = Option<$value>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a value")
                    }

                    $($visit)*
                }
                deserializer.deserialize_any(texts::Lenient(TypedVisitor)).map(Self)
            }
        }
    };
}

lenient!(
    Text,
    String,
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let is_name = !text.is_empty() && text.len() <= MAX_NAME;
        Ok(is_name.then(|| text.to_owned()))
    }
);
lenient!(
    Flag,
    bool,
    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Some(flag))
    }
);
lenient!(
    Number,
    u64,
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(number))
    }
);

#[cfg(test)]
mod tests;
