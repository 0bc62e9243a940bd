//! Reading of rate-limit fields, one test per generation.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use proptest::prelude::*;
use tidegate_core::WallTime;
use tidegate_http::field::{ReportedLimit, ReportedLimits, read};

const NOW: u32 = 1_794_000_000;

fn read_fields(fields: &[(&str, &str)]) -> ReportedLimits {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, value.parse().unwrap());
    }
    read(&headers, WallTime::from_secs(NOW))
}

fn limits(headers: &[(&str, &str)]) -> Vec<String> {
    read_fields(headers).limits.iter().map(summary).collect()
}

/// `name quota/window unit remaining reset cost`, with a dash for missing values.
fn summary(limit: &ReportedLimit) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or("-".into());
    let number = |number: Option<u64>| number.map_or("-".into(), |number| number.to_string());
    let span =
        |span: Option<Duration>| span.map_or("-".into(), |span| format!("{}", span.as_secs_f64()));
    format!(
        "{} {}/{} {} {} {} {}",
        text(&limit.name),
        number(limit.quota),
        span(limit.window),
        text(&limit.unit),
        number(limit.remaining),
        span(limit.reset),
        number(limit.cost)
    )
}

#[test]
fn draft_06_has_separate_fields() {
    let base =
        [("RateLimit-Limit", "100"), ("RateLimit-Remaining", "50"), ("RateLimit-Reset", "30")];
    assert_eq!(limits(&base), ["- 100/- - 50 30 -"]);
    let mut with_policy = base.to_vec();
    with_policy.push(("RateLimit-Policy", "1000;w=3600, 100;w=60"));
    assert_eq!(limits(&with_policy), ["- 100/60 - 50 30 -"]);
    let old = [("RateLimit-Limit", "100, 100;w=60"), ("RateLimit-Remaining", "50")];
    assert_eq!(limits(&old), ["- 100/60 - 50 - -"]);
}

#[test]
fn draft_07_is_a_dictionary() {
    assert_eq!(limits(&[("RateLimit", "limit=100, remaining=50, reset=5")]), ["- 100/- - 50 5 -"]);
    assert_eq!(limits(&[("RateLimit", "limit=100, reset=5")]), [""; 0]);
}

