//! Problem documents of refusals, member by member.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::{Outcome, Policy, Retry};
use tidegate_core::Limit;
use tidegate_http::field::{Report, RetryAfter};
use tidegate_http::key::MissingKeyError;
use tidegate_http::problem::ProblemRenderer;
use tidegate_http::{Refusal, RefusalCause};

fn document(refusal: &Refusal<'_>) -> Value {
    serde_json::from_slice(&ProblemRenderer::default().document(refusal).to_json()).unwrap()
}

#[test]
fn refusal_names_the_limit_and_the_wait() {
    let policy = Policy::per_second(1).capacity(10).build().unwrap();
    let (user, all) = (Limit::named("user", policy).unwrap(), Limit::named("all", policy).unwrap());
    let wait = Retry::After(Duration::from_millis(1_500));
    let reports = [
        Report::of(&user, &Outcome::new(10, 0, None, Some(wait))),
        Report::of(&all, &Outcome::new(10, 5, None, None)),
    ];
    let refusal = Refusal::new(RefusalCause::Limit).limits(&reports).retry(RetryAfter::of(wait));
    assert_eq!(
        document(&refusal),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "The request is over the limit for now; nothing was charged.",
            "violated-policies": ["user"],
            "retry_after_ms": 1_500,
            "limit": 10,
            "remaining": 0,
        })
    );
}

#[test]
fn back_pressure_has_level_and_reason() {
    let refusal =
        Refusal::new(RefusalCause::BackPressure).with_level("backpressure", "queue_depth");
    let document = document(&refusal);
    assert_eq!(
        document["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
    assert_eq!(document["status"], 503);
    assert_eq!(
        (&document["level"], &document["reason"]),
        (&json!("backpressure"), &json!("queue_depth"))
    );
    assert!(document.get("retry_after_ms").is_none() && document.get("limit").is_none());
}

#[test]
fn type_uris_can_be_customized() {
    let problems =
        ProblemRenderer::default().quota_exceeded("about:blank").reduced_capacity("urn:x:busy");
    let kind = |cause| {
        let body: Value =
            serde_json::from_slice(&problems.document(&Refusal::new(cause)).to_json()).unwrap();
        body["type"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind(RefusalCause::Limit), "about:blank");
    assert_eq!(kind(RefusalCause::Store), "urn:x:busy");
    assert_eq!(
        kind(RefusalCause::MissingKey(MissingKeyError::NoPeer)),
        "urn:tidegate:problem:no-peer"
    );
}

#[test]
fn each_cause_has_its_status() {
    for (cause, status) in [
        (RefusalCause::Limit, 429),
        (RefusalCause::BackPressure, 503),
        (RefusalCause::Store, 503),
        (RefusalCause::MissingKey(MissingKeyError::BadRequest), 400),
        (RefusalCause::MissingKey(MissingKeyError::Unauthorized), 401),
        (RefusalCause::MissingKey(MissingKeyError::NoPeer), 500),
    ] {
        assert_eq!(cause.status(), status);
        assert_eq!(document(&Refusal::new(cause))["status"], status);
    }
}
