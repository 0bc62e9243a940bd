//! Settings of models, and their concurrency.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::Rate;
use tidegate_llm::plan::Constraint;
use tidegate_llm::settings::{
    DEFAULT_CONCURRENCY_CAP, RateLimitSettings, resolve_concurrency, resolve_concurrency_cap,
};
use tidegate_providers::{Dimension, Provider};

const NOT_CONFIGURED: &str = "concurrency limit not configured. Defaulting to 1 for safety.";

/// Parses a section into a constraint.
fn section(text: &str) -> Result<Option<Constraint>, String> {
    let settings: Result<RateLimitSettings, _> = serde_json::from_str(text);
    let settings = settings.map_err(|error| error.to_string())?;
    settings.constraint().map_err(|error| error.to_string())
}

#[test]
fn section_round_trips_through_json() {
    let settings = RateLimitSettings::new().enabled(false).requests_per_minute(60).burst(60);
    let text = serde_json::to_string(&settings).unwrap();
    assert_eq!(text, r#"{"enabled":false,"requests_per_minute":60,"burst_capacity":60}"#);
    assert_eq!(serde_json::from_str::<RateLimitSettings>(&text).unwrap(), settings);
}

#[test]
fn default_burst_is_one_minutes_worth() {
    let burst = |text| section(text).unwrap().unwrap().burst();
    assert_eq!(burst(r#"{ "requests_per_minute": 120 }"#), 120);
    assert_eq!(burst(r#"{ "burst_capacity": 5 }"#), 5);
    assert_eq!(burst("{}"), 60);
    let constraint = section("{}").unwrap().unwrap();
    assert_eq!(constraint.rate(Dimension::Requests), Rate::per_second(1).ok());
}

#[test]
fn invalid_values_are_rejected_with_key_and_rule() {
    for (text, expected) in [
        (r#"{ "requests_per_minute": 0 }"#, "requests_per_minute = 0: must be > 0"),
        (r#"{ "requests_per_minute": -10 }"#, "requests_per_minute = -10: must be > 0"),
        (r#"{ "burst_capacity": 0 }"#, "burst_capacity = 0: must be >= 1"),
        (r#"{ "tokens_per_minute": 0 }"#, "tokens_per_minute = 0: must be > 0"),
        (r#"{ "min_interval_ms": -1 }"#, "min_interval_ms = -1: must be >= 0"),
        (r#"{ "max_concurrent_requests": 0 }"#, "max_concurrent_requests = 0: must be >= 1"),
        (r#"{ "burst": 1 }"#, "unknown field `burst`"),
    ] {
        let error = section(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let both = RateLimitSettings::new().requests_per_minute(0).burst(0);
    let error = both.constraint().unwrap_err();
    assert_eq!(error.violations().len(), 2, "{error}");
}

#[test]
fn every_limit_has_a_setter() {
    let constraint = RateLimitSettings::new()
        .requests_per_minute(120)
        .burst(3)
        .input_tokens_per_minute(600)
        .output_tokens_per_minute(60)
        .requests_per_day(1_000, "UTC")
        .min_interval(Duration::from_millis(20))
        .concurrency(4)
        .constraint()
        .unwrap()
        .unwrap();
    assert_eq!(constraint.rate(Dimension::Requests), Rate::per_second(2).ok());
    assert_eq!(constraint.rate(Dimension::InputTokens), Rate::per_second(10).ok());
    assert_eq!(constraint.rate(Dimension::OutputTokens), Rate::per_second(1).ok());
    assert_eq!(constraint.requests_per_day().unwrap().get(), 1_000);
    assert_eq!(constraint.min_interval(), Duration::from_millis(20));
    assert_eq!(constraint.concurrency().map(NonZeroU32::get), Some(4));
    assert_eq!(constraint.burst(), 3);
    let total = RateLimitSettings::new().tokens_per_minute(60).constraint().unwrap().unwrap();
    assert_eq!(total.rate(Dimension::Tokens), Rate::per_second(1).ok());
}

/// Only settings without any limit have the default.
#[test]
fn requests_are_learned_if_only_other_limits_are_set() {
    for text in [
        r#"{ "tokens_per_minute": 600 }"#,
        r#"{ "input_tokens_per_minute": 600 }"#,
        r#"{ "min_interval_ms": 20 }"#,
        r#"{ "max_concurrent_requests": 4 }"#,
    ] {
        let constraint = section(text).unwrap().unwrap();
        assert_eq!(constraint.requests_per_minute(), None, "{text}");
    }
    assert_eq!(RateLimitSettings::from(true).constraint().unwrap(), None);
    let sixty = RateLimitSettings::new().constraint().unwrap().unwrap();
    assert_eq!(sixty.requests_per_minute().map(NonZeroU32::get), Some(60));
}

#[test]
fn learned_settings_have_only_the_limits_that_are_set() {
    assert_eq!(RateLimitSettings::learned().constraint().unwrap(), None);
    let some = RateLimitSettings::learned().tokens_per_minute(600).constraint().unwrap().unwrap();
    assert_eq!(
        (some.requests_per_minute(), some.tokens_per_minute()),
        (None, NonZeroU32::new(600))
    );
}

/// Resolves a value to the limit and the text of the warning.
fn resolved(provider: &str, value: Option<&str>, cap: NonZeroU32) -> (u32, Option<String>) {
    let (limit, warning) = resolve_concurrency(&Provider::new(provider), value, cap);
    (limit.get(), warning.map(|warning| warning.to_string()))
}

#[test]
fn unconfigured_provider_has_its_default_concurrency() {
    for (provider, limit) in [("openai", 8), ("anthropic", 4), ("ollama", 1), ("mock", 100)] {
        let found = resolved(provider, None, DEFAULT_CONCURRENCY_CAP);
        assert_eq!(found, (limit, None), "{provider}");
    }
    let found = resolved("acme", None, DEFAULT_CONCURRENCY_CAP);
    assert_eq!(found, (1, Some(NOT_CONFIGURED.to_owned())));
}

#[test]
fn invalid_concurrency_becomes_one_with_a_warning() {
    for value in ["abc", "", "0", "-3", "-99999999999999999999"] {
        let found = resolved("openai", Some(value), DEFAULT_CONCURRENCY_CAP);
        assert_eq!(found, (1, Some(NOT_CONFIGURED.to_owned())), "{value:?}");
    }
}

#[test]
fn concurrency_above_the_cap_is_capped_with_a_warning() {
    let capped = |limit: &str| {
        let expected = format!("concurrency limit ({limit}) exceeds maximum (32). Capping at 32.");
        (32, Some(expected))
    };
    let at = |provider, value| resolved(provider, value, DEFAULT_CONCURRENCY_CAP);
    assert_eq!(at("openai", Some("100")), capped("100"));
    assert_eq!(at("acme", Some("1000")), capped("1000"));
    assert_eq!(at("acme", Some("99999999999999999999")), capped("4294967295"));
    assert_eq!(at("openai", Some("32")), (32, None));
    assert_eq!(at("mock", Some("1000")), (1_000, None), "the mock is exempt");
    // The cap applies to defaults too.
    let two = NonZeroU32::new(2).unwrap();
    let (limit, warning) = resolved("openai", None, two);
    assert!(limit == 2 && warning.is_some());
}

#[test]
fn cap_is_configurable() {
    let cap = |text| resolve_concurrency_cap(text);
    assert_eq!(cap(None), (DEFAULT_CONCURRENCY_CAP, None));
    assert_eq!(DEFAULT_CONCURRENCY_CAP.get(), 32);
    let (wide, warning) = cap(Some(" 64 "));
    assert_eq!((wide.get(), warning), (64, None));
    assert_eq!(resolved("openai", Some("50"), wide), (50, None));
    let (cap, warning) = cap(Some("many"));
    assert_eq!(cap, DEFAULT_CONCURRENCY_CAP);
    let expected = "maximum of concurrency limits is not a number >= 1. Using 32.";
    assert_eq!(warning.unwrap().to_string(), expected);
}
