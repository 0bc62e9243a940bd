//! What is known of errors, provider by provider, as data.
//!
//! Names come before statuses: the first row that fits decides. Names that several providers use
//! for different things (`invalid_request_error` comes with 400, 401 and 402) count only in
//! streams, where there is no status to say more.

use std::fmt;

use super::{Evidence, Quota, Until, Verdict};
use crate::dialect::Dialect;
use crate::failure::Class;

/// A line of the table: an error, and its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    at: At,
    sign: Sign,
    verdict: Verdict,
}

/// Where an error comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Status(u16),
    /// In a stream, without a status.
    Stream,
    Anywhere,
}

/// What it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Nothing more is known.
    Bare,
    /// Its type, its code or one of its reasons.
    Name(&'static str),
    Quota(Quota),
}

impl Row {
    /// The status that it is for, if it is for one.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self.at {
            At::Status(status) => Some(status),
            At::Stream | At::Anywhere => None,
        }
    }

    pub(crate) const fn is_bare(&self) -> bool {
        matches!(self.sign, Sign::Bare)
    }

    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
        self.at == other.at && self.sign == other.sign
    }

    pub(crate) const fn verdict(&self) -> Verdict {
        self.verdict
    }

    pub(crate) fn fits(&self, evidence: &Evidence<'_>) -> bool {
        let is_there = match self.at {
            At::Status(status) => evidence.status.is_some_and(|known| known == status),
            At::Stream => evidence.status.is_none(),
            At::Anywhere => true,
        };
        is_there
            && match self.sign {
                Sign::Bare => true,
                Sign::Name(name) => evidence.has(name),
                Sign::Quota(quota) => evidence.quota == Some(quota),
            }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Status(status) => write!(f, "{status}")?,
            At::Stream => f.write_str("stream")?,
            At::Anywhere => f.write_str("any")?,
        }
        match self.sign {
            Sign::Bare => {}
            Sign::Name(name) => write!(f, " {name}")?,
            Sign::Quota(Quota::Day) => f.write_str(" (quota of a day)")?,
            Sign::Quota(Quota::Nothing) => f.write_str(" (quota of nothing)")?,
        }
        write!(f, ": {}", self.verdict.bare().name())
    }
}

/// The tables of a provider: its own, and those that it shares.
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

const TRANSIENT: Verdict = Verdict::Is(Class::Transient);
const OVERLOADED: Verdict = Verdict::Is(Class::Overloaded);
const SLOW_DOWN: Verdict = Verdict::Is(Class::SlowDown);
const DEAD_KEY: Verdict = Verdict::Is(Class::CredentialRejected);
const TOO_BIG: Verdict = Verdict::Is(Class::TooLarge);
const BAD_REQUEST: Verdict = Verdict::Is(Class::BadRequest);
const LIMITED: Verdict = Verdict::Limited;
const UNPAID: Verdict = Verdict::Spent(Until::Unknown);

const fn on(status: u16, verdict: Verdict) -> Row {
    Row { at: At::Status(status), sign: Sign::Bare, verdict }
}

const fn named(status: u16, name: &'static str, verdict: Verdict) -> Row {
    Row { at: At::Status(status), sign: Sign::Name(name), verdict }
}

const fn anywhere(name: &'static str, verdict: Verdict) -> Row {
    Row { at: At::Anywhere, sign: Sign::Name(name), verdict }
}

const fn in_stream(name: &'static str, verdict: Verdict) -> Row {
    Row { at: At::Stream, sign: Sign::Name(name), verdict }
}

const fn of_quota(quota: Quota, verdict: Verdict) -> Row {
    Row { at: At::Anywhere, sign: Sign::Quota(quota), verdict }
}

/// What a status means where nobody says otherwise.
static STATUSES: &[Row] = &[
    on(400, BAD_REQUEST),
    on(401, DEAD_KEY),
    on(402, UNPAID),
    on(403, DEAD_KEY),
    on(404, BAD_REQUEST),
    on(408, TRANSIENT),
    on(409, TRANSIENT),
    on(413, TOO_BIG),
    on(422, BAD_REQUEST),
    on(425, TRANSIENT),
    on(429, LIMITED),
    on(500, TRANSIENT),
    on(502, TRANSIENT),
    on(503, OVERLOADED),
    on(504, TRANSIENT),
    on(529, OVERLOADED),
];

