//! The keys of `[providers.NAME]` and of `[providers.NAME.endpoints.ENDPOINT]`.

use super::breaker::{MAX_FAILURES, failures};
use super::endpoint_routes::paths;
use super::fallback::names;
use super::fallback_models::model_name;
use super::read::{MAX_RETRIES, base_url, check_factor, dialect, interval, retries, variable_name};
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

const WHY_FIXED: &str = "keys and prompts are sent there, so only the operator may set it";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "providers.*.base_url",
        ValueKind::Form("^https?://"),
        |value| base_url(value).map(drop),
        "Base URL of the provider. If unset: the public URL of its dialect.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.api_key_env",
        ValueKind::Text,
        |value| variable_name(value).map(drop),
        "Environment variable that contains the API key. If unset: the caller's own key is passed \
         through.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.ca_file",
        ValueKind::Text,
        |value| file(value).map(drop),
        "PEM file of root certificates to trust for this provider, instead of those of the system.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.dialect",
        ValueKind::Words(DIALECTS),
        |value| dialect(value).map(drop),
        "API dialect of the provider. If unset: derived from its name.",
    )
    .fixed(WHY_FIXED),
    KnownKey::new(
        "providers.*.tier",
        ValueKind::Text,
        |value| value.to_text().map(drop),
        "Tier of the account at the provider. Models have the limits that the tier table has for \
         it, unless they are configured.",
    ),
    KnownKey::new(
        "providers.*.model",
        ValueKind::Text,
        |value| model_name(value).map(drop),
        "Model of the provider that the library stack loads if the program names none.",
    )
    .library("callers name the model in each request"),
    per_minute(
        "providers.*.requests_per_minute",
        "Requests per minute. If unset: learned from the \
                                                   provider's responses.",
    ),
    per_minute("providers.*.tokens_per_minute", "Tokens per minute, input and output together."),
    per_minute("providers.*.input_tokens_per_minute", "Input tokens per minute."),
    per_minute("providers.*.output_tokens_per_minute", "Output tokens per minute."),
    per_minute("providers.*.requests_per_day", "Requests per calendar day."),
    KnownKey::new(
        "providers.*.requests_per_day_zone",
        ValueKind::Text,
        |value| canonical_zone(value.to_text()?).map(drop),
        "Time zone of the day of requests_per_day. If unset: UTC.",
    ),
    KnownKey::new(
        "providers.*.min_interval_ms",
        ValueKind::Whole(0, 86_400_000),
        |value| interval(value).map(drop),
        "Minimum interval between two requests, in milliseconds.",
    )
    .or("0"),
    KnownKey::new(
        "providers.*.burst_factor",
        ValueKind::Number,
        check_factor,
        "Burst size, as seconds' worth of requests that can be sent at once; 1.0 means one request \
         at a time.",
    ),
    KnownKey::new(
        "providers.*.burst_capacity",
        ValueKind::Whole(1, 10_000_000),
        |value| capacity(value).map(drop),
        "Burst size, as requests that can be sent at once. If neither this nor burst_factor is \
         set: one second's worth.",
    ),
    KnownKey::new(
        "providers.*.max_concurrent_requests",
        COUNT,
        |value| value.to_count().map(drop),
        "Maximum number of concurrent calls, over all models, keys and endpoints. If unset: starts \
         at a default for the provider and is auto-tuned.",
    ),
    KnownKey::new(
        "providers.*.max_retries",
        ValueKind::Whole(0, MAX_RETRIES as u64),
        |value| retries(value).map(drop),
        "Retries after the first attempt. If unset: 8, or 3 for Ollama.",
    ),
    KnownKey::new(
        "providers.*.retry_base",
        DURATION,
        |value| positive(value).map(drop),
        "First delay between attempts. If unset: 1s, or 500ms for Ollama.",
    ),
    KnownKey::new(
        "providers.*.retry_statuses",
        ValueKind::Wholes(MIN_STATUS as u64, MAX_STATUS as u64),
        |value| statuses(value).map(drop),
        "HTTP statuses after which a call is retried. If unset: 429, 500 and 503 for OpenAI; 429, \
         500 and 529 for Anthropic; 429, 500 and 502 for Ollama. An exhausted quota is never \
         retried.",
    ),
    KnownKey::new(
        "providers.*.breaker",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether a circuit breaker stops calls for a while after repeated failures of the \
         provider.",
    )
    .or("true"),
    KnownKey::new(
        "providers.*.breaker_failures",
        ValueKind::Whole(1, MAX_FAILURES as u64),
        |value| failures(value).map(drop),
        "Consecutive failures of the provider that open the circuit breaker.",
    )
    .or("10"),
    KnownKey::new(
        "providers.*.breaker_open_for",
        DURATION,
        |value| positive(value).map(drop),
        "How long the circuit breaker stays open at first. Doubles after each failed trial, up to \
         60s.",
    )
    .or("\"5s\""),
    KnownKey::new(
        "providers.*.ramp_up",
        DURATION,
        |value| duration(value).map(drop),
        "Time in which the rate of a model grows from ramp_floor to its limit, at first and after \
         a pause. 0s turns the slow start off.",
    )
    .or("\"0s\""),
    per_minute(
        "providers.*.ramp_floor",
        "Requests per minute at the start of ramp_up. If unset: 60.",
    ),
    KnownKey::new(
        "providers.*.max_wait",
        DURATION,
        |value| duration(value).map(drop),
        "How long a call may wait in the gateway, for permits and between attempts, before it is \
         rejected.",
    )
    .or("\"120s\""),
    timeout(
        "providers.*.connect_timeout",
        "\"10s\"",
        "Timeout for establishing a connection: name resolution, TCP and TLS together.",
    ),
    timeout(
        "providers.*.first_byte_timeout",
        "\"120s\"",
        "Timeout for the start of the response, and for the first event of a stream.",
    ),
    timeout(
        "providers.*.idle_timeout",
        "\"60s\"",
        "How long the provider may send nothing in the middle of a response.",
    ),
    KnownKey::new(
        "providers.*.ask_for_usage",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether to request token usage in streams of the OpenAI API. The extra event is not \
         passed to the caller.",
    )
    .or("false"),
    KnownKey::new(
        "providers.*.fallback",
        ValueKind::Texts,
        |value| names(value).map(drop),
        "Providers with the same API to fall back to, in order.",
    )
    .or("[]"),
    KnownKey::new(
        "providers.*.fallback_models.*.*",
        ValueKind::Text,
        |value| model_name(value).map(drop),
        "Name of a model at a fallback provider; * stands for every other model.",
    ),
    KnownKey::new(
        "providers.*.models",
        ValueKind::Texts,
        |value| value.to_strings().map(drop),
        "Models that metrics report by name; others are counted together. Use a table instead of a \
         list to give models their own limits.",
    )
    .or("[]"),
    per_minute(
        "providers.*.all_keys.requests_per_minute",
        "Requests per minute over all keys that callers bring. If unset: 16 times \
         requests_per_minute, or no limit if that is unset too.",
    ),
    per_minute(
        "providers.*.all_keys.tokens_per_minute",
        "Tokens per minute over all keys that callers bring. If unset: 16 times tokens_per_minute, \
         or no limit if that is unset too.",
    ),
    KnownKey::new(
        "providers.*.endpoints.*.paths",
        ValueKind::Texts,
        |value| paths(value).map(drop),
        "Paths of the endpoint, such as /v1/chat/completions or /v1/vision/*. If unset: those of \
         the well-known endpoint of this name. Required for other names; [] if callers name the \
         endpoint in x-tidegate-endpoint.",
    ),
    inner_concurrency("providers.*.endpoints.*.max_concurrent_requests"),
    per_minute("providers.*.endpoints.*.requests_per_minute", "Requests per minute."),
    per_minute("providers.*.endpoints.*.tokens_per_minute", "Tokens per minute."),
];

pub(super) const fn per_minute(path: &'static str, about: &'static str) -> KnownKey {
    KnownKey::new(path, COUNT, |value| rate(value).map(drop), about)
}

const fn timeout(path: &'static str, unset: &'static str, about: &'static str) -> KnownKey {
    KnownKey::new(path, DURATION, |value| positive(value).map(drop), about).or(unset)
}

/// The concurrency limit of an endpoint or model.
pub(super) const fn inner_concurrency(path: &'static str) -> KnownKey {
    let about = "Maximum number of concurrent calls, over all keys, within that of the provider. \
                 If unset: only the provider's limit applies.";
    KnownKey::new(path, COUNT, |value: &Value<'_>| value.to_count().map(drop), about)
}
