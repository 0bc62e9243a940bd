//! Limits that providers report in response headers.
//!
//! A table for each dialect says which headers belong together, what they count and in which
//! window. Dimensions are read separately; resets are never merged. A limit that is negative, zero
//! or not a number means that the provider does not know it, and its header family is ignored. So
//! are windows of plans (`anthropic-ratelimit-unified-*`) and months, which have no dimension.

use std::time::Duration;

use http::HeaderMap;
use tidegate_core::WallTime;

use super::delay;
use crate::dialect::Dialect;
use crate::reported_limits::{Dimension, LimitReading, ReportedLimits};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// A limit with a longer reset is not per minute, whatever its header name says.
const MAX_MINUTE_RESET: Duration = Duration::from_secs(600);

impl ReportedLimits {
    /// Reads the limits in the headers of a response. Dates are relative to the `date` header, or
    /// to `now` if there is none.
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tidegate_core::WallTime;
    /// use tidegate_providers::{Dialect, Dimension, ReportedLimits};
    ///
    /// let mut headers = HeaderMap::new();
    /// headers.insert("x-ratelimit-limit-tokens", "150000".parse()?);
    /// headers.insert("x-ratelimit-remaining-tokens", "149984".parse()?);
    /// headers.insert("x-ratelimit-reset-tokens", "6ms".parse()?);
    /// let now = WallTime::from_secs(1_800_000_000);
    /// let reported = ReportedLimits::read(Dialect::OpenAi, &headers, now);
    /// assert_eq!(reported.get(Dimension::Tokens).unwrap().remaining, Some(149_984));
    /// # Ok::<(), http::header::InvalidHeaderValue>(())
    /// ```
    #[must_use]
    pub fn read(dialect: Dialect, headers: &HeaderMap, now: WallTime) -> Self {
        read_at(dialect, headers, delay::sent_at(headers, now))
    }
}

/// Reads the limits in the headers of a response that was sent at `now`.
pub(crate) fn read_at(dialect: Dialect, headers: &HeaderMap, now: WallTime) -> ReportedLimits {
    read_fields(dialect, |name| headers.get(name)?.to_str().ok(), now)
}

/// Reads the limits from any source of header names and values.
pub(crate) fn read_fields<'a>(
    dialect: Dialect,
    field: impl Fn(&str) -> Option<&'a str>,
    now: WallTime,
) -> ReportedLimits {
    let mut reported = ReportedLimits::new();
    for family in families(dialect) {
        if let Some(reading) = family.read(&field, now) {
            let (dimension, window) = family.dimension_and_window(&reading);
            reported.add(dimension, LimitReading { window, ..reading });
        }
    }
    reported
}

/// Reads the delay until a retry: `retry-after-ms`, which is more precise, or else `retry-after` in
/// seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: WallTime) -> Option<Duration> {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let millis = field("retry-after-ms").and_then(delay::millis);
    millis.or_else(|| delay::read(field("retry-after")?, now))
}

/// Headers that describe one limit.
struct Family {
    dimension: Dimension,
    window: Window,
    limit: &'static str,
    remaining: &'static str,
    /// Names of the reset header; the first one present is used.
    reset: &'static [&'static str],
}

/// Window of a limit.
enum Window {
    /// Always this window.
    Fixed(Duration),
    /// A minute, or a day if the values indicate so: the provider uses the same names for both.
    MinuteOrDay,
}

impl Family {
    fn read<'a>(
        &self,
        field: &impl Fn(&str) -> Option<&'a str>,
        now: WallTime,
    ) -> Option<LimitReading> {
        let limit = match field(self.limit) {
            Some(text) => Some(count(text).filter(|limit| *limit > 0)?),
            None => None,
        };
        let remaining = field(self.remaining).and_then(count);
        if limit.is_none() && remaining.is_none() {
            return None;
        }
        let reset = self.reset.iter().find_map(|name| delay::read(field(name)?, now));
        Some(LimitReading { limit, remaining, reset, window: MINUTE })
    }

    fn dimension_and_window(&self, reading: &LimitReading) -> (Dimension, Duration) {
        match self.window {
            Window::Fixed(window) => (self.dimension, window),
            Window::MinuteOrDay if is_daily(reading) => (Dimension::RequestsPerDay, DAY),
            Window::MinuteOrDay => (self.dimension, MINUTE),
        }
    }
}

