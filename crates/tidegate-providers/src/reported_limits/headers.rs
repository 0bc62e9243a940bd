//! Limits as providers report them in header fields.
//!
//! One table for each dialect: which names belong together, what they count and of which window.
//! Every dimension is read for itself; resets are never merged. A limit that is negative, zero or
//! no number says that the provider does not know, and all of its family is ignored; so are the
//! windows of plans (`anthropic-ratelimit-unified-*`) and of months, which no dimension stands for.

use std::time::Duration;

use http::HeaderMap;
use tidegate_core::WallTime;

use super::delay;
use crate::dialect::Dialect;
use crate::reported_limits::{Dimension, Reading, ReportedLimits};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// A limit that takes longer than this to come back is no minute's, whatever its name says.
const NOT_A_MINUTE: Duration = Duration::from_secs(600);

impl ReportedLimits {
    /// What was reported about limits in the header fields of an answer. Dates are read against the
    /// answer's own `date`, or against `now` if there is none.
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

/// Limits in header fields of an answer that was sent at a known time.
pub(crate) fn read_at(dialect: Dialect, headers: &HeaderMap, now: WallTime) -> ReportedLimits {
    read_fields(dialect, |name| headers.get(name)?.to_str().ok(), now)
}

/// Limits in any place that has names and values.
pub(crate) fn read_fields<'a>(
    dialect: Dialect,
    field: impl Fn(&str) -> Option<&'a str>,
    now: WallTime,
) -> ReportedLimits {
    let mut reported = ReportedLimits::nothing();
    for family in families(dialect) {
        if let Some(reading) = family.read(&field, now) {
            let (dimension, window) = family.counts(&reading);
            reported.add(dimension, Reading { window, ..reading });
        }
    }
    reported
}

/// How long to wait, as header fields have it: `retry-after-ms`, which is finer, before
/// `retry-after` in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: WallTime) -> Option<Duration> {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let fine = field("retry-after-ms").and_then(delay::millis);
    fine.or_else(|| delay::read(field("retry-after")?, now))
}

/// The fields that tell of one limit.
struct Family {
    dimension: Dimension,
    window: Window,
    limit: &'static str,
    remaining: &'static str,
    /// The names that the reset goes by; the first that is there counts.
    reset: &'static [&'static str],
}

/// Which window a limit is of.
enum Window {
    /// Always this one.
    Is(Duration),
    /// A minute, or a day if the numbers say so: the same names stand for either.
    MinuteOrDay,
}

impl Family {
    fn read<'a>(&self, field: &impl Fn(&str) -> Option<&'a str>, now: WallTime) -> Option<Reading> {
        let limit = match field(self.limit) {
            Some(text) => Some(count(text).filter(|limit| *limit > 0)?),
            None => None,
        };
        let remaining = field(self.remaining).and_then(count);
        if limit.is_none() && remaining.is_none() {
            return None;
        }
        let reset = self.reset.iter().find_map(|name| delay::read(field(name)?, now));
        Some(Reading { limit, remaining, reset, window: MINUTE })
    }

    fn counts(&self, reading: &Reading) -> (Dimension, Duration) {
        match self.window {
            Window::Is(window) => (self.dimension, window),
            Window::MinuteOrDay if is_of_a_day(reading) => (Dimension::RequestsPerDay, DAY),
            Window::MinuteOrDay => (self.dimension, MINUTE),
        }
    }
}

/// A limit that comes back evenly tells its window by what is gone and how long that takes:
/// `reset * limit / (limit - remaining)`. Resets are rounded, and some windows are fixed, so that
/// only what comes to about a day is one. A fixed window is known by a reset that no minute has.
fn is_of_a_day(reading: &Reading) -> bool {
    let (Some(limit), Some(remaining), Some(reset)) =
        (reading.limit, reading.remaining, reading.reset)
    else {
        return false;
    };
    let used = limit.saturating_sub(remaining);
    // `reset` is less than a year and fits into 55 bits of nanoseconds.
    let window = (reset.as_nanos() * u128::from(limit)).checked_div(used.into());
    let about_a_day = DAY.as_nanos() / 2..=DAY.as_nanos() * 2;
    reset > NOT_A_MINUTE || window.is_some_and(|window| about_a_day.contains(&window))
}

/// A count as it is written; a fraction of it is dropped, a negative one is none.
fn count(text: &str) -> Option<u64> {
    let (whole, _) = delay::parts(text.trim())?;
    whole.parse().ok()
}

/// A family whose three names end alike.
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
            window: Window::Is(MINUTE),
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
    family!(Tokens, Window::Is(MINUTE), "-tokens"),
    // Beside `-tokens` it says the same, and the first counts.
    family!(Tokens, Window::Is(MINUTE), "-tokens_usage_based"),
];

static AZURE: &[Family] = &[
    family!(Requests, Window::Is(MINUTE), "-requests"),
    Family {
        reset: &["x-ratelimit-reset-tokens", "x-rate-limit-reset-tokens"],
        ..family!(Tokens, Window::Is(MINUTE), "-tokens")
    },
];

static ANTHROPIC: &[Family] = &[
    family!(anthropic Requests, "requests"),
    family!(anthropic Tokens, "tokens"),
    family!(anthropic InputTokens, "input-tokens"),
    family!(anthropic OutputTokens, "output-tokens"),
];

static GROQ: &[Family] = &[
    family!(RequestsPerDay, Window::Is(DAY), "-requests"),
    family!(Tokens, Window::Is(MINUTE), "-tokens"),
];

static MISTRAL: &[Family] = &[
    family!(Requests, Window::Is(MINUTE), "-req-minute"),
    family!(Tokens, Window::Is(MINUTE), "-tokens-minute"),
];

static TOGETHER: &[Family] = &[
    family!(Requests, Window::Is(SECOND), ""),
    Family {
        dimension: Dimension::Tokens,
        window: Window::Is(SECOND),
        limit: "x-tokenlimit-limit",
        remaining: "x-tokenlimit-remaining",
        reset: &["x-tokenlimit-reset"],
    },
];

static OPENROUTER: &[Family] = &[family!(Requests, Window::MinuteOrDay, "")];

/// OpenAI's names, and those that say the window, as Cerebras sends them.
static COMPATIBLE: &[Family] = &[
    family!(Requests, Window::Is(MINUTE), "-requests-minute"),
    family!(RequestsPerDay, Window::Is(DAY), "-requests-day"),
    family!(Tokens, Window::Is(MINUTE), "-tokens-minute"),
    family!(Requests, Window::MinuteOrDay, "-requests"),
    family!(Tokens, Window::Is(MINUTE), "-tokens"),
];
