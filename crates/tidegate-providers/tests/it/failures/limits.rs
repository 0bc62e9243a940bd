//! Limits in the response headers of every provider.

use std::time::Duration;

use tidegate_providers::{Dialect, Dimension, LimitReading, ReportedLimits};

use super::{DIALECTS, NOW, headers};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn read_limits(dialect: Dialect, fields: &[(&str, &str)]) -> ReportedLimits {
    ReportedLimits::read(dialect, &headers(fields), NOW)
}

fn reading(limit: u64, remaining: u64, reset: Option<u64>, window: Duration) -> LimitReading {
    let reset = reset.map(Duration::from_millis);
    LimitReading { limit: Some(limit), remaining: Some(remaining), reset, window }
}

/// `x-ratelimit-{limit,remaining,reset}` and a suffix.
fn family(suffix: &str, values: [&str; 3]) -> Vec<(String, String)> {
    let names = ["limit", "remaining", "reset"];
    let field = |(name, value)| (format!("x-ratelimit-{name}{suffix}"), String::from(value));
    names.into_iter().zip(values).map(field).collect()
}

fn limits_of(dialect: Dialect, families: &[(&str, [&str; 3])]) -> ReportedLimits {
    let fields: Vec<_> =
        families.iter().flat_map(|(ending, values)| family(ending, *values)).collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    read_limits(dialect, &fields)
}

#[test]
fn openai_reports_requests_and_tokens() {
    let reported = limits_of(
        Dialect::OpenAi,
        &[
            ("-requests", ["5000", "4999", "12ms"]),
            ("-tokens", ["160000", "159976", "9ms"]),
            ("-tokens_usage_based", ["170000", "1", "1s"]),
        ],
    );
    assert_eq!(reported.get(Dimension::Requests), Some(&reading(5_000, 4_999, Some(12), MINUTE)));
    assert_eq!(reported.get(Dimension::Tokens), Some(&reading(160_000, 159_976, Some(9), MINUTE)));
    assert_eq!(reported.iter().count(), 2);
}

#[test]
fn limit_that_refills_over_a_day_is_daily() {
    for dialect in [Dialect::OpenAi, Dialect::Compatible] {
        let reported = limits_of(dialect, &[("-requests", ["200", "199", "7m12s"])]);
        assert_eq!(reported.get(Dimension::Requests), None);
        let day = reading(200, 199, Some(432_000), DAY);
        assert_eq!(reported.get(Dimension::RequestsPerDay), Some(&day));
        // Nothing is used, so the window cannot be derived.
        let reported = limits_of(dialect, &[("-requests", ["200", "200", "7m12s"])]);
        assert!(reported.get(Dimension::Requests).is_some());
        let reported = limits_of(dialect, &[("-requests", ["3", "0", "1m0s"])]);
        assert!(reported.get(Dimension::Requests).is_some());
    }
}

#[test]
fn other_windows_count_as_a_minute() {
    // The window is fixed and has 45 seconds left, or the reset is rounded up to a second.
    let values = [["60", "58", "45"], ["1000", "999", "1s"], ["10000", "9999", "1"]];
    for dialect in [Dialect::OpenAi, Dialect::Compatible] {
        for values in values {
            let reported = limits_of(dialect, &[("-requests", values)]);
            let window = reported.get(Dimension::Requests).map(|reading| reading.window);
            assert_eq!(window, Some(MINUTE), "{dialect:?} {values:?}");
            assert_eq!(reported.iter().count(), 1);
        }
    }
    // A reset of three hours is too long for a minute, though the limit does not refill evenly.
    let reported = limits_of(Dialect::OpenRouter, &[("", ["50", "10", "1769871600000"])]);
    assert_eq!(
        reported.get(Dimension::RequestsPerDay),
        Some(&reading(50, 10, Some(10_800_000), DAY))
    );
}

#[test]
fn azure_limits_that_are_not_positive_are_ignored() {
    let unknown = ["-1", "-1", "0"];
    let families = [("-requests", unknown), ("-tokens", unknown)];
    assert!(limits_of(Dialect::Azure, &families).is_empty());
    let reported = read_limits(
        Dialect::Azure,
        &[
            ("x-ratelimit-limit-tokens", "10000"),
            ("x-ratelimit-remaining-tokens", "9000"),
            ("x-rate-limit-reset-tokens", "6"),
            ("x-ratelimit-remaining-requests", "9"),
        ],
    );
    assert_eq!(reported.get(Dimension::Tokens), Some(&reading(10_000, 9_000, Some(6_000), MINUTE)));
    let requests = LimitReading { limit: None, remaining: Some(9), reset: None, window: MINUTE };
    assert_eq!(reported.get(Dimension::Requests), Some(&requests));
}

