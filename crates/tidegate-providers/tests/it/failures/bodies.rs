//! Error bodies of every provider, and which of their values are ignored.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_providers::{Class, Dialect, Dimension, Failure, LimitReading};

use super::{NOW, exhausted, failed, failed_in_stream, rate_limited, seconds};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

const fn exhausted_reading(limit: u64, window: Duration) -> LimitReading {
    LimitReading { limit: Some(limit), remaining: Some(0), reset: None, window }
}

fn openai(message: &str, kind: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "code": "rate_limit_exceeded" } })
}

fn gemini(details: &Value) -> Value {
    json!({
        "error": {
            "code": 429,
            "message": "The quota is used up. Please retry in 10.689924287s.",
            "status": "RESOURCE_EXHAUSTED",
            "details": details,
        },
    })
}

fn violation(metric: &str, id: &str, value: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{
            "quotaMetric": format!("generativelanguage.googleapis.com/{metric}"),
            "quotaId": id,
            "quotaDimensions": { "model": "m", "location": "global" },
            "quotaValue": value,
        }],
    })
}

fn retry_info(delay: &str) -> Value {
    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay })
}

#[test]
fn openai_and_groq_put_delay_and_limit_into_the_message() {
    for dialect in [Dialect::OpenAi, Dialect::Groq] {
        let text = "Too many for m on tokens per min (TPM): Limit 30000, Used 29000, \
                    Requested 1500. Please try again in 976ms.";
        let failure = failed(dialect, 429, &[], &openai(text, "tokens"));
        let after = Some(Duration::from_millis(976));
        assert_eq!(failure.class, rate_limited(after, Some(Dimension::Tokens)));
        assert_eq!(
            failure.reported_limits.get(Dimension::Tokens),
            Some(&exhausted_reading(30_000, MINUTE))
        );
        assert_eq!(failure.kind.as_deref(), Some("tokens"));
        assert_eq!(failure.message.as_deref(), Some(text));
    }
    let day = "On requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in \
               7m12s.";
    let failure = failed(Dialect::OpenAi, 429, &[], &openai(day, "requests"));
    assert_eq!(failure.class, rate_limited(seconds(432), Some(Dimension::Requests)));
    assert_eq!(
        failure.reported_limits.get(Dimension::RequestsPerDay),
        Some(&exhausted_reading(200, DAY))
    );
}