/// Returns whether a limit is daily. The window of a limit that refills continuously is `reset *
/// limit / (limit - remaining)`. Resets are rounded and some windows are fixed, so anything near a
/// day counts. A fixed daily window is recognized by a reset too long for a minute.
fn is_daily(reading: &LimitReading) -> bool {
    let (Some(limit), Some(remaining), Some(reset)) =
        (reading.limit, reading.remaining, reading.reset)
    else {
        return false;
    };
    let used = limit.saturating_sub(remaining);
    // `reset` is at most a year, which fits into 55 bits of nanoseconds.
    let window = (reset.as_nanos() * u128::from(limit)).checked_div(used.into());
    let about_a_day = DAY.as_nanos() / 2..=DAY.as_nanos() * 2;
    reset > MAX_MINUTE_RESET || window.is_some_and(|window| about_a_day.contains(&window))
}

/// Parses a count. A fraction is dropped; a negative number is rejected.
fn count(text: &str) -> Option<u64> {
    let (whole, _) = delay::decimal_parts(text.trim())?;
    whole.parse().ok()
}

/// Defines a family whose three names share a suffix.
macro_rules! family {
    ($dimension:ident, $window:expr, $name:literal) => {
        Family {
            dimension: Dimension::$dimension,
            window: $window,
            limit: concat!("x-ratelimit-limit", $name),
            remaining: concat!("x-ratelimit-remaining", $name),
            reset: &[concat!("x-ratelimit-reset", $name)],
        }
    };
    (anthropic $dimension:ident, $name:literal) => {
        Family {
            dimension: Dimension::$dimension,
            window: Window::Fixed(MINUTE),
            limit: concat!("anthropic-ratelimit-", $name, "-limit"),
            remaining: concat!("anthropic-ratelimit-", $name, "-remaining"),
            reset: &[concat!("anthropic-ratelimit-", $name, "-reset")],
        }
    };
}

fn families(dialect: Dialect) -> &'static [Family] {
    match dialect {
        Dialect::OpenAi => OPENAI,
        Dialect::Azure => AZURE,
        Dialect::Anthropic => ANTHROPIC,
        Dialect::Groq => GROQ,
        Dialect::Mistral => MISTRAL,
        Dialect::Together => TOGETHER,
        Dialect::OpenRouter => OPENROUTER,
        Dialect::Compatible => COMPATIBLE,
        Dialect::Gemini | Dialect::DeepSeek | Dialect::Ollama | Dialect::Mock => &[],
    }
}

static OPENAI: &[Family] = &[
    family!(Requests, Window::MinuteOrDay, "-requests"),
    family!(Tokens, Window::Fixed(MINUTE), "-tokens"),
    // Duplicates `-tokens`; the first one present is used.
    family!(Tokens, Window::Fixed(MINUTE), "-tokens_usage_based"),
];

static AZURE: &[Family] = &[
    family!(Requests, Window::Fixed(MINUTE), "-requests"),
    Family {
        reset: &["x-ratelimit-reset-tokens", "x-rate-limit-reset-tokens"],
        ..family!(Tokens, Window::Fixed(MINUTE), "-tokens")
    },
];

static ANTHROPIC: &[Family] = &[
    family!(anthropic Requests, "requests"),
    family!(anthropic Tokens, "tokens"),
    family!(anthropic InputTokens, "input-tokens"),
    family!(anthropic OutputTokens, "output-tokens"),
];

static GROQ: &[Family] = &[
    family!(RequestsPerDay, Window::Fixed(DAY), "-requests"),
    family!(Tokens, Window::Fixed(MINUTE), "-tokens"),
];

static MISTRAL: &[Family] = &[
    family!(Requests, Window::Fixed(MINUTE), "-req-minute"),
    family!(Tokens, Window::Fixed(MINUTE), "-tokens-minute"),
];

static TOGETHER: &[Family] = &[
    family!(Requests, Window::Fixed(SECOND), ""),
    Family {
        dimension: Dimension::Tokens,
        window: Window::Fixed(SECOND),
        limit: "x-tokenlimit-limit",
        remaining: "x-tokenlimit-remaining",
        reset: &["x-tokenlimit-reset"],
    },
];

static OPENROUTER: &[Family] = &[family!(Requests, Window::MinuteOrDay, "")];

/// OpenAI's names, and names that include the window, as Cerebras sends them.
static COMPATIBLE: &[Family] = &[
    family!(Requests, Window::Fixed(MINUTE), "-requests-minute"),
    family!(RequestsPerDay, Window::Fixed(DAY), "-requests-day"),
    family!(Tokens, Window::Fixed(MINUTE), "-tokens-minute"),
    family!(Requests, Window::MinuteOrDay, "-requests"),
    family!(Tokens, Window::Fixed(MINUTE), "-tokens"),
];
