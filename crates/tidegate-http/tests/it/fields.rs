//! Exact header fields in every style.

use std::time::Duration;

use http::HeaderMap;
use proptest::prelude::*;
use tidegate::{Outcome, Policy, Retry};
use tidegate_core::{Limit, WallTime};
use tidegate_http::field::{Fields, Report, Reset, RetryAfter, Style, Styles, Unit};

fn limit(name: &str, per_minute: u64, capacity: u64) -> Limit {
    Limit::named(name, Policy::per_minute(per_minute).capacity(capacity).build().unwrap()).unwrap()
}

fn outcome(capacity: u64, remaining: u64, reset: u64, retry: Option<u64>) -> Outcome {
    let retry = retry.map(|millis| Retry::After(Duration::from_millis(millis)));
    Outcome::new(capacity, remaining, Some(Duration::from_millis(reset)), retry)
}

/// All fields in order.
fn written(styles: impl Into<Styles>, reports: &[Report<'_>]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    let wall = WallTime::from_nanos(1_794_000_000_250_000_000);
    Fields::new(styles.into(), reports, wall).write(&mut headers);
    headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
}

/// A limit with much left, and one with little left.
fn two_limits() -> (Limit, Limit) {
    (limit("hourly", 60, 3_600), limit("burst", 600, 100))
}

fn reports((hourly, burst): &(Limit, Limit)) -> [Report<'_>; 2] {
    [
        Report::of(hourly, &outcome(3_600, 3_000, 600_000, None)),
        Report::of(burst, &outcome(100, 50, 5_001, None)),
    ]
}

#[test]
fn draft_11_names_every_limit() {
    let limits = two_limits();
    assert_eq!(
        written(Style::Draft11, &reports(&limits)),
        [
            r#"ratelimit-policy: "hourly";q=3600;w=3600, "burst";q=100;w=10"#,
            r#"ratelimit: "hourly";r=3000;t=600, "burst";r=50;t=6"#,
        ]
    );
}

#[test]
fn draft_06_reports_the_limit_with_the_least_left() {
    let limits = two_limits();
    assert_eq!(
        written(Style::Draft06, &reports(&limits)),
        [
            "ratelimit-limit: 100",
            "ratelimit-remaining: 50",
            "ratelimit-reset: 6",
            "ratelimit-policy: 3600;w=3600, 100;w=10",
        ]
    );
}

#[test]
fn x_ratelimit_reset_has_the_chosen_form() {
    let limits = two_limits();
    let reset = |reset| written(Style::XRateLimit(reset), &reports(&limits));
    let with = |reset| {
        [
            "x-ratelimit-limit: 100".into(),
            "x-ratelimit-remaining: 50".into(),
            format!("x-ratelimit-reset: {reset}"),
        ]
    };
    assert_eq!(reset(Reset::Delta), with("6"));
    // 0.25 s past the second plus 5.001 s, rounded up.
    assert_eq!(reset(Reset::Epoch), with("1794000006"));
    assert_eq!(reset(Reset::Rfc3339), with("2026-11-06T21:20:06Z"));
}

#[test]
fn envoy_lists_every_policy_after_the_tightest() {
    let limits = two_limits();
    assert_eq!(
        written(Style::Envoy03, &reports(&limits)),
        [
            r#"x-ratelimit-limit: 100, 3600;w=3600;name="hourly", 100;w=10;name="burst""#,
            "x-ratelimit-remaining: 50",
            "x-ratelimit-reset: 6",
        ]
    );
}

#[test]
fn denying_limit_takes_precedence_over_less_left() {
    let (a, b) = (limit("a", 60, 10), limit("b", 60, 10));
    let reports = [
        Report::of(&a, &outcome(10, 0, 10_000, None)),
        Report::of(&b, &outcome(10, 3, 7_000, Some(2_000))),
    ];
    assert_eq!(written(Style::Draft06, &reports)[1], "ratelimit-remaining: 3");
}

#[test]
fn styles_combine_and_none_writes_nothing() {
    let limits = two_limits();
    let both = written([Style::Draft11, Style::Draft06], &reports(&limits));
    let names: Vec<_> = both.iter().map(|line| line.split(':').next().unwrap()).collect();
    // Both have a policy field; that of the newer draft wins.
    let all = [
        "ratelimit-policy",
        "ratelimit",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
    ];
    assert_eq!(names, all);
    assert!(both[0].contains("\"hourly\""));
    assert_eq!(written(Styles::NONE, &reports(&limits)), [""; 0]);
    assert_eq!(written(Style::Draft11, &[]), [""; 0]);
    let last = Styles::from([Style::XRateLimit(Reset::Epoch), Style::Envoy03]);
    assert_eq!(last, Styles::from(Style::Envoy03));
}

#[test]
fn missing_window_and_reset_are_omitted() {
    let quota = Limit::named("calls", Policy::allowance(9).unwrap()).unwrap();
    let reports = [Report::of(&quota, &Outcome::new(9, 8, None, None))];
    assert_eq!(
        written([Style::Draft11, Style::Envoy03], &reports),
        [
            r#"ratelimit-policy: "calls";q=9"#,
            r#"ratelimit: "calls";r=8"#,
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 8",
        ]
    );
    assert_eq!(written(Style::Draft06, &reports), ["ratelimit-limit: 9", "ratelimit-remaining: 8"]);
}

#[test]
fn units_are_written_unless_requests() {
    let slots = Limit::named("slots", Policy::concurrency(4, None).unwrap()).unwrap();
    let inline = Limit::inline(Policy::per_second(1).capacity(5).build().unwrap());
    let reports = [
        Report::of(&slots, &Outcome::new(4, 1, None, None)),
        Report::of(&inline, &outcome(5, 2, 3_000, None)).with_unit(Unit::TOKENS),
    ];
    assert_eq!(
        written(Style::Draft11, &reports)[0],
        r#"ratelimit-policy: "slots";q=4;qu="concurrent-requests", "default";q=5;qu="tokens";w=5"#
    );
}

#[test]
fn existing_fields_are_never_loosened() {
    let api = limit("api", 60, 10);
    let report = |left| [Report::of(&api, &outcome(10, left, 1_000, None))];
    let styles = Styles::from([Style::Draft11, Style::XRateLimit(Reset::Delta)]);
    let written = |theirs: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", r#""origin";r=1"#.parse().unwrap());
        headers.insert("x-ratelimit-remaining", theirs.parse().unwrap());
        headers.insert("x-ratelimit-limit", "7".parse().unwrap());
        Fields::new(styles, &report(5), WallTime::default()).write(&mut headers);
        headers
    };
    let looser = written("6");
    let lines: Vec<_> = looser.get_all("ratelimit").iter().collect();
    assert_eq!(lines, [r#""origin";r=1"#, r#""api";r=5;t=1"#]);
    assert_eq!(
        (&looser["x-ratelimit-limit"], &looser["x-ratelimit-remaining"]),
        (&"10".parse().unwrap(), &"5".parse().unwrap())
    );
    let tighter = written("4");
    assert_eq!(
        (&tighter["x-ratelimit-limit"], &tighter["x-ratelimit-remaining"]),
        (&"7".parse().unwrap(), &"4".parse().unwrap())
    );
    assert!(!tighter.contains_key("x-ratelimit-reset"));
}

#[test]
fn exposed_names_match_written_fields() {
    let names = |styles: Styles| Fields::names(styles).to_str().unwrap().to_owned();
    assert_eq!(
        names(Styles::default()),
        "retry-after, retry-after-ms, ratelimit, ratelimit-policy"
    );
    assert_eq!(names(Styles::NONE), "retry-after, retry-after-ms");
    assert!(names(Style::Envoy03.into()).ends_with("x-ratelimit-reset"));
}

#[test]
fn waits_are_rounded_up_and_never_zero() {
    for (nanos, seconds, millis) in [
        (0, 1, 1),
        (1, 1, 1),
        (1_000_000, 1, 1),
        (1_000_001, 1, 2),
        (1_000_000_000, 1, 1_000),
        (1_000_000_001, 2, 1_001),
    ] {
        let written = RetryAfter::of(Retry::After(Duration::from_nanos(nanos))).unwrap();
        assert_eq!((written.seconds(), written.millis()), (seconds, millis), "{nanos}");
    }
    let mut headers = HeaderMap::new();
    RetryAfter::of(Retry::After(Duration::from_millis(1_500))).unwrap().write(&mut headers);
    assert_eq!(
        (&headers["retry-after"], &headers["retry-after-ms"]),
        (&"2".parse().unwrap(), &"1500".parse().unwrap())
    );
}

proptest! {
    #[test]
    fn draft_11_is_always_a_valid_structured_field(
        capacity in 1..u64::MAX,
        remaining: u64,
        reset in 0..u64::MAX,
        name in "[a-z][a-z0-9_.-]{0,127}",
    ) {
        let limit = limit(&name, 60, 10);
        let reset = Some(Duration::from_nanos(reset));
        let outcome = Outcome::new(capacity, remaining, reset, None);
        let reports = [Report::of(&limit, &outcome), Report::of(&limit, &outcome)];
        let mut headers = HeaderMap::new();
        Fields::new(Styles::default(), &reports, WallTime::default()).write(&mut headers);
        let largest = 999_999_999_999_999;
        for (field, parameter, number) in [
            ("ratelimit-policy", "q", capacity.min(largest)),
            ("ratelimit", "r", remaining.min(largest)),
        ] {
            let list: sfv::List = sfv::Parser::new(headers[field].as_bytes()).parse().unwrap();
            prop_assert_eq!(list.len(), 2);
            let sfv::ListEntry::Item(item) = &list[0] else { panic!("an inner list") };
            prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), name.as_str());
            let written = item.params[parameter].as_integer().unwrap();
            prop_assert_eq!(u64::try_from(i64::from(written)).unwrap(), number);
        }
    }
}

#[test]
fn longest_wait_does_not_overflow() {
    let longest = RetryAfter::of(Retry::After(Duration::MAX)).unwrap();
    assert_eq!((longest.seconds(), longest.millis()), (u64::MAX, u64::MAX));
}