#[test]
fn headers_take_precedence_over_the_message() {
    let fields = [
        ("retry-after", "2"),
        ("retry-after-ms", "1250"),
        ("x-ratelimit-limit-tokens", "40000"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("x-ratelimit-reset-tokens", "59.98s"),
    ];
    let text = "(TPM): Limit 30000, Used 29000, Requested 1500. Please try again in 9s.";
    let failure = failed(Dialect::OpenAi, 429, &fields, &openai(text, "tokens"));
    assert_eq!(failure.class.after(), Some(Duration::from_millis(1_250)));
    assert_eq!(failure.reported_limits.get(Dimension::Tokens).unwrap().limit, Some(40_000));
    let failure = failed(Dialect::OpenAi, 429, &fields[..1], &openai(text, "tokens"));
    assert_eq!(failure.class.after(), seconds(2));
    // An invalid header does not invalidate the other.
    let fields = [("retry-after-ms", "soon"), ("retry-after", "Sat, 31 Jan 2026 12:00:30 GMT")];
    let failure = failed(Dialect::OpenAi, 429, &fields, &openai(text, "tokens"));
    assert_eq!(failure.class.after(), seconds(30));
}

/// Only the message says that such a request never fits. The class follows the fields, but the
/// limit becomes known to the next attempt.
#[test]
fn request_that_never_fits_reports_the_limit() {
    let text = "Too large for m on tokens per min (TPM): Limit 100, Requested 101. Send less.";
    let failure = failed(Dialect::OpenAi, 429, &[], &openai(text, "tokens"));
    assert_eq!(failure.class, rate_limited(None, Some(Dimension::Tokens)));
    let reading = failure.reported_limits.get(Dimension::Tokens).unwrap();
    assert_eq!((reading.limit, reading.remaining), (Some(100), None));
    // Groq has a status for it, and an exceeded context has a code.
    let failure = failed(Dialect::Groq, 413, &[], &openai(text, "tokens"));
    assert_eq!(failure.class, Class::TooLarge);
    let body = json!({ "error": { "code": "context_length_exceeded", "message": "" } });
    assert_eq!(failed(Dialect::OpenAi, 400, &[], &body).class, Class::TooLarge);
}

#[test]
fn azure_puts_seconds_into_the_message() {
    let body = |text| json!({ "error": { "code": "429", "message": text } });
    let text = "Calls of this operation have exceeded the token rate limit. Please retry after 37 \
                seconds. Write to support for more.";
    let failure = failed(Dialect::Azure, 429, &[], &body(text));
    assert_eq!(failure.class, rate_limited(seconds(37), None));
    assert_eq!(failure.kind.as_deref(), Some("429"));
    let busy = body("The system is experiencing high demand.");
    assert_eq!(failed(Dialect::Azure, 429, &[], &busy).class, rate_limited(None, None));
}

#[test]
fn anthropic_has_rate_limits_and_spend_limits_under_one_type() {
    let body = |details: Value| {
        let error = json!({ "type": "rate_limit_error", "message": "So.", "details": details });
        json!({ "type": "error", "error": error })
    };
    let fields = [
        ("retry-after", "13"),
        ("anthropic-ratelimit-requests-limit", "50"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-01-31T12:00:59Z"),
    ];
    let failure = failed(Dialect::Anthropic, 429, &fields, &body(Value::Null));
    assert_eq!(failure.class, rate_limited(seconds(13), Some(Dimension::Requests)));
    let details = json!({ "error_code": "enforced_spend_limit_reached" });
    let failure = failed(Dialect::Anthropic, 429, &[], &body(details));
    // Until the first of February in UTC, from noon of the day before.
    assert_eq!(failure.class, exhausted(seconds(12 * 3_600)));

    let body = json!({ "type": "error", "error": { "type": "billing_error", "message": "" } });
    assert_eq!(failed(Dialect::Anthropic, 402, &[], &body).class, exhausted(None));
    // Only the message mentions billing; the error is not retried in any case.
    let text = "You have reached your limit. Access comes back on 2026-02-01.";
    let body = json!({ "error": { "type": "invalid_request_error", "message": text } });
    assert_eq!(failed(Dialect::Anthropic, 400, &[], &body).class, Class::BadRequest);
    // The delay is kept even though the class has none.
    let body = json!({ "error": { "type": "overloaded_error", "message": "" } });
    let failure = failed(Dialect::Anthropic, 529, &[("retry-after", "5")], &body);
    assert_eq!((failure.class, failure.after), (Class::Overloaded, seconds(5)));
}

#[test]
fn gemini_reports_quotas_in_details() {
    let minute = json!([
        violation("generate_content_requests", "GenerateRequestsPerMinutePerProject", "15"),
        retry_info("22s"),
    ]);
    let failure = failed(Dialect::Gemini, 429, &[], &gemini(&minute));
    assert_eq!(failure.class, rate_limited(seconds(22), Some(Dimension::Requests)));
    assert_eq!(
        failure.reported_limits.get(Dimension::Requests),
        Some(&exhausted_reading(15, MINUTE))
    );
    assert_eq!(failure.kind.as_deref(), Some("RESOURCE_EXHAUSTED"));

    let tokens = json!([violation(
        "generate_content_free_tier_input_token_count",
        "GenerateContentInputTokensPerModelPerMinute-FreeTier",
        "250000",
    )]);
    // The streaming endpoint wraps it in an array.
    let failure = failed(Dialect::Gemini, 429, &[], &json!([gemini(&tokens)]));
    let after = Some(Duration::from_nanos(10_689_924_287));
    assert_eq!(failure.class, rate_limited(after, Some(Dimension::InputTokens)));
    assert_eq!(
        failure.reported_limits.get(Dimension::InputTokens),
        Some(&exhausted_reading(250_000, MINUTE))
    );

    // Vertex sends nothing more.
    let bare = json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "" } });
    assert_eq!(failed(Dialect::Gemini, 429, &[], &bare).class, rate_limited(None, None));
}