#[test]
fn anthropic_reports_four_limits_with_dates() {
    let names = ["requests", "tokens", "input-tokens", "output-tokens"];
    let mut fields = vec![
        ("anthropic-ratelimit-unified-5h-status".to_owned(), "allowed"),
        ("anthropic-ratelimit-unified-5h-reset".to_owned(), "1769870000"),
    ];
    for name in names {
        fields.push((format!("anthropic-ratelimit-{name}-limit"), "100"));
        fields.push((format!("anthropic-ratelimit-{name}-remaining"), "40"));
        fields.push((format!("anthropic-ratelimit-{name}-reset"), "2026-01-31T12:00:36Z"));
    }
    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, *value)).collect();
    let all = read_limits(Dialect::Anthropic, &fields);
    let dimensions =
        [Dimension::Requests, Dimension::Tokens, Dimension::InputTokens, Dimension::OutputTokens];
    for dimension in dimensions {
        assert_eq!(all.get(dimension), Some(&reading(100, 40, Some(36_000), MINUTE)));
    }
    assert_eq!(all.iter().count(), 4);
    assert!(read_limits(Dialect::Anthropic, &fields[..2]).is_empty());
    // A full bucket reports a reset in the past.
    let over = [
        ("anthropic-ratelimit-requests-limit", "100"),
        ("anthropic-ratelimit-requests-remaining", "100"),
        ("anthropic-ratelimit-requests-reset", "2026-01-31T11:59:00Z"),
    ];
    let reported = read_limits(Dialect::Anthropic, &over);
    assert_eq!(reported.get(Dimension::Requests), Some(&reading(100, 100, Some(0), MINUTE)));
}

#[test]
fn groq_reports_requests_per_day() {
    let reported = limits_of(
        Dialect::Groq,
        &[("-requests", ["14400", "14370", "2m59.56s"]), ("-tokens", ["18000", "17997", "7.66s"])],
    );
    let day = reading(14_400, 14_370, Some(179_560), DAY);
    assert_eq!(reported.get(Dimension::RequestsPerDay), Some(&day));
    assert_eq!(
        reported.get(Dimension::Tokens),
        Some(&reading(18_000, 17_997, Some(7_660), MINUTE))
    );
    assert_eq!(reported.iter().count(), 2);
}

#[test]
fn window_in_the_header_name_is_used() {
    let cerebras = limits_of(
        Dialect::Compatible,
        &[
            ("-requests-day", ["1000", "999", "3600"]),
            ("-tokens-minute", ["60000", "59000", "1.5"]),
            ("-tokens", ["1", "1", "1"]),
        ],
    );
    let day = reading(1_000, 999, Some(3_600_000), DAY);
    assert_eq!(cerebras.get(Dimension::RequestsPerDay), Some(&day));
    assert_eq!(
        cerebras.get(Dimension::Tokens),
        Some(&reading(60_000, 59_000, Some(1_500), MINUTE))
    );

    let mistral = read_limits(
        Dialect::Mistral,
        &[
            ("x-ratelimit-limit-req-minute", "720"),
            ("x-ratelimit-remaining-req-minute", "717"),
            ("x-ratelimit-limit-tokens-minute", "5000000"),
            ("x-ratelimit-remaining-tokens-minute", "4999911"),
            ("x-ratelimit-limit-tokens-month", "1000000000"),
            ("x-ratelimit-tokens-query-cost", "52"),
        ],
    );
    assert_eq!(mistral.get(Dimension::Requests), Some(&reading(720, 717, None, MINUTE)));
    let tokens = reading(5_000_000, 4_999_911, None, MINUTE);
    assert_eq!(mistral.get(Dimension::Tokens), Some(&tokens));
}

#[test]
fn together_limits_are_per_second() {
    let fields = [
        ("x-ratelimit-limit", "10"),
        ("x-ratelimit-remaining", "9.5"),
        ("x-ratelimit-reset", "1"),
        ("x-tokenlimit-limit", "3000"),
        ("x-tokenlimit-remaining", "2000"),
    ];
    let reported = read_limits(Dialect::Together, &fields);
    assert_eq!(reported.get(Dimension::Requests), Some(&reading(10, 9, Some(1_000), SECOND)));
    assert_eq!(reported.get(Dimension::Tokens), Some(&reading(3_000, 2_000, None, SECOND)));
}

#[test]
fn openrouter_reports_reset_as_unix_time() {
    let reported = limits_of(Dialect::OpenRouter, &[("", ["20", "0", "1769860830000"])]);
    assert_eq!(reported.get(Dimension::Requests), Some(&reading(20, 0, Some(30_000), MINUTE)));
}

#[test]
fn invalid_limits_are_ignored() {
    for values in [["0", "0", "1s"], ["-5", "3", "1s"], ["many", "3", "1s"], ["", "", ""]] {
        for dialect in DIALECTS {
            let endings =
                ["", "-requests", "-tokens", "-req-minute", "-tokens-minute", "-requests-day"];
            let families = endings.map(|ending| (ending, values));
            assert!(limits_of(dialect, &families).is_empty(), "{dialect:?} {values:?}");
        }
    }
    let known = [("-requests", ["10", "9", "6s"]), ("-tokens", ["10", "9", "6s"])];
    for dialect in [Dialect::Gemini, Dialect::DeepSeek, Dialect::Ollama, Dialect::Mock] {
        assert!(limits_of(dialect, &known).is_empty());
    }
}
