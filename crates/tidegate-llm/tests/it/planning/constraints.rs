//! Raw numbers become constraints, or a list of violations.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{Policy, Rate};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dimension;

use crate::log::Log;

fn raw() -> RawConstraint {
    RawConstraint::default()
}

fn rpm(requests: i64) -> RawConstraint {
    RawConstraint { requests_per_minute: Some(requests), ..raw() }
}

fn number(value: Option<NonZeroU32>) -> Option<u32> {
    value.map(NonZeroU32::get)
}

fn violations(raw: &RawConstraint) -> Vec<String> {
    let error = Constraint::try_new(raw).expect_err("it is invalid");
    assert_eq!(error.violations().len(), error.to_string().lines().count());
    error.to_string().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn unset_fields_are_not_limited() {
    let constraint = Constraint::try_new(&rpm(60)).unwrap();
    assert_eq!(number(constraint.requests_per_minute()), Some(60));
    assert_eq!(constraint.tokens_per_minute(), None);
    assert_eq!(constraint.min_interval(), Duration::ZERO);
    assert!((constraint.burst_factor() - 1.0).abs() < f64::EPSILON);
    let rest = (constraint.input_tokens_per_minute(), constraint.output_tokens_per_minute());
    assert_eq!((rest, constraint.concurrency()), ((None, None), None));
    assert!(constraint.requests_per_day().is_none() && constraint.burst_capacity().is_none());
    assert_eq!(constraint, Constraint::per_minute(NonZeroU32::new(60).unwrap()));
    let concurrency = RawConstraint { max_concurrent_requests: Some(3), ..raw() };
    let concurrency = Constraint::try_new(&concurrency).unwrap();
    assert_eq!(number(concurrency.concurrency()), Some(3));
    assert_eq!(concurrency.rate(Dimension::Requests), None, "requests are not limited");
}

#[test]
fn rates_are_per_minute_and_exact() {
    let both = RawConstraint { tokens_per_minute: Some(60_000), ..rpm(60) };
    let both = Constraint::try_new(&both).unwrap();
    let spacing = both.rate(Dimension::Requests).unwrap();
    assert_eq!((spacing.tokens(), spacing.period()), (1, 1_000_000_000));
    assert_eq!(both.rate(Dimension::Tokens), Rate::per_second(1_000).ok());
    let seven = Constraint::try_new(&rpm(7)).unwrap();
    assert_eq!(seven.rate(Dimension::Requests), "7/min".parse().ok());
    let apart = RawConstraint {
        input_tokens_per_minute: Some(600),
        output_tokens_per_minute: Some(120),
        ..rpm(60)
    };
    let apart = Constraint::try_new(&apart).unwrap();
    assert_eq!(apart.rate(Dimension::InputTokens), Rate::per_second(10).ok());
    assert_eq!(apart.rate(Dimension::OutputTokens), Rate::per_second(2).ok());
    assert_eq!(apart.rate(Dimension::Tokens), None);
}

#[test]
fn all_violations_are_reported_at_once() {
    let wrong = RawConstraint {
        requests_per_minute: Some(0),
        tokens_per_minute: Some(-1),
        input_tokens_per_minute: Some(5_000_000_000),
        output_tokens_per_minute: None,
        requests_per_day: Some(0),
        requests_per_day_zone: Some("Mars/Olympus".to_owned()),
        min_interval_ms: Some(-100),
        burst_factor: Some(0.5),
        burst_capacity: Some(0),
        max_concurrent_requests: Some(-3),
    };
    assert_eq!(
        violations(&wrong),
        [
            "requests_per_minute = 0: must be > 0",
            "tokens_per_minute = -1: must be > 0",
            "input_tokens_per_minute = 5000000000: must be <= 4294967295",
            "requests_per_day = 0: must be > 0",
            "requests_per_day_zone = \"Mars/Olympus\": must be a time zone such as UTC or \
             America/Los_Angeles",
            "min_interval_ms = -100: must be >= 0",
            "burst_factor = 0.5: must be a number from 1.0 to 86400.0",
            "burst_capacity = 0: must be >= 1",
            "max_concurrent_requests = -3: must be >= 1",
            "tokens_per_minute = -1: is the total of input and output; set either it or \
             input_tokens_per_minute and output_tokens_per_minute",
        ]
    );
    let zone = RawConstraint { requests_per_day_zone: Some("UTC".to_owned()), ..rpm(1) };
    assert_eq!(
        violations(&zone),
        ["requests_per_day_zone = \"UTC\": must not be set without requests_per_day"]
    );
}

#[test]
fn nan_and_infinity_are_rejected_even_by_clamped() {
    for factor in [f64::NAN, f64::INFINITY] {
        let wrong = RawConstraint { burst_factor: Some(factor), ..rpm(0) };
        let error = Constraint::clamped(&wrong).unwrap_err();
        let violations: Vec<_> = error.violations().map(|(field, _, rule)| (field, rule)).collect();
        let rule = "must be a number from 1.0 to 86400.0";
        assert_eq!(violations, [("burst_factor", rule.to_owned())]);
        assert_eq!(self::violations(&wrong).len(), 2, "the rate is invalid as well");
    }
}

/// Log line about a replaced value.
fn replaced(field: &str, given: &str, used: &str) -> String {
    format!("WARN value too small; replaced field=\"{field}\" given=\"{given}\" used=\"{used}\"")
}

/// Returns the constraint with values that are too small replaced, and the lines logged about it.
fn clamped(raw: &RawConstraint) -> (Constraint, Vec<String>) {
    let log = Log::default();
    let _listening = log.listen();
    (Constraint::clamped(raw).unwrap(), log.lines())
}

#[test]
fn clamped_replaces_small_values_and_warns_of_each() {
    for requests in [0, -5] {
        let (constraint, lines) = clamped(&rpm(requests));
        assert_eq!(number(constraint.requests_per_minute()), Some(1));
        assert_eq!(lines, [replaced("requests_per_minute", &requests.to_string(), "1")]);
    }
    let small = RawConstraint {
        tokens_per_minute: Some(0),
        burst_factor: Some(0.5),
        min_interval_ms: Some(-1),
        max_concurrent_requests: Some(0),
        ..rpm(60)
    };
    let (constraint, lines) = clamped(&small);
    assert_eq!(constraint.tokens_per_minute(), None);
    assert_eq!((constraint.burst(), number(constraint.concurrency())), (1, Some(1)));
    assert_eq!(
        lines,
        [
            replaced("tokens_per_minute", "0", "no limit"),
            replaced("min_interval_ms", "-1", "0"),
            replaced("max_concurrent_requests", "0", "1"),
            replaced("burst_factor", "0.5", "1.0"),
        ]
    );
    let (constraint, lines) = clamped(&rpm(60));
    assert_eq!((constraint, lines.len()), (Constraint::try_new(&rpm(60)).unwrap(), 0));
}

#[test]
fn burst_factor_changes_the_burst_and_not_the_rate() {
    for (factor, requests, burst) in [
        (None, 6_000, 1),
        (Some(1.0), 6_000, 1),
        (Some(1.5), 600, 15),
        (Some(1.5), 10, 1),
        (Some(2.0), 60, 2),
        // With binary floats it would be 114; the factor is exactly the decimal as written.
        (Some(1.15), 6_000, 115),
        (Some(86_400.0), 4_294_967_295, 6_184_752_904_800),
    ] {
        let raw = RawConstraint { burst_factor: factor, ..rpm(requests) };
        let constraint = Constraint::try_new(&raw).unwrap();
        assert_eq!(constraint.burst(), burst, "{factor:?} of {requests}");
        let plain = Constraint::try_new(&rpm(requests)).unwrap();
        assert_eq!(constraint.rate(Dimension::Requests), plain.rate(Dimension::Requests));
        let set = RawConstraint { burst_capacity: Some(7), ..raw };
        assert_eq!(Constraint::try_new(&set).unwrap().burst(), 7, "a capacity takes precedence");
    }
}

#[test]
fn day_begins_in_the_configured_time_zone() {
    let zone = |name: Option<&str>| {
        let requests_per_day_zone = name.map(ToOwned::to_owned);
        let raw = RawConstraint { requests_per_day: Some(250), requests_per_day_zone, ..raw() };
        Constraint::try_new(&raw)
    };
    let pacific = zone(Some("america/los_angeles")).unwrap();
    assert_eq!(pacific.requests_per_day().unwrap().get(), 250);
    assert_eq!(pacific.requests_per_day_zone(), Some("America/Los_Angeles"));
    assert_eq!(zone(None).unwrap().requests_per_day_zone(), Some("UTC"));
    assert_eq!(pacific.rate(Dimension::RequestsPerDay), None);
    assert!(zone(Some("Etc/Unknown")).is_err());
}

#[test]
fn constraint_round_trips_through_json() {
    let text = r#"{"requests_per_minute":1000,"tokens_per_minute":4000000,"requests_per_day":10000,
        "requests_per_day_zone":"UTC","min_interval_ms":100,"burst_factor":1.5,
        "max_concurrent_requests":8}"#;
    let constraint: Constraint = serde_json::from_str(text).unwrap();
    let written = serde_json::to_string(&constraint).unwrap();
    assert_eq!(written, text.split_whitespace().collect::<String>());
    assert_eq!(
        constraint.to_string(),
        "requests_per_minute=1000 tokens_per_minute=4000000 max_concurrent_requests=8 \
         requests_per_day=10000 requests_per_day_zone=UTC min_interval_ms=100 burst=25"
    );
    let refused = serde_json::from_str::<Constraint>(r#"{"requests_per_minute":0}"#).unwrap_err();
    assert!(refused.to_string().contains("requests_per_minute = 0: must be > 0"), "{refused}");
}

/// Limiters are identified by the text of their constraint.
#[test]
fn different_constraints_have_different_texts() {
    let day = |zone: &str| RawConstraint {
        requests_per_day: Some(5),
        requests_per_day_zone: Some(zone.to_owned()),
        ..rpm(600)
    };
    let all = [
        rpm(600),
        rpm(601),
        day("UTC"),
        day("America/Los_Angeles"),
        RawConstraint { requests_per_day: Some(6), ..day("UTC") },
        RawConstraint { tokens_per_minute: Some(5), ..rpm(600) },
        RawConstraint { input_tokens_per_minute: Some(5), ..rpm(600) },
        RawConstraint { output_tokens_per_minute: Some(5), ..rpm(600) },
        RawConstraint { min_interval_ms: Some(5), ..rpm(600) },
        RawConstraint { burst_factor: Some(1.5), ..rpm(600) },
        RawConstraint { burst_capacity: Some(5), ..rpm(600) },
        RawConstraint { max_concurrent_requests: Some(5), ..rpm(600) },
    ];
    let text = |raw: &RawConstraint| Constraint::try_new(raw).unwrap().to_string();
    let texts: HashSet<String> = all.iter().map(text).collect();
    assert_eq!(texts.len(), all.len(), "{texts:#?}");
}

fn any_raw() -> impl Strategy<Value = RawConstraint> {
    let number = || proptest::option::of(prop_oneof![1 => any::<i64>(), 20 => 0..100_000_i64]);
    let written = (90..9_000_000_u32).prop_map(|hundredths| f64::from(hundredths) / 100.0);
    let factor = proptest::option::of(prop_oneof![1 => Just(f64::NAN), 20 => written]);
    (number(), number(), number(), number(), number(), factor, number()).prop_map(
        |(requests, tokens, day, interval, burst, factor, concurrency)| RawConstraint {
            requests_per_minute: requests,
            tokens_per_minute: tokens,
            requests_per_day: day,
            min_interval_ms: interval,
            burst_capacity: burst,
            burst_factor: factor,
            max_concurrent_requests: concurrency,
            ..raw()
        },
    )
}

proptest! {
    /// Every valid constraint can be enforced and survives a round trip.
    #[test]
    fn every_valid_constraint_yields_valid_policies(raw in any_raw()) {
        let Ok(constraint) = Constraint::try_new(&raw) else { return Ok(()) };
        prop_assert!(constraint.burst() >= 1);
        for dimension in Dimension::ALL {
            let Some(rate) = constraint.rate(dimension) else { continue };
            prop_assert!(Policy::rate(rate).capacity(constraint.burst()).build().is_ok());
        }
        let text = serde_json::to_string(&constraint).unwrap();
        prop_assert_eq!(serde_json::from_str::<Constraint>(&text).unwrap(), constraint);
    }
}