/// OpenAI's names, which those who speak its API use as well.
static OPENAI: &[Row] = &[
    // Money: the type is the first of them, and newer answers have the others as their code.
    anywhere("insufficient_quota", UNPAID),
    anywhere("billing_hard_limit_reached", UNPAID),
    anywhere("billing_not_active", UNPAID),
    anywhere("credit_balance_exhausted", UNPAID),
    anywhere("organization_spend_limit_exceeded", UNPAID),
    anywhere("organization_usage_limit_exceeded", UNPAID),
    anywhere("project_spend_limit_exceeded", UNPAID),
    // The rate has grown too fast, with 503 and lately with 429.
    anywhere("slow_down", SLOW_DOWN),
    anywhere("server_is_overloaded", OVERLOADED),
    named(400, "context_length_exceeded", TOO_BIG),
    in_stream("context_length_exceeded", TOO_BIG),
    in_stream("rate_limit_exceeded", LIMITED),
    in_stream("rate_limit_error", LIMITED),
    in_stream("requests", LIMITED),
    in_stream("tokens", LIMITED),
    in_stream("service_unavailable_error", OVERLOADED),
    in_stream("overloaded_error", OVERLOADED),
    in_stream("invalid_api_key", DEAD_KEY),
    in_stream("authentication_error", DEAD_KEY),
    in_stream("invalid_request_error", BAD_REQUEST),
    in_stream("server_error", TRANSIENT),
];

static ANTHROPIC: &[Row] = &[
    // The spend limit of a tier: a `rate_limit_error` like others, but nothing to wait for.
    anywhere("enforced_spend_limit_reached", Verdict::Spent(Until::UtcMonth)),
    in_stream("overloaded_error", OVERLOADED),
    in_stream("rate_limit_error", LIMITED),
    in_stream("api_error", TRANSIENT),
    in_stream("timeout_error", TRANSIENT),
    in_stream("conflict_error", TRANSIENT),
    in_stream("request_too_large", TOO_BIG),
    in_stream("billing_error", UNPAID),
    in_stream("authentication_error", DEAD_KEY),
    in_stream("permission_error", DEAD_KEY),
    in_stream("not_found_error", BAD_REQUEST),
    in_stream("invalid_request_error", BAD_REQUEST),
];

static GEMINI: &[Row] = &[
    of_quota(Quota::Nothing, UNPAID),
    // The delay that comes with it says seconds, and is not true.
    of_quota(Quota::Day, Verdict::Spent(Until::PacificDay)),
    anywhere("API_KEY_INVALID", DEAD_KEY),
    // A project that may not use the API from here, or not without billing.
    named(400, "FAILED_PRECONDITION", DEAD_KEY),
    in_stream("RESOURCE_EXHAUSTED", LIMITED),
    in_stream("UNAVAILABLE", OVERLOADED),
    in_stream("INTERNAL", TRANSIENT),
    in_stream("DEADLINE_EXCEEDED", TRANSIENT),
    in_stream("PERMISSION_DENIED", DEAD_KEY),
    in_stream("UNAUTHENTICATED", DEAD_KEY),
    in_stream("INVALID_ARGUMENT", BAD_REQUEST),
    in_stream("NOT_FOUND", BAD_REQUEST),
];

static GROQ: &[Row] = &[
    // The capacity of the flexible tier.
    on(498, OVERLOADED),
];

static MISTRAL: &[Row] = &[
    named(429, "rate_limited", LIMITED),
    in_stream("rate_limited", LIMITED),
    in_stream("internal_server_error", TRANSIENT),
    in_stream("unavailable", OVERLOADED),
];

/// The name is about money, the error is not.
static TOGETHER: &[Row] =
    &[named(429, "credit_limit", LIMITED), in_stream("credit_limit", LIMITED)];

static OPENROUTER: &[Row] = &[
    // Too much is under way for the credit that is left: it comes back as calls end.
    named(402, "openrouter_in_flight_budget", LIMITED),
    on(402, Verdict::Spent(Until::AsReported)),
    named(403, "openrouter_guardrail_budget", Verdict::Spent(Until::AsReported)),
    named(403, "openrouter_workspace_budget", Verdict::Spent(Until::AsReported)),
    named(403, "openrouter_key_limit", Verdict::Spent(Until::AsReported)),
    on(403, BAD_REQUEST),
    anywhere("provider_overloaded", OVERLOADED),
];

static DEEPSEEK: &[Row] = &[in_stream("rate_limit_reached", LIMITED)];

/// A plan that is used up until its next billing cycle is a lack of permission to some (Kimi).
static COMPATIBLE: &[Row] = &[named(403, "permission_error", UNPAID)];
