//! Classification tables of the providers.
//!
//! The first row that matches decides, and names come before statuses. Ambiguous names
//! (`invalid_request_error` comes with 400, 401 and 402) are matched only in streams, where there
//! is no status.

use std::fmt;

use super::{Evidence, Quota, QuotaReset, RowClass};
use crate::dialect::Dialect;
use crate::failure::Class;

/// Row of a table: conditions on an error, and its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    location: Location,
    pattern: Pattern,
    class: RowClass,
}

/// Where an error occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// In a response with this status.
    Status(u16),
    /// In a stream, without a status.
    Stream,
    Anywhere,
}

/// What an error must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Anything.
    Any,
    /// This type, code or reason.
    Name(&'static str),
    Quota(Quota),
}

impl Row {
    /// Returns the status that the row requires, if any.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self.location {
            Location::Status(status) => Some(status),
            Location::Stream | Location::Anywhere => None,
        }
    }

    pub(crate) const fn is_status_only(&self) -> bool {
        matches!(self.pattern, Pattern::Any)
    }

    pub(crate) fn has_same_conditions(&self, other: &Self) -> bool {
        self.location == other.location && self.pattern == other.pattern
    }

    pub(crate) const fn class(&self) -> RowClass {
        self.class
    }

    pub(crate) fn matches(&self, evidence: &Evidence<'_>) -> bool {
        let is_located = match self.location {
            Location::Status(status) => evidence.status.is_some_and(|known| known == status),
            Location::Stream => evidence.status.is_none(),
            Location::Anywhere => true,
        };
        is_located
            && match self.pattern {
                Pattern::Any => true,
                Pattern::Name(name) => evidence.has(name),
                Pattern::Quota(quota) => evidence.quota == Some(quota),
            }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            Location::Status(status) => write!(f, "{status}")?,
            Location::Stream => f.write_str("stream")?,
            Location::Anywhere => f.write_str("any")?,
        }
        match self.pattern {
            Pattern::Any => {}
            Pattern::Name(name) => write!(f, " {name}")?,
            Pattern::Quota(Quota::Day) => f.write_str(" (daily quota)")?,
            Pattern::Quota(Quota::Zero) => f.write_str(" (zero quota)")?,
        }
        write!(f, ": {}", self.class.without_details().name())
    }
}

/// Returns the tables of a provider: its own first, then those that it shares.
pub(crate) fn of(dialect: Dialect) -> [&'static [Row]; 3] {
    match dialect {
        Dialect::OpenAi | Dialect::Azure | Dialect::Mock => [&[], OPENAI, STATUSES],
        Dialect::Anthropic => [ANTHROPIC, &[], STATUSES],
        Dialect::Gemini => [GEMINI, &[], STATUSES],
        Dialect::Groq => [GROQ, OPENAI, STATUSES],
        Dialect::Mistral => [MISTRAL, OPENAI, STATUSES],
        Dialect::Together => [TOGETHER, OPENAI, STATUSES],
        Dialect::OpenRouter => [OPENROUTER, OPENAI, STATUSES],
        Dialect::DeepSeek => [DEEPSEEK, OPENAI, STATUSES],
        Dialect::Ollama => [&[], &[], STATUSES],
        Dialect::Compatible => [COMPATIBLE, OPENAI, STATUSES],
    }
}

const TRANSIENT: RowClass = RowClass::Fixed(Class::Transient);
const OVERLOADED: RowClass = RowClass::Fixed(Class::Overloaded);
const SLOW_DOWN: RowClass = RowClass::Fixed(Class::SlowDown);
const CREDENTIAL_REJECTED: RowClass = RowClass::Fixed(Class::CredentialRejected);
const TOO_LARGE: RowClass = RowClass::Fixed(Class::TooLarge);
const BAD_REQUEST: RowClass = RowClass::Fixed(Class::BadRequest);
const RATE_LIMITED: RowClass = RowClass::RateLimited;
const EXHAUSTED: RowClass = RowClass::Exhausted(QuotaReset::Unknown);

const fn status(status: u16, class: RowClass) -> Row {
    Row { location: Location::Status(status), pattern: Pattern::Any, class }
}

const fn named(status: u16, name: &'static str, class: RowClass) -> Row {
    Row { location: Location::Status(status), pattern: Pattern::Name(name), class }
}

const fn anywhere(name: &'static str, class: RowClass) -> Row {
    Row { location: Location::Anywhere, pattern: Pattern::Name(name), class }
}

const fn in_stream(name: &'static str, class: RowClass) -> Row {
    Row { location: Location::Stream, pattern: Pattern::Name(name), class }
}

const fn of_quota(quota: Quota, class: RowClass) -> Row {
    Row { location: Location::Anywhere, pattern: Pattern::Quota(quota), class }
}

/// Default classes of statuses.
static STATUSES: &[Row] = &[
    status(400, BAD_REQUEST),
    status(401, CREDENTIAL_REJECTED),
    status(402, EXHAUSTED),
    status(403, CREDENTIAL_REJECTED),
    status(404, BAD_REQUEST),
    status(408, TRANSIENT),
    status(409, TRANSIENT),
    status(413, TOO_LARGE),
    status(422, BAD_REQUEST),
    status(425, TRANSIENT),
    status(429, RATE_LIMITED),
    status(500, TRANSIENT),
    status(502, TRANSIENT),
    status(503, OVERLOADED),
    status(504, TRANSIENT),
    status(529, OVERLOADED),
];

