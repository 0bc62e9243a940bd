//! The required tables of what is retried and what is not, row by row.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_providers::classify::{ClassificationRules, retryable_statuses};
use tidegate_providers::{Class, Dialect, classify};

use super::{DIALECTS, exhausted, failed, failed_in_stream, failed_with_rules, rate_limited};

fn openai(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn anthropic(kind: &str, message: &str) -> Value {
    json!({
        "type": "error",
        "error": { "type": kind, "message": message },
        "request_id": "req_9",
    })
}

fn check(rows: Vec<(&str, Dialect, u16, Value, Class)>) {
    for (requirement, dialect, status, body, class) in rows {
        let failure = failed(dialect, status, &[], &body);
        assert_eq!(failure.class, class, "{requirement}");
    }
}

#[test]
fn openai_errors_are_classified() {
    use Dialect::OpenAi;
    let request = "invalid_request_error";
    check(vec![
        ("R319", OpenAi, 401, openai("No such login.", request, None), Class::CredentialRejected),
        (
            "R320",
            OpenAi,
            401,
            openai("This key is wrong.", request, Some("invalid_api_key")),
            Class::CredentialRejected,
        ),
        (
            "R321",
            OpenAi,
            401,
            openai("You are in no organization.", request, Some("no_organization")),
            Class::CredentialRejected,
        ),
        (
            "R322",
            OpenAi,
            401,
            openai("Not from this address.", request, Some("ip_not_authorized")),
            Class::CredentialRejected,
        ),
        (
            "R323",
            OpenAi,
            403,
            openai("Not from here.", "request_forbidden", Some("unsupported_country")),
            Class::CredentialRejected,
        ),
        (
            "R324",
            OpenAi,
            429,
            openai("Too many.", "requests", Some("rate_limit_exceeded")),
            rate_limited(None, Some(tidegate_providers::Dimension::Requests)),
        ),
        (
            "R325",
            OpenAi,
            429,
            openai("Nothing is left.", "insufficient_quota", Some("insufficient_quota")),
            exhausted(None),
        ),
        ("R326", OpenAi, 500, openai("It broke.", "server_error", None), Class::Transient),
        ("R327", OpenAi, 503, openai("Too much.", "server_error", None), Class::Overloaded),
        (
            "R328",
            OpenAi,
            503,
            openai("Not so fast.", "service_unavailable_error", Some("slow_down")),
            Class::SlowDown,
        ),
        (
            "R328, as it is sent lately",
            OpenAi,
            429,
            openai("Not so fast.", "rate_limit_error", Some("slow_down")),
            Class::SlowDown,
        ),
    ]);
}

#[test]
fn anthropic_errors_are_classified() {
    use Dialect::Anthropic;
    let rows = [
        ("R329", 400, "invalid_request_error", Class::BadRequest),
        ("R330", 401, "authentication_error", Class::CredentialRejected),
        ("R331", 403, "permission_error", Class::CredentialRejected),
        ("R332", 404, "not_found_error", Class::BadRequest),
        ("R333", 413, "request_too_large", Class::TooLarge),
        ("R334", 429, "rate_limit_error", rate_limited(None, None)),
        ("R335", 500, "api_error", Class::Transient),
        ("R336", 529, "overloaded_error", Class::Overloaded),
    ];
    let row = |(requirement, status, kind, class)| {
        (requirement, Anthropic, status, anthropic(kind, "So it is."), class)
    };
    check(rows.into_iter().map(row).collect());
}

#[test]
fn ollama_errors_are_classified() {
    use Dialect::Ollama;
    // R337: a success is not classified.
    assert_eq!(classify::class_of_status(Ollama, StatusCode::OK), None);
    let rows = [
        ("R338", 400, Class::BadRequest),
        ("R339", 404, Class::BadRequest),
        ("R340", 429, rate_limited(None, None)),
        ("R341", 500, Class::Transient),
        ("R342, R354", 502, Class::Transient),
        ("its queue is full", 503, Class::Overloaded),
    ];
    let body = json!({ "error": "so it is" });
    let row = |(requirement, status, class)| (requirement, Ollama, status, body.clone(), class);
    check(rows.into_iter().map(row).collect());
}

/// R344: a 429 about billing is never retried.
#[test]
fn billing_quotas_are_not_retried() {
    for name in [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
    ] {
        for body in [openai("", name, None), openai("", "insufficient_quota", Some(name))] {
            let fields = [("retry-after", "1")];
            let failure = failed(Dialect::OpenAi, 429, &fields, &body);
            assert_eq!(failure.class, exhausted(None), "{name}");
            assert_eq!(failure.after, None, "{name}");
        }
    }
}

/// R345: neither words nor digits of a message determine the class.
#[test]
fn message_does_not_determine_the_class() {
    for text in [
        "This request has 1500 tokens, and 429 or 503 of them are rate limited.",
        "insufficient_quota, rate limit, overloaded_error, server_error, timeout, 529",
        "You have reached your specified API usage limits.",
    ] {
        for dialect in DIALECTS {
            let bodies = [
                openai(text, "invalid_request_error", None),
                anthropic("invalid_request_error", text),
                json!({ "error": text }),
                json!({ "message": text }),
                json!(text),
                json!([{ "error": { "code": 400, "message": text, "status": "INVALID_ARGUMENT" } }]),
            ];
            for body in bodies {
                assert_eq!(failed(dialect, 400, &[], &body).class, Class::BadRequest, "{body}");
                assert_eq!(failed(dialect, 500, &[], &body).class, Class::Transient, "{body}");
                assert_eq!(
                    failed(dialect, 401, &[], &body).class,
                    Class::CredentialRejected,
                    "{body}"
                );
            }
        }
    }
}

/// R346: retryable statuses by provider, which the user can override.
#[test]
fn every_provider_has_its_retryable_statuses() {
    for (dialect, statuses) in [
        (Dialect::OpenAi, [429, 500, 503]),
        (Dialect::Anthropic, [429, 500, 529]),
        (Dialect::Ollama, [429, 500, 502]),
    ] {
        assert_eq!(retryable_statuses(dialect), statuses);
        for status in (400..600).filter(|status| *status != 402) {
            let failure = failed(dialect, status, &[], &Value::Null);
            assert_eq!(failure.is_retryable(), statuses.contains(&status), "{dialect:?} {status}");
        }
    }
    for dialect in DIALECTS {
        let classes = retryable_statuses(dialect).iter().filter(|status| **status != 402);
        for status in classes {
            let failure = failed(dialect, *status, &[], &Value::Null);
            assert!(failure.is_retryable(), "{dialect:?} {status}");
        }
    }
    assert!(retryable_statuses(Dialect::Groq).contains(&498));
    let rules = ClassificationRules::new().status(500, Class::BadRequest);
    let class = failed_with_rules(&rules, Dialect::OpenAi, 500, &[], &Value::Null).class;
    assert_eq!(class, Class::BadRequest);
}

/// R346 and R325: the user's list replaces the provider's, except for billing errors.
#[test]
fn user_overrides_retryable_statuses() {
    let rules = ClassificationRules::new().retry_statuses([418, 429, 502, 401]);
    let failure =
        |status, body: &Value| failed_with_rules(&rules, Dialect::OpenAi, status, &[], body);
    for (status, is_retried) in [(418, true), (429, true), (502, true), (500, false), (401, false)]
    {
        assert_eq!(failure(status, &Value::Null).is_retryable(), is_retried, "{status}");
    }
    assert_eq!(failure(418, &Value::Null).class, Class::Transient);
    assert_eq!(failure(500, &Value::Null).class, Class::Transient, "it is what it was");
    let unpaid = json!({ "error": { "type": "insufficient_quota" } });
    assert!(!failure(429, &unpaid).is_retryable());
    let rules = rules.status(500, Class::Transient);
    let by_rule = failed_with_rules(&rules, Dialect::OpenAi, 500, &[], &Value::Null);
    assert!(by_rule.is_retryable(), "a rule says more than a list");
}

/// R347: these fail immediately for every provider.
#[test]
fn invalid_requests_are_not_retried() {
    for dialect in DIALECTS {
        for status in [400, 401, 403, 404, 413, 422] {
            let failure = failed(dialect, status, &[("retry-after", "1")], &json!({ "error": {} }));
            assert!(!failure.class.is_retryable(), "{dialect:?} {status}");
            assert_eq!(failure.after, None, "{dialect:?} {status}");
            let code = StatusCode::from_u16(status).unwrap();
            assert_eq!(classify::class_of_status(dialect, code), Some(failure.class));
            assert!(!retryable_statuses(dialect).contains(&status));
        }
    }
}

/// R350: an error after a 200 has the class that its status would give it.
#[test]
fn errors_in_streams_have_the_same_class() {
    for (dialect, body, class) in [
        (Dialect::Anthropic, anthropic("overloaded_error", "Busy."), Class::Overloaded),
        (Dialect::Anthropic, anthropic("api_error", "Broken."), Class::Transient),
        (Dialect::Anthropic, anthropic("rate_limit_error", "Too fast."), rate_limited(None, None)),
        (Dialect::Anthropic, anthropic("invalid_request_error", "No."), Class::BadRequest),
        (Dialect::Ollama, json!({ "error": "the model has stopped" }), Class::Transient),
        (Dialect::OpenAi, openai("Broken.", "server_error", None), Class::Transient),
        (Dialect::OpenAi, openai("", "insufficient_quota", None), exhausted(None)),
        (Dialect::OpenRouter, json!({ "error": { "code": 502 } }), Class::Transient),
        (Dialect::OpenRouter, json!({ "error": { "code": 429 } }), rate_limited(None, None)),
        (Dialect::OpenRouter, json!({ "error": { "code": "402" } }), exhausted(None)),
    ] {
        let failure = failed_in_stream(dialect, &body);
        assert_eq!(failure.class, class, "{body}");
        assert_eq!(failure.status, StatusCode::OK);
    }
}

/// R351: Ollama's form, as a response or a line of a stream.
#[test]
fn ollama_reports_errors_in_one_member() {
    let body = json!({ "error": "the model runner has stopped" });
    let whole = failed(Dialect::Ollama, 500, &[], &body);
    let line = failed_in_stream(Dialect::Ollama, &body);
    assert_eq!(whole.message.as_deref(), Some("the model runner has stopped"));
    assert_eq!(whole.message, line.message);
    assert_eq!((whole.kind, line.kind), (None, None));
}

/// R352: the provider's request id is kept and shown.
#[test]
fn request_id_is_kept_and_shown() {
    let body = anthropic("api_error", "Broken.");
    let failure = failed(Dialect::Anthropic, 500, &[("request-id", "req_7")], &body);
    assert_eq!(failure.request_id.as_deref(), Some("req_7"));
    assert_eq!(failure.to_string(), "someone answered 500 api_error (request id req_7)");
    let failure = failed(Dialect::Anthropic, 500, &[], &body);
    assert_eq!(failure.request_id.as_deref(), Some("req_9"));
    let failure = failed(Dialect::Azure, 500, &[("apim-request-id", "a-1")], &Value::Null);
    assert_eq!(failure.request_id.as_deref(), Some("a-1"));
}
