//! The keys of `[providers.NAME]` and of `[providers.NAME.endpoints.ENDPOINT]`.

use super::breaker::{MAX_FAILURES, failures};
use super::endpoint_routes::paths;
use super::fallback::names;
use super::fallback_models::model;
use super::read::{
    MAX_RETRIES, base_url, check_factor, dialect, interval, name_of_variable, retries,
};
use super::retry_statuses::{MAX_STATUS, MIN_STATUS, statuses};
use super::roots::file;
use crate::sections::keys::KnownKey;
use crate::sections::modules::{capacity, rate};
use crate::values::duration::{duration, positive};
use crate::values::value::Value;
use crate::values::value_kind::{COUNT, DURATION, ValueKind};
use crate::values::zone::canonical_zone;

/// API dialects. `compatible` is any server with an OpenAI-compatible API.
pub(crate) const DIALECTS: &[&str] = &[
    "openai",
    "azure",
    "anthropic",
    "gemini",
    "groq",
    "mistral",
    "together",
    "openrouter",
    "deepseek",
    "ollama",
    "compatible",
    "mock",
];

const WHY_FIXED: &str = "keys and prompts are sent there, so only who runs the program says where";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "providers.*.base_url",
        ValueKind::Form("^https?://"),
        |value| base_url(value).map(drop),
        "Where the provider is; its own address if unset.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.api_key_env",
        ValueKind::Text,
        |value| name_of_variable(value).map(drop),
        "The variable that holds the key; the caller's own key passes through if unset.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.ca_file",
        ValueKind::Text,
        |value| file(value).map(drop),
        "A file of root certificates (PEM) that the provider's is checked against, in place of \
         those of the system.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.dialect",
        ValueKind::Words(DIALECTS),
        |value| dialect(value).map(drop),
        "Which API it speaks; by its name if unset.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.tier",
        ValueKind::Text,
        |value| value.to_text().map(drop),
        "The tier of the account, by which limits are found in a table of tiers.",
    )
    .unused("there is no table of tiers: set the limits themselves, such as requests_per_minute"),
    per_minute("providers.*.requests_per_minute", "Requests of a minute; learned if unset."),
    per_minute("providers.*.tokens_per_minute", "Tokens of a minute, input and output together."),
    per_minute("providers.*.input_tokens_per_minute", "Input tokens of a minute."),
    per_minute("providers.*.output_tokens_per_minute", "Output tokens of a minute."),
    per_minute("providers.*.requests_per_day", "Requests of a calendar day."),
    KnownKey::new(
        "providers.*.requests_per_day_zone",
        ValueKind::Text,
        |value| canonical_zone(value.to_text()?).map(drop),
        "The time zone in which that day begins; UTC if unset.",
    ),
    KnownKey::new(
        "providers.*.min_interval_ms",
        ValueKind::Whole(0, 86_400_000),
        |value| interval(value).map(drop),
        "Milliseconds from one request to the next, at least.",
    )
    .or("0"),
    KnownKey::new(
        "providers.*.burst_factor",
        ValueKind::Number,
        check_factor,
        "How many seconds' worth of requests may leave at once; 1.0 is one request after the other.",
    ),
    KnownKey::new(
        "providers.*.burst_capacity",
        ValueKind::Whole(1, 10_000_000),
        |value| capacity(value).map(drop),
        "How many requests may leave at once; one second's worth if neither is set.",
    ),
    KnownKey::new(
        "providers.*.max_concurrent_requests",
        COUNT,
        |value| value.to_count().map(drop),
        "Calls under way at once, over all models, keys and endpoints; if unset, what is known of \
         the provider, and auto-tuned from there.",
    ),
    KnownKey::new(
        "providers.*.max_retries",
        ValueKind::Whole(0, MAX_RETRIES as u64),
        |value| retries(value).map(drop),
        "Retries after the first attempt; 8 if unset, and 3 at Ollama.",
    ),
    KnownKey::new(
        "providers.*.retry_base",
        DURATION,
        |value| positive(value).map(drop),
        "The first delay between attempts; 1s if unset, and 500ms at Ollama.",
    ),
    KnownKey::new(
        "providers.*.retry_statuses",
        ValueKind::Wholes(MIN_STATUS as u64, MAX_STATUS as u64),
        |value| statuses(value).map(drop),
        "Statuses after which a call is tried again, and no others; 429, 500 and 503 at OpenAI, 429, \
         500 and 529 at Anthropic, 429, 500 and 502 at Ollama if unset. An exhausted quota never is.",
    ),
    KnownKey::new(
        "providers.*.breaker",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether the provider is left alone for a while when calls keep failing by its fault.",
    )
    .or("true"),
    KnownKey::new(
        "providers.*.breaker_failures",
        ValueKind::Whole(1, MAX_FAILURES as u64),
        |value| failures(value).map(drop),
        "Calls in a row that fail by the provider's fault before it is left alone.",
    )
    .or("10"),
    KnownKey::new(
        "providers.*.breaker_open_for",
        DURATION,
        |value| positive(value).map(drop),
        "How long the provider is left alone at first; twice as long after each trial that fails, up \
         to 60s.",
    )
    .or("\"5s\""),
    KnownKey::new(
        "providers.*.ramp_up",
        DURATION,
        |value| duration(value).map(drop),
        "How long calls of a model take to grow from ramp_floor to the limit, at first and after a \
         pause; 0s is at once.",
    )
    .or("\"0s\""),
    per_minute(
        "providers.*.ramp_floor",
        "Requests of a minute that ramp_up begins with; 60 if unset.",
    ),
    KnownKey::new(
        "providers.*.max_wait",
        DURATION,
        |value| duration(value).map(drop),
        "How long a call may wait here before it is refused.",
    )
    .or("\"120s\""),
    timeout(
        "providers.*.connect_timeout",
        "\"10s\"",
        "How long making a connection may take: name resolution, TCP and TLS together.",
    ),
    timeout(
        "providers.*.first_byte_timeout",
        "\"120s\"",
        "How long the provider may take to begin its answer, and of a stream the first event.",
    ),
    timeout(
        "providers.*.idle_timeout",
        "\"60s\"",
        "How long the provider may send nothing in the middle of an answer.",
    ),
    KnownKey::new(
        "providers.*.ask_for_usage",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether streams of OpenAI's API are made to tell their tokens; the caller does not see it.",
    )
    .or("false"),
    KnownKey::new(
        "providers.*.fallback",
        ValueKind::Texts,
        |value| names(value).map(drop),
        "Providers of the same API to turn to, in this order.",
    )
    .or("[]"),
    KnownKey::new(
        "providers.*.fallback_models.*.*",
        ValueKind::Text,
        |value| model(value).map(drop),
        "What a model is called at a provider that calls fall back to; * is every other model.",
    ),
    KnownKey::new(
        "providers.*.models",
        ValueKind::Texts,
        |value| value.to_strings().map(drop),
        "Models that metrics may name; others are counted together. A table instead of a list gives \
         them limits.",
    )
    .or("[]"),
    per_minute(
        "providers.*.all_keys.requests_per_minute",
        "Requests of a minute of all keys that callers bring, together; 16 times requests_per_minute \
         if unset, and no bound if that is not set either.",
    ),
    per_minute(
        "providers.*.all_keys.tokens_per_minute",
        "Tokens of a minute of all keys that callers bring, together; 16 times tokens_per_minute if \
         unset, and no bound if that is not set either.",
    ),
    KnownKey::new(
        "providers.*.endpoints.*.paths",
        ValueKind::Texts,
        |value| paths(value).map(drop),
        "Paths whose calls belong to the endpoint, such as /v1/chat/completions or /v1/vision/*; \
         those of the name if it is a known one. Required for other names; [] if callers name the \
         endpoint in x-tidegate-endpoint.",
    ),
    inner_concurrency("providers.*.endpoints.*.max_concurrent_requests"),
    per_minute("providers.*.endpoints.*.requests_per_minute", "Requests of a minute."),
    per_minute("providers.*.endpoints.*.tokens_per_minute", "Tokens of a minute."),
];

pub(super) const fn per_minute(path: &'static str, about: &'static str) -> KnownKey {
    KnownKey::new(path, COUNT, |value| rate(value).map(drop), about)
}

const fn timeout(path: &'static str, unset: &'static str, about: &'static str) -> KnownKey {
    KnownKey::new(path, DURATION, |value| positive(value).map(drop), about).or(unset)
}

/// The concurrency limit of an endpoint or model.
pub(super) const fn inner_concurrency(path: &'static str) -> KnownKey {
    let about = "Calls under way at once, over all keys, inside those of the provider; no other bound if unset.";
    KnownKey::new(path, COUNT, |value: &Value<'_>| value.to_count().map(drop), about)
}