#[test]
fn delay_of_a_daily_gemini_quota_is_ignored() {
    let requests = "generate_content_free_tier_requests";
    let day = json!([
        violation(requests, "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "50"),
        retry_info("22s"),
    ]);
    let failure = failed(Dialect::Gemini, 429, &[], &gemini(&day));
    // Noon UTC is 4 a.m. Pacific time: twenty hours until midnight.
    assert_eq!(failure.class, exhausted(seconds(20 * 3_600)));
    assert_eq!(failure.after, seconds(20 * 3_600));
    assert_eq!(
        failure.reported_limits.get(Dimension::RequestsPerDay),
        Some(&exhausted_reading(50, DAY))
    );
    let date = [("date", "Wed, 01 Jul 2026 12:00:00 GMT")];
    let summer = failed(Dialect::Gemini, 429, &date, &gemini(&day));
    assert_eq!(summer.class, exhausted(seconds(19 * 3_600)));

    let nothing = json!([
        violation(requests, "GenerateRequestsPerMinutePerProject-FreeTier", "0"),
        retry_info("22s"),
    ]);
    let failure = failed(Dialect::Gemini, 429, &[], &gemini(&nothing));
    assert_eq!((failure.class, failure.after), (exhausted(None), None));
    assert!(failure.reported_limits.is_empty());
}

#[test]
fn unknown_gemini_key_is_rejected() {
    let details = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "API_KEY_INVALID",
        "domain": "googleapis.com",
    }]);
    let body =
        json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT", "details": details } });
    assert_eq!(failed(Dialect::Gemini, 400, &[], &body).class, Class::CredentialRejected);
    let body = json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT" } });
    assert_eq!(failed(Dialect::Gemini, 400, &[], &body).class, Class::BadRequest);
    let body = json!({ "error": { "code": 503, "status": "UNAVAILABLE" } });
    assert_eq!(failed(Dialect::Gemini, 503, &[], &body).class, Class::Overloaded);
    assert_eq!(failed_in_stream(Dialect::Gemini, &body).class, Class::Overloaded);
}

#[test]
fn compatible_providers_have_their_own_names() {
    let mistral = json!({
        "object": "error", "message": "Too fast", "type": "rate_limited", "code": "1300",
        "raw_status_code": 429,
    });
    let failure = failed(Dialect::Mistral, 429, &[("retry-after", "3")], &mistral);
    assert_eq!(failure.class, rate_limited(seconds(3), None));
    assert_eq!(failure.kind.as_deref(), Some("rate_limited"));
    assert_eq!(failed_in_stream(Dialect::Mistral, &mistral).class, rate_limited(None, None));

    let together = json!({ "error": { "type": "credit_limit", "message": "Too fast" } });
    assert_eq!(failed(Dialect::Together, 429, &[], &together).class, rate_limited(None, None));

    let deepseek = json!({ "error": { "code": "invalid_request_error", "message": "No money" } });
    assert_eq!(failed(Dialect::DeepSeek, 402, &[], &deepseek).class, exhausted(None));
    assert_eq!(failed(Dialect::DeepSeek, 503, &[], &Value::Null).class, Class::Overloaded);

    let kimi = json!({ "error": { "type": "permission_error", "message": "The cycle is over" } });
    assert_eq!(failed(Dialect::Compatible, 403, &[], &kimi).class, exhausted(None));
    assert_eq!(
        failed(Dialect::Compatible, 403, &[], &Value::Null).class,
        Class::CredentialRejected
    );
    assert_eq!(failed(Dialect::Anthropic, 403, &[], &kimi).class, Class::CredentialRejected);
}

