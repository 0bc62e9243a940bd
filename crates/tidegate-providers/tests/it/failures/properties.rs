//! No response panics or leads to implausible values.

use std::time::Duration;

use http::Response;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value};
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Dialect, Failure, Provider, ReportedLimits};

use super::{DIALECTS, NOW, headers};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Known names, so that random bodies reach more code.
const MEMBERS: [&str; 18] = [
    "error",
    "type",
    "code",
    "status",
    "message",
    "details",
    "metadata",
    "headers",
    "@type",
    "violations",
    "quotaId",
    "quotaValue",
    "quotaMetric",
    "retryDelay",
    "reason",
    "response",
    "request_id",
    "X-RateLimit-Reset",
];

const WORDS: [&str; 14] = [
    "insufficient_quota",
    "rate_limit_error",
    "tokens",
    "429",
    "type.googleapis.com/google.rpc.QuotaFailure",
    "type.googleapis.com/google.rpc.RetryInfo",
    "GenerateRequestsPerDay",
    "generate_content_requests",
    "0",
    "18446744073709551616",
    "10.5s",
    "Please try again in 976ms",
    "(TPM): Limit 99999999999999999999, Used 5",
    "retry after 37 seconds",
];

const FIELDS: [&str; 12] = [
    "retry-after",
    "retry-after-ms",
    "date",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-reset",
    "x-request-id",
];

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        select(&WORDS[..]).prop_map(Value::from),
        "\\PC{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let member = (select(&MEMBERS[..]).prop_map(str::to_owned), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            vec(member, 0..6).prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

fn fields() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let value = prop_oneof![
        "[ -~]{0,30}",
        "[0-9]{1,22}(\\.[0-9]{1,12})?",
        "([0-9]{1,6}(ms|s|m|h)){1,3}",
        "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z",
        "-?[0-9]{1,20}",
    ];
    vec((select(&FIELDS[..]), value), 0..8)
}

fn is_sane(failure: &Failure) -> bool {
    let is_short = |text: &Option<String>| text.as_ref().is_none_or(|text| text.len() <= 100);
    failure.after.is_none_or(|after| after <= YEAR)
        && (failure.class.is_retryable() || failure.after == failure.class.after())
        && failure.message.as_ref().is_none_or(|message| message.len() <= 2_048)
        && is_short(&failure.kind)
        && is_short(&failure.request_id)
        && !failure.to_string().contains('\n')
        && failure.reported_limits.iter().all(|(_, reading)| {
            reading.limit != Some(0) && reading.reset.is_none_or(|reset| reset <= YEAR)
        })
}

fn dialects() -> impl Strategy<Value = Dialect> {
    select(&DIALECTS[..])
}

proptest! {
    #[test]
    fn any_json_is_classified(
        dialect in dialects(),
        status in 100_u16..1_000,
        fields in fields(),
        body in json(),
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
        prop_assert!(is_sane(&super::failed(dialect, status, &fields, &body)));
        prop_assert!(is_sane(&super::failed_in_stream(dialect, &body)));
    }

    #[test]
    fn any_bytes_are_classified(dialect in dialects(), body in vec(any::<u8>(), 0..3_000)) {
        let (parts, ()) = Response::builder().status(500).body(()).unwrap().into_parts();
        let provider = Provider::new("someone");
        let failure = Failure::of_response(dialect, &provider, &parts, &body, &ClassificationRules::new(), NOW);
        prop_assert!(is_sane(&failure));
    }

    #[test]
    fn any_headers_are_accepted(dialect in dialects(), fields in fields()) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
        for (_, reading) in ReportedLimits::read(dialect, &headers(&fields), NOW).iter() {
            prop_assert!(reading.limit.is_some() || reading.remaining.is_some());
            prop_assert_ne!(reading.limit, Some(0));
        }
    }
}
