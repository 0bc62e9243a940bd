//! What a request asks for, read from its bytes: the few fields that limits depend on.
//!
//! One pass over the body, without making a tree of it. Reading is lenient: what is missing, is of
//! another type or comes after a mistake is unknown, and the provider will say what it thinks of it.
//! No text is kept but names.

mod member;
mod texts;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use texts::{Counter, Texts};

use crate::dialect::Dialect;
use crate::request::Purpose;

/// No name of a model or a user is longer than this; a longer one is unknown.
const MAX_NAME: usize = 256;

/// What a request asks for, as far as it can be read.
///
/// ```
/// use tidegate_providers::request::Purpose;
/// use tidegate_providers::{Dialect, RequestSummary};
/// let purpose = Purpose::of(Dialect::OpenAi, "/v1/chat/completions").unwrap();
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
    /// The model.
    pub model: Option<String>,
    /// The most output tokens that the request allows.
    pub max_output: Option<u64>,
    /// Whether the response is to be streamed.
    pub is_streamed: bool,
    /// On whose behalf it is made.
    pub user: Option<String>,
    /// Tokens of its texts, by count, and so many for each image as one usually has. Sounds are not
    /// counted.
    pub input_tokens: u64,
    /// Whether the body is JSON and was read to its end. Else there may be more in it.
    pub is_complete: bool,
}

impl RequestSummary {
    /// What a path alone says.
    #[must_use]
    pub fn of_path(purpose: &Purpose<'_>) -> Self {
        Self {
            model: purpose.model.map(str::to_owned),
            max_output: (!purpose.has_output()).then_some(0),
            is_streamed: purpose.is_streamed.unwrap_or(false),
            ..Self::default()
        }
    }

    /// What a body of JSON says, beside its path.
    #[must_use]
    pub fn read(purpose: &Purpose<'_>, body: &[u8]) -> Self {
        let mut fields = Fields { counts_all: purpose.is_other(), ..Fields::default() };
        let mut reader = serde_json::Deserializer::from_slice(body);
        // Whatever was read before a mistake counts.
        let read = reader.deserialize_map(Root(&mut fields));
        let is_complete = read.and_then(|()| reader.end()).is_ok();
        let of_path = Self::of_path(purpose);
        let answers = fields.answers.unwrap_or(1).max(1);
        let is_streamed = match purpose.dialect {
            // It streams unless it is told not to.
            Dialect::Ollama => fields.stream.unwrap_or(true),
            _ => fields.stream.unwrap_or(false),
        };
        let input_tokens = fields.counter.tokens(per_image(purpose.dialect));
        // Where nothing is put to a model, nothing is answered by one.
        let has_no_answer =
            purpose.is_other() && (is_complete || body.is_empty()) && input_tokens == 0;
        Self {
            model: of_path.model.or(fields.model),
            max_output: of_path
                .max_output
                .or_else(|| fields.max_output.map(|most| most.saturating_mul(answers)))
                .or_else(|| has_no_answer.then_some(0)),
            is_streamed: purpose.is_streamed.unwrap_or(is_streamed),
            user: fields.user,
            input_tokens,
            is_complete,
        }
    }
}

/// What an image comes to. That depends on its size, which is not looked at.
const fn per_image(dialect: Dialect) -> u64 {
    match dialect {
        Dialect::Anthropic => 1_600,
        Dialect::Gemini => 258,
        _ => 1_000,
    }
}

/// What was found so far.
#[derive(Default)]
struct Fields {
    model: Option<String>,
    stream: Option<bool>,
    max_output: Option<u64>,
    /// How many answers are made, each of which may be as long.
    answers: Option<u64>,
    user: Option<String>,
    counter: Counter,
    /// Whether members of unknown names are texts: on a path that is not known, any may be the prompt.
    counts_all: bool,
}

/// The body, or an object in it that has some of the fields.
struct Root<'f>(&'f mut Fields);

impl<'de> Visitor<'de> for Root<'_> {
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
                Field::Answers => {
                    let more = map.next_value::<Number>()?.0;
                    fields.answers = more.max(fields.answers);
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

impl texts::OfObjects for Root<'_> {
    const WANTS_OBJECTS: bool = true;
}

/// An object with options in it, if it is one.
struct Nested<'f>(&'f mut Fields);

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // A program may put anything into its metadata, also what it calls a model.
        let (model, stream) = (self.0.model.take(), self.0.stream.take());
        let read = deserializer.deserialize_any(texts::Lenient(Root(&mut *self.0)));
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
    Answers,
    Nested,
    Texts,
    Other,
}

impl Field {
    /// The names of all providers together: none of them means something else elsewhere.
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
            "n" | "best_of" | "candidateCount" => Self::Answers,
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

/// The name of a member.
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

/// A value of one type; any other is nothing.
macro_rules! lenient {
    ($name:ident, $value:ty, $($visit:tt)*) => {
        struct $name(Option<$value>);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Wanted;
                impl texts::OfObjects for Wanted {
                    const WANTS_OBJECTS: bool = false;
                }
                impl Visitor<'_> for Wanted {
                    type Value = Option<$value>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a value")
                    }

                    $($visit)*
                }
                deserializer.deserialize_any(texts::Lenient(Wanted)).map(Self)
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