#[test]
fn openrouter_uses_numeric_codes_and_repeats_headers() {
    let body = |code: u16, metadata: Value| json!({ "error": { "code": code, "message": "So.", "metadata": metadata } });
    let repeated = json!({ "headers": {
        "X-RateLimit-Limit": "50",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1769904000000",
    } });
    let failure = failed(Dialect::OpenRouter, 429, &[], &body(429, repeated));
    // The reset is midnight, twelve hours later: the limit is daily.
    let after = seconds(12 * 3_600);
    assert_eq!(failure.class, rate_limited(after, Some(Dimension::RequestsPerDay)));
    let reading = LimitReading { reset: after, ..exhausted_reading(50, DAY) };
    assert_eq!(failure.reported_limits.get(Dimension::RequestsPerDay), Some(&reading));

    let class = |code, fields: &[(&str, &str)], metadata| {
        failed(Dialect::OpenRouter, code, fields, &body(code, metadata)).class
    };
    assert_eq!(class(402, &[], Value::Null), exhausted(None));
    assert_eq!(class(402, &[("retry-after", "60")], Value::Null), exhausted(seconds(60)));
    let busy = json!({ "limit_source": "openrouter_in_flight_budget" });
    assert_eq!(class(402, &[("retry-after", "4")], busy), rate_limited(seconds(4), None));
    let budget = json!({
        "limit_source": "openrouter_key_limit",
        "resets_at": "2026-02-01T00:00:00Z",
    });
    assert_eq!(class(403, &[], budget), exhausted(after));
    let flagged = json!({ "reasons": ["violence"], "flagged_input": "…" });
    assert_eq!(class(403, &[], flagged), Class::BadRequest);
    assert_eq!(class(502, &[], Value::Null), Class::Transient);
}

#[test]
fn errors_of_the_responses_api_are_read() {
    let error = json!({ "code": "rate_limit_exceeded", "message": "Please try again in 3s." });
    let failed = json!({ "type": "response.failed", "response": { "error": error } });
    assert_eq!(failed_in_stream(Dialect::OpenAi, &failed).class, rate_limited(seconds(3), None));
    let event = json!({ "type": "error", "code": "server_error", "message": "" });
    let failure = failed_in_stream(Dialect::OpenAi, &event);
    assert_eq!(failure.class, Class::Transient);
    assert_eq!(failure.kind.as_deref(), Some("server_error"));
}

#[test]
fn message_is_truncated_and_not_shown() {
    let text = "é".repeat(10_000);
    let body = json!({ "error": { "type": "server_error", "message": text } });
    let failure = failed(Dialect::OpenAi, 500, &[], &body);
    assert_eq!(failure.message.as_ref().unwrap().len(), 2_048);
    assert_eq!(failure.to_string(), "someone answered 500 server_error");
    // A type with spaces or line breaks is not shown either.
    for kind in ["the prompt was: hello", "a\nb", ""] {
        let body = json!({ "error": { "type": kind, "code": "a_code", "message": "" } });
        let failure = failed(Dialect::OpenAi, 500, &[], &body);
        assert_eq!(failure.kind.as_deref(), Some("a_code"));
    }
}

#[test]
fn body_that_is_not_json_is_classified_by_status() {
    use http::Response;
    use tidegate_providers::classify::ClassificationRules;
    let (parts, ()) = Response::builder().status(502).body(()).unwrap().into_parts();
    let provider = "someone".into();
    let read = |body: &[u8]| {
        Failure::of_response(
            Dialect::OpenAi,
            &provider,
            &parts,
            body,
            &ClassificationRules::new(),
            NOW,
        )
    };
    let page = read(b"<html>429 insufficient_quota</html>");
    assert_eq!(page.class, Class::Transient);
    assert_eq!(page.message.as_deref(), Some("<html>429 insufficient_quota</html>"));
    assert_eq!((read(b"").class, read(b"").message), (Class::Transient, None));
    let deep = "[".repeat(100_000);
    assert_eq!(read(deep.as_bytes()).class, Class::Transient);
}