/// OpenAI's names, which compatible providers use as well.
static OPENAI: &[Row] = &[
    // Billing: the first is a type; newer responses carry the others as their code.
    anywhere("insufficient_quota", EXHAUSTED),
    anywhere("billing_hard_limit_reached", EXHAUSTED),
    anywhere("billing_not_active", EXHAUSTED),
    anywhere("credit_balance_exhausted", EXHAUSTED),
    anywhere("organization_spend_limit_exceeded", EXHAUSTED),
    anywhere("organization_usage_limit_exceeded", EXHAUSTED),
    anywhere("project_spend_limit_exceeded", EXHAUSTED),
    // The request rate grew too fast; sent with 503, and lately with 429.
    anywhere("slow_down", SLOW_DOWN),
    anywhere("server_is_overloaded", OVERLOADED),
    named(400, "context_length_exceeded", TOO_LARGE),
    in_stream("context_length_exceeded", TOO_LARGE),
    in_stream("rate_limit_exceeded", RATE_LIMITED),
    in_stream("rate_limit_error", RATE_LIMITED),
    in_stream("requests", RATE_LIMITED),
    in_stream("tokens", RATE_LIMITED),
    in_stream("service_unavailable_error", OVERLOADED),
    in_stream("overloaded_error", OVERLOADED),
    in_stream("invalid_api_key", CREDENTIAL_REJECTED),
    in_stream("authentication_error", CREDENTIAL_REJECTED),
    in_stream("invalid_request_error", BAD_REQUEST),
    in_stream("server_error", TRANSIENT),
];

static ANTHROPIC: &[Row] = &[
    // Spend limit of a usage tier: a `rate_limit_error` that a short wait does not resolve.
    anywhere("enforced_spend_limit_reached", RowClass::Exhausted(QuotaReset::UtcMonth)),
    in_stream("overloaded_error", OVERLOADED),
    in_stream("rate_limit_error", RATE_LIMITED),
    in_stream("api_error", TRANSIENT),
    in_stream("timeout_error", TRANSIENT),
    in_stream("conflict_error", TRANSIENT),
    in_stream("request_too_large", TOO_LARGE),
    in_stream("billing_error", EXHAUSTED),
    in_stream("authentication_error", CREDENTIAL_REJECTED),
    in_stream("permission_error", CREDENTIAL_REJECTED),
    in_stream("not_found_error", BAD_REQUEST),
    in_stream("invalid_request_error", BAD_REQUEST),
];

static GEMINI: &[Row] = &[
    of_quota(Quota::Zero, EXHAUSTED),
    // Google sends a delay of seconds with it, which is wrong.
    of_quota(Quota::Day, RowClass::Exhausted(QuotaReset::PacificMidnight)),
    anywhere("API_KEY_INVALID", CREDENTIAL_REJECTED),
    // The project may not use the API from this region, or not without billing.
    named(400, "FAILED_PRECONDITION", CREDENTIAL_REJECTED),
    in_stream("RESOURCE_EXHAUSTED", RATE_LIMITED),
    in_stream("UNAVAILABLE", OVERLOADED),
    in_stream("INTERNAL", TRANSIENT),
    in_stream("DEADLINE_EXCEEDED", TRANSIENT),
    in_stream("PERMISSION_DENIED", CREDENTIAL_REJECTED),
    in_stream("UNAUTHENTICATED", CREDENTIAL_REJECTED),
    in_stream("INVALID_ARGUMENT", BAD_REQUEST),
    in_stream("NOT_FOUND", BAD_REQUEST),
];

static GROQ: &[Row] = &[
    // Capacity of the flex tier.
    status(498, OVERLOADED),
];

static MISTRAL: &[Row] = &[
    named(429, "rate_limited", RATE_LIMITED),
    in_stream("rate_limited", RATE_LIMITED),
    in_stream("internal_server_error", TRANSIENT),
    in_stream("unavailable", OVERLOADED),
];

/// Despite its name, `credit_limit` is a rate limit.
static TOGETHER: &[Row] =
    &[named(429, "credit_limit", RATE_LIMITED), in_stream("credit_limit", RATE_LIMITED)];

static OPENROUTER: &[Row] = &[
    // The calls in flight exceed the remaining credit; it resolves as they end.
    named(402, "openrouter_in_flight_budget", RATE_LIMITED),
    status(402, RowClass::Exhausted(QuotaReset::AsReported)),
    named(403, "openrouter_guardrail_budget", RowClass::Exhausted(QuotaReset::AsReported)),
    named(403, "openrouter_workspace_budget", RowClass::Exhausted(QuotaReset::AsReported)),
    named(403, "openrouter_key_limit", RowClass::Exhausted(QuotaReset::AsReported)),
    status(403, BAD_REQUEST),
    anywhere("provider_overloaded", OVERLOADED),
];

static DEEPSEEK: &[Row] = &[in_stream("rate_limit_reached", RATE_LIMITED)];

/// Some providers (Kimi) report a plan that is exhausted until the next billing cycle as a missing
/// permission.
static COMPATIBLE: &[Row] = &[named(403, "permission_error", EXHAUSTED)];
