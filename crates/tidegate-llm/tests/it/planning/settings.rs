//! What a model is loaded with, and how many calls it has under way.

use std::num::NonZeroU32;
use std::time::Duration;

use tidegate::Rate;
use tidegate_llm::settings::{
    Configured, DEFAULT_CONCURRENCY_CAP, FallbackOverrides, FallbackSettings, RateLimitOverrides,
    RateLimitSettings, RetryOverrides, RetrySettings, Settings, resolve_concurrency,
    resolve_concurrency_cap,
};
use tidegate_providers::{Dimension, Provider};

const NOT_CONFIGURED: &str = "concurrency limit not configured. Defaulting to 1 for safety.";

fn section(text: &str) -> Result<RateLimitSettings, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn without_a_word_nothing_is_on() {
    let settings = Settings::of(&Provider::new("openai"));
    assert!(!settings.rate_limit.enabled);
    assert!(!settings.retry.enabled && !settings.fallback.enabled);
    assert_eq!(settings.rate_limit.requests_per_minute.get(), 60);
    assert_eq!(settings.rate_limit.burst_capacity.map(NonZeroU32::get), Some(60));
}

#[test]
fn the_default_is_written_with_its_burst_and_read_again() {
    let default = RateLimitSettings::default();
    let text = serde_json::to_string(&default).unwrap();
    assert_eq!(text, r#"{"enabled":false,"requests_per_minute":60,"burst_capacity":60}"#);
    assert_eq!(section(&text), Ok(default));
}

#[test]
fn a_section_without_a_burst_has_that_of_a_minute() {
    let burst = |text| section(text).unwrap().burst().get();
    assert_eq!(burst(r#"{ "requests_per_minute": 120 }"#), 120);
    assert_eq!(burst(r#"{ "burst_capacity": 5 }"#), 5);
    assert_eq!(burst("{}"), 60);
    assert_eq!(section("{}").unwrap().requests_per_minute.get(), 60);
}

#[test]
fn what_cannot_be_used_is_refused_by_key_and_rule() {
    for (text, told) in [
        (r#"{ "requests_per_minute": 0 }"#, "requests_per_minute = 0: must be > 0"),
        (r#"{ "requests_per_minute": -10 }"#, "requests_per_minute = -10: must be > 0"),
        (r#"{ "burst_capacity": 0 }"#, "burst_capacity = 0: must be >= 1"),
        (r#"{ "burst": 1 }"#, "unknown field `burst`"),
    ] {
        let error = section(text).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    let both = RateLimitOverrides {
        requests_per_minute: Some(0),
        burst_capacity: Some(0),
        ..Default::default()
    };
    let error = RateLimitSettings::default().merged(&both).unwrap_err();
    assert_eq!(error.faults().len(), 2, "{error}");
}

#[test]
fn only_the_keys_that_are_given_replace_those_of_the_file() {
    let faster = RateLimitOverrides { requests_per_minute: Some(120), ..Default::default() };
    let shipped = RateLimitSettings::default().merged(&faster).unwrap();
    assert_eq!((shipped.requests_per_minute.get(), shipped.burst().get()), (120, 60));
    let constraint = shipped.constraint();
    assert_eq!(constraint.rate(Dimension::Requests), Rate::per_second(2).ok());
    assert_eq!(constraint.burst(), 60);
    let without_burst = section(r#"{ "enabled": true }"#).unwrap().merged(&faster).unwrap();
    assert!(without_burst.enabled);
    assert_eq!((without_burst.burst().get(), without_burst.constraint().burst()), (120, 120));
}

#[test]
fn retries_are_what_the_provider_deserves() {
    for (provider, retries, base) in
        [("openai", 8, 1_000), ("anthropic", 8, 1_000), ("ollama", 3, 500), ("acme", 8, 1_000)]
    {
        let settings = RetrySettings::of(&Provider::new(provider));
        assert_eq!(settings.max_retries, retries, "{provider}");
        assert_eq!(settings.base, Duration::from_millis(base), "{provider}");
        assert_eq!(settings.cap, Duration::from_secs(60));
        assert_eq!(settings.attempt_timeout, Duration::from_secs(120));
    }
}

#[test]
fn retries_are_replaced_key_by_key_and_within_bounds() {
    let there = RetrySettings::of(&Provider::new("openai"));
    let none = RetryOverrides { enabled: Some(true), max_retries: Some(0), ..Default::default() };
    let merged = there.merged(&none).unwrap();
    assert_eq!((merged.enabled, merged.max_retries, merged.base), (true, 0, there.base));
    for (overrides, told) in [
        (r#"{ "max_retries": -1 }"#, "max_retries = -1: must be >= 0"),
        (r#"{ "max_retries": 21 }"#, "max_retries = 21: must be <= 20"),
        (r#"{ "base_ms": 0 }"#, "base_ms = 0: must be >= 1"),
        (r#"{ "base_ms": 90000 }"#, "cap_ms = 60000: must be >= 90000"),
        (
            r#"{ "attempt_timeout_ms": 86400001 }"#,
            "attempt_timeout_ms = 86400001: must be <= 86400000",
        ),
    ] {
        let overrides = serde_json::from_str(overrides).unwrap();
        assert_eq!(there.merged(&overrides).unwrap_err().to_string(), told);
    }
}

#[test]
fn a_chain_names_its_targets() {
    let merged = |text: &str| {
        let overrides: FallbackOverrides = serde_json::from_str(text).unwrap();
        FallbackSettings::default().merged(&overrides).map_err(|error| error.to_string())
    };
    let chain = merged(r#"{ "enabled": true, "chain": ["Anthropic", "openrouter/meta/llama"] }"#);
    let chain: Vec<_> = chain.unwrap().chain.iter().map(ToString::to_string).collect();
    assert_eq!(chain, ["anthropic", "openrouter/meta/llama"]);
    let eleven = format!(r#"{{ "chain": [{}] }}"#, ["\"a\""; 11].join(","));
    assert!(merged(&eleven).unwrap_err().ends_with("must have at most 10 items"));
    let nobody = "chain = []: must be given where enabled is true";
    assert_eq!(merged(r#"{ "enabled": true }"#).unwrap_err(), nobody);
    assert_eq!(merged(r#"{ "enabled": true, "chain": [] }"#).unwrap_err(), nobody);
    for target in ["", "/x", "anthropic/"] {
        let error = merged(&format!(r#"{{ "enabled": true, "chain": ["{target}"] }}"#));
        assert!(error.unwrap_err().contains("must name providers"), "{target:?}");
    }
}

/// The limit and the warning that come of a value.
fn resolved(provider: &str, value: Configured<'_>, cap: NonZeroU32) -> (u32, Option<String>) {
    let (limit, warning) = resolve_concurrency(&Provider::new(provider), value, cap);
    (limit.get(), warning.map(|warning| warning.to_string()))
}

#[test]
fn a_provider_without_a_value_has_its_own_concurrency() {
    for (provider, limit) in [("openai", 8), ("anthropic", 4), ("ollama", 1), ("mock", 100)] {
        let found = resolved(provider, Configured::Nothing, DEFAULT_CONCURRENCY_CAP);
        assert_eq!(found, (limit, None), "{provider}");
    }
    let found = resolved("acme", Configured::Nothing, DEFAULT_CONCURRENCY_CAP);
    assert_eq!(found, (1, Some(NOT_CONFIGURED.to_owned())));
}

#[test]
fn a_value_that_is_no_limit_is_one_with_a_warning() {
    for value in [
        Configured::Number(0),
        Configured::Number(-3),
        Configured::Text("abc"),
        Configured::Text(""),
        Configured::Text("0"),
        Configured::Text("-99999999999999999999"),
    ] {
        let found = resolved("openai", value, DEFAULT_CONCURRENCY_CAP);
        assert_eq!(found, (1, Some(NOT_CONFIGURED.to_owned())), "{value:?}");
    }
}

#[test]
fn a_value_above_the_cap_is_the_cap_with_a_warning() {
    let capped = |limit: &str| {
        let told = format!("concurrency limit ({limit}) exceeds maximum (32). Capping at 32.");
        (32, Some(told))
    };
    let at = |provider, value| resolved(provider, value, DEFAULT_CONCURRENCY_CAP);
    assert_eq!(at("openai", Configured::Number(100)), capped("100"));
    assert_eq!(at("acme", Configured::Text("1000")), capped("1000"));
    assert_eq!(at("acme", Configured::Text("99999999999999999999")), capped("4294967295"));
    assert_eq!(at("openai", Configured::Number(32)), (32, None));
    assert_eq!(at("mock", Configured::Number(1_000)), (1_000, None), "the mock is exempt");
    // Bounds hold for a default too.
    let two = NonZeroU32::new(2).unwrap();
    let (limit, warning) = resolved("openai", Configured::Nothing, two);
    assert!(limit == 2 && warning.is_some());
}

#[test]
fn the_cap_can_be_set() {
    let cap = |text| resolve_concurrency_cap(text);
    assert_eq!(cap(None::<&str>), (DEFAULT_CONCURRENCY_CAP, None));
    assert_eq!(DEFAULT_CONCURRENCY_CAP.get(), 32);
    let (wide, warning) = cap(Some(" 64 "));
    assert_eq!((wide.get(), warning), (64, None));
    assert_eq!(resolved("openai", Configured::Number(50), wide), (50, None));
    let (cap, warning) = cap(Some("many"));
    assert_eq!(cap, DEFAULT_CONCURRENCY_CAP);
    let told = "maximum of concurrency limits is not a number >= 1. Using 32.";
    assert_eq!(warning.unwrap().to_string(), told);
}
