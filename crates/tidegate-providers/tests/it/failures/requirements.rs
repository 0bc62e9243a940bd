//! The tables of what is retried and what is not, row by row.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate_providers::classify::{Rules, retryable_statuses};
use tidegate_providers::{Class, Dialect, classify};

use super::{DIALECTS, broken, failed, failed_by, limited, spent};

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
fn openai_errors_are_classed() {
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
            limited(None, Some(tidegate_providers::Dimension::Requests)),
        ),
        (
            "R325",
            OpenAi,
            429,
            openai("Nothing is left.", "insufficient_quota", Some("insufficient_quota")),
            spent(None),
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
fn anthropic_errors_are_classed() {
    use Dialect::Anthropic;
    let rows = [
        ("R329", 400, "invalid_request_error", Class::BadRequest),
        ("R330", 401, "authentication_error", Class::CredentialRejected),
        ("R331", 403, "permission_error", Class::CredentialRejected),
        ("R332", 404, "not_found_error", Class::BadRequest),
        ("R333", 413, "request_too_large", Class::TooLarge),
        ("R334", 429, "rate_limit_error", limited(None, None)),
        ("R335", 500, "api_error", Class::Transient),
        ("R336", 529, "overloaded_error", Class::Overloaded),
    ];
    let row = |(requirement, status, kind, class)| {
        (requirement, Anthropic, status, anthropic(kind, "So it is."), class)
    };
    check(rows.into_iter().map(row).collect());
}

#[test]
fn ollama_errors_are_classed() {
    use Dialect::Ollama;
    // R337: a success is nothing to be classed.
    assert_eq!(classify::status(Ollama, StatusCode::OK), None);
    let rows = [
        ("R338", 400, Class::BadRequest),
        ("R339", 404, Class::BadRequest),
        ("R340", 429, limited(None, None)),
        ("R341", 500, Class::Transient),
        ("R342, R354", 502, Class::Transient),
        ("its queue is full", 503, Class::Overloaded),
    ];
    let body = json!({ "error": "so it is" });
    let row = |(requirement, status, class)| (requirement, Ollama, status, body.clone(), class);
    check(rows.into_iter().map(row).collect());
}

/// R344: a 429 about money is never tried again.
#[test]
fn quotas_of_money_are_not_retried() {
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
            assert_eq!(failure.class, spent(None), "{name}");
            assert_eq!(failure.after, None, "{name}");
        }
    }
}

/// R345: words and digits of a message are no status and no type.
#[test]
fn the_text_of_a_message_makes_no_class() {
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

/// R346: what is retried, by provider; and the user can say otherwise.
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
    let rules = Rules::new().status(500, Class::BadRequest);
    let class = failed_by(&rules, Dialect::OpenAi, 500, &[], &Value::Null).class;
    assert_eq!(class, Class::BadRequest);
}

/// R346 and R325: a list of the user's takes the place of the provider's, but for money.
#[test]
fn the_user_says_which_statuses_are_retried() {
    let rules = Rules::new().retry_statuses([418, 429, 502, 401]);
    let failure = |status, body: &Value| failed_by(&rules, Dialect::OpenAi, status, &[], body);
    for (status, is_retried) in [(418, true), (429, true), (502, true), (500, false), (401, false)]
    {
        assert_eq!(failure(status, &Value::Null).is_retryable(), is_retried, "{status}");
    }
    assert_eq!(failure(418, &Value::Null).class, Class::Transient);
    assert_eq!(failure(500, &Value::Null).class, Class::Transient, "it is what it was");
    let unpaid = json!({ "error": { "type": "insufficient_quota" } });
    assert!(!failure(429, &unpaid).is_retryable());
    let rules = rules.status(500, Class::Transient);
    let by_rule = failed_by(&rules, Dialect::OpenAi, 500, &[], &Value::Null);
    assert!(by_rule.is_retryable(), "a rule says more than a list");
}

/// R347: these fail at once, of whomever.
#[test]
fn what_is_wrong_with_a_request_is_not_retried() {
    for dialect in DIALECTS {
        for status in [400, 401, 403, 404, 413, 422] {
            let failure = failed(dialect, status, &[("retry-after", "1")], &json!({ "error": {} }));
            assert!(!failure.class.is_retryable(), "{dialect:?} {status}");
            assert_eq!(failure.after, None, "{dialect:?} {status}");
            let code = StatusCode::from_u16(status).unwrap();
            assert_eq!(classify::status(dialect, code), Some(failure.class));
            assert!(!retryable_statuses(dialect).contains(&status));
        }
    }
}

/// R350: an error after a 200 has the class that it would have had before.
#[test]
fn errors_in_streams_have_the_same_class() {
    for (dialect, body, class) in [
        (Dialect::Anthropic, anthropic("overloaded_error", "Busy."), Class::Overloaded),
        (Dialect::Anthropic, anthropic("api_error", "Broken."), Class::Transient),
        (Dialect::Anthropic, anthropic("rate_limit_error", "Too fast."), limited(None, None)),
        (Dialect::Anthropic, anthropic("invalid_request_error", "No."), Class::BadRequest),
        (Dialect::Ollama, json!({ "error": "the model has stopped" }), Class::Transient),
        (Dialect::OpenAi, openai("Broken.", "server_error", None), Class::Transient),
        (Dialect::OpenAi, openai("", "insufficient_quota", None), spent(None)),
        (Dialect::OpenRouter, json!({ "error": { "code": 502 } }), Class::Transient),
        (Dialect::OpenRouter, json!({ "error": { "code": 429 } }), limited(None, None)),
        (Dialect::OpenRouter, json!({ "error": { "code": "402" } }), spent(None)),
    ] {
        let failure = broken(dialect, &body);
        assert_eq!(failure.class, class, "{body}");
        assert_eq!(failure.status, StatusCode::OK);
    }
}

/// R351: Ollama's form, whether it is an answer or a line of a stream.
#[test]
fn ollama_says_what_happened_in_one_member() {
    let body = json!({ "error": "the model runner has stopped" });
    let whole = failed(Dialect::Ollama, 500, &[], &body);
    let line = broken(Dialect::Ollama, &body);
    assert_eq!(whole.message.as_deref(), Some("the model runner has stopped"));
    assert_eq!(whole.message, line.message);
    assert_eq!((whole.kind, line.kind), (None, None));
}

/// R352: what the provider calls a request is kept, and shown.
#[test]
fn the_request_id_is_kept() {
    let body = anthropic("api_error", "Broken.");
    let failure = failed(Dialect::Anthropic, 500, &[("request-id", "req_7")], &body);
    assert_eq!(failure.request_id.as_deref(), Some("req_7"));
    assert_eq!(failure.to_string(), "someone answered 500 api_error (request id req_7)");
    let failure = failed(Dialect::Anthropic, 500, &[], &body);
    assert_eq!(failure.request_id.as_deref(), Some("req_9"));
    let failure = failed(Dialect::Azure, 500, &[("apim-request-id", "a-1")], &Value::Null);
    assert_eq!(failure.request_id.as_deref(), Some("a-1"));
}