#[test]
fn draft_11_names_its_limits() {
    let headers = [
        ("RateLimit-Policy", r#""burst";q=100;w=60, "day";q=5000;qu="tokens";pk=:YQ==:"#),
        ("RateLimit", r#""burst";r=50;t=30"#),
        ("RateLimit", r#""day";r=4999"#),
    ];
    assert_eq!(limits(&headers), ["burst 100/60 - 50 30 -", "day 5000/- tokens 4999 - -"]);
    assert_eq!(limits(&headers[..1]), ["burst 100/60 - - - -", "day 5000/- tokens - - -"]);
    assert_eq!(limits(&headers[1..2]), ["burst -/- - 50 30 -"]);
}

#[test]
fn later_drafts_use_other_parameters_and_tokens() {
    let headers = [
        ("RateLimit-Policy", "burst;q=100;w=60"),
        ("RateLimit", "burst;a=50;w=30;c=2"),
        ("RateLimit-Partition", r#""api";user_id;method"#),
    ];
    assert_eq!(limits(&headers), ["burst 100/60 - 50 30 2"]);
}

#[test]
fn x_fields_have_three_forms_of_reset() {
    let with = |reset| {
        limits(&[
            ("X-RateLimit-Limit", "60"),
            ("X-RateLimit-Remaining", "59"),
            ("X-RateLimit-Reset", reset),
        ])
    };
    assert_eq!(with("30"), ["- 60/- - 59 30 -"]);
    assert_eq!(with("1794000090"), ["- 60/- - 59 90 -"]);
    assert_eq!(with("1794000000.5"), ["- 60/- - 59 0.5 -"]);
    assert_eq!(with("1793999999"), ["- 60/- - 59 0 -"]);
    assert_eq!(with("2026-11-06T21:21:30Z"), ["- 60/- - 59 90 -"]);
    assert_eq!(with("soon"), ["- 60/- - 59 - -"]);
    let envoy = [
        ("x-ratelimit-limit", r#"10, 10;w=1;name="per-ip", 1000;w=3600"#),
        ("x-ratelimit-remaining", "9"),
        ("x-ratelimit-reset", "1"),
    ];
    assert_eq!(limits(&envoy), ["per-ip 10/1 - 9 1 -"]);
    let other = [("x-rate-limit-limit", "15"), ("x-rate-limit-remaining", "14.0")];
    assert_eq!(limits(&other), ["- 15/- - 14 - -"]);
}

#[test]
fn newer_fields_take_precedence() {
    let headers = [
        ("RateLimit", r#""burst";r=50;t=30"#),
        ("RateLimit-Remaining", "49"),
        ("X-RateLimit-Remaining", "48"),
    ];
    assert_eq!(limits(&headers), ["burst -/- - 50 30 -"]);
    assert_eq!(limits(&headers[1..]), ["- -/- - 49 - -"]);
    let broken = [("RateLimit", r#""burst";r=50;t="#), ("X-RateLimit-Remaining", "48")];
    assert_eq!(limits(&broken), ["- -/- - 48 - -"]);
}

#[test]
fn malformed_fields_are_ignored() {
    for value in [r#""burst";r=-1"#, r#""burst""#, r#""burst";r="5""#, "burst r=5", "5;r=5", ""] {
        assert_eq!(read_fields(&[("RateLimit", value)]), ReportedLimits::default(), "{value}");
    }
    let twice = [("X-RateLimit-Remaining", "5"), ("X-RateLimit-Remaining", "6")];
    assert_eq!(read_fields(&twice), ReportedLimits::default());
}

#[test]
fn limits_of_cached_responses_are_ignored() {
    let headers = [("RateLimit", r#""burst";r=50"#), ("Age", "0")];
    assert_eq!(limits(&headers), ["burst -/- - 50 - -"]);
    let headers = [("RateLimit", r#""burst";r=50"#), ("Age", "3")];
    assert_eq!(limits(&headers), [""; 0]);
}

#[test]
fn retry_after_is_parsed_in_every_form() {
    let wait =
        |headers: &[(&str, &str)]| read_fields(headers).retry_after.map(|wait| wait.as_secs_f64());
    for (value, seconds) in [
        ("2", Some(2.0)),
        ("2.5", Some(2.5)),
        ("2.0", Some(2.0)),
        ("0", Some(0.0)),
        ("Fri, 06 Nov 2026 21:20:07 GMT", Some(7.0)),
        ("Friday, 06-Nov-26 21:20:07 GMT", Some(7.0)),
        ("Fri Nov  6 21:20:07 2026", Some(7.0)),
        ("Fri, 06 Nov 2015 21:20:07 GMT", Some(0.0)),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("soon", None),
        ("", None),
    ] {
        assert_eq!(wait(&[("Retry-After", value)]), seconds, "{value}");
    }
    let all = [("retry-after", "9"), ("x-ms-retry-after-ms", "8000"), ("retry-after-ms", "1500.5")];
    assert_eq!(wait(&all), Some(1.5005));
    assert_eq!(wait(&all[..2]), Some(8.0));
    assert_eq!(wait(&[("retry-after", "9"), ("retry-after-ms", "soon")]), Some(9.0));
}

#[test]
fn huge_values_are_capped() {
    let year = Duration::from_secs(366 * 86_400);
    for value in ["99999999999999999999999", "9999999999", "Fri, 06 Nov 9999 21:20:07 GMT"] {
        assert_eq!(read_fields(&[("Retry-After", value)]).retry_after, Some(year), "{value}");
    }
    let headers = [
        ("X-RateLimit-Remaining", "99999999999999999999999"),
        ("X-RateLimit-Reset", "99999999999999999999"),
    ];
    let limit = &read_fields(&headers).limits[0];
    assert_eq!((limit.remaining, limit.reset), (Some(999_999_999_999_999), Some(year)));
    let many = vec![r#""a";r=1"#; 1_000].join(",");
    assert_eq!(read_fields(&[("RateLimit", &many)]).limits.len(), 64);
}

/// Servers are not trusted. If each policy were compared with all previous ones, this test would
/// take minutes.
#[test]
fn at_most_64_limits_are_read() {
    let policies: Vec<_> = (0..200_000).map(|index| format!("p{index:x};q=1")).collect();
    let policies = policies.join(",");
    assert_eq!(read_fields(&[("ratelimit-policy", &policies)]).limits.len(), 64);
    // Limits come before policies, and their policies apply at any position.
    let limits: Vec<_> = (0..100).map(|index| format!("l{index};r=7")).collect();
    let late = format!("{policies},l63;q=9,l64;q=9");
    let headers = [("ratelimit", &limits.join(",")[..]), ("ratelimit-policy", &late)];
    let read = read_fields(&headers).limits;
    assert_eq!(read.len(), 64);
    assert_eq!(summary(&read[63]), "l63 9/- - 7 - -");
}

proptest! {
    #[test]
    fn arbitrary_fields_do_not_panic(
        name in prop::sample::select(vec![
            "ratelimit", "ratelimit-policy", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
            "x-ratelimit-limit", "x-ratelimit-reset", "retry-after", "retry-after-ms", "age",
        ]),
        value in "[ -~]{0,40}",
    ) {
        let _ = read_fields(&[(name, &value), ("x-ratelimit-remaining", "1")]);
    }
}
