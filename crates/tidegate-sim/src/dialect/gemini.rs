//! Gemini: the model in the path, no headers about limits, and details in error bodies, which the
//! streaming endpoint wraps into a list.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Codec, ErrorResponse, Failure, Finish, ResponseContent, ResponseContext, ResponseHeaders,
};
use crate::calendar::{SECOND, decimal_seconds};
use crate::limits::quota::Dimension;
use crate::server::request::{Endpoint, Head, RequestSummary};
use crate::text;

/// The misleading delay that is reported when the daily quota is exhausted.
const DAY_RETRY: u64 = 22 * SECOND;

pub(super) struct Gemini;

impl Codec for Gemini {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        // Both versions have these methods, and official clients use either.
        let path = path.strip_prefix("/v1beta").or_else(|| path.strip_prefix("/v1"))?;
        let (model, method) = path.strip_prefix("/models/")?.split_once(':')?;
        let endpoint = match method {
            "generateContent" => Endpoint::Chat,
            "streamGenerateContent" => Endpoint::ChatStream,
            _ => return None,
        };
        (!model.is_empty()).then(|| (endpoint, Some(model.to_owned())))
    }

    fn credential<'a>(&self, head: &'a Head) -> Option<&'a str> {
        head.header("x-goog-api-key").or_else(|| head.query("key"))
    }

    fn parse_request(
        &self,
        head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure> {
        let Some((_, Some(model))) = self.route(head.path()) else { return Err(Failure::NoPath) };
        if body["contents"].as_array().is_none_or(Vec::is_empty) {
            return Err(Failure::BadRequest("contents is not specified"));
        }
        let max_output = match &body["generationConfig"]["maxOutputTokens"] {
            Value::Null => None,
            value => match value.as_u64() {
                None | Some(0) => {
                    return Err(Failure::BadRequest("max_output_tokens is not positive"));
                }
                tokens => tokens,
            },
        };
        let other_characters =
            text::characters(&body["systemInstruction"]) + text::json_characters(&body["tools"]);
        Ok(RequestSummary {
            endpoint,
            model,
            streams: endpoint == Endpoint::ChatStream,
            sse: head.query("alt") == Some("sse"),
            include_usage: true,
            max_output,
            attempts: 1,
            characters: other_characters + text::characters(&body["contents"]),
            inputs: 1,
        })
    }

    fn limit_headers(&self, _scene: &ResponseContext<'_>, _fields: &mut ResponseHeaders) {}

    fn error_response(&self, failure: &Failure, context: &ResponseContext<'_>) -> ErrorResponse {
        let (status, name, message) = describe(failure, context);
        let mut error = json!({ "code": status.as_u16(), "message": message, "status": name });
        if let Some(details) = details(failure, context) {
            error["details"] = details;
        }
        let body = json!({ "error": error });
        let body =
            if context.endpoint == Some(Endpoint::ChatStream) { json!([body]) } else { body };
        ErrorResponse::new(status, body)
    }

    fn response_body(&self, content: &ResponseContent) -> Value {
        chunk(content, &text::sentence(content.output), content.output, true)
    }

    fn stream_content_type(&self, parse_request: &RequestSummary) -> &'static str {
        if parse_request.sse { "text/event-stream" } else { "application/json; charset=UTF-8" }
    }

    fn stream_start(&self, content: &ResponseContent) -> String {
        if content.sse { String::new() } else { "[".to_owned() }
    }

    fn stream_token(&self, content: &ResponseContent, index: u64, word: &str) -> String {
        let sent = index + 1;
        frame(content, index, &chunk(content, word, sent, sent == content.output))
    }

    fn stream_end(&self, content: &ResponseContent) -> String {
        // The last token ends the stream; an empty response still needs a final chunk.
        let empty = if content.output == 0 {
            frame(content, 0, &chunk(content, "", 0, true))
        } else {
            String::new()
        };
        if content.sse { empty } else { format!("{empty}]") }
    }

    fn stream_error(&self, content: &ResponseContent) -> String {
        let error = json!({
            "error": { "code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE" },
        });
        if content.sse { format!("data: {error}\r\n\r\n") } else { format!(",\r\n{error}]") }
    }
}

fn frame(content: &ResponseContent, index: u64, chunk: &Value) -> String {
    match (content.sse, index) {
        (true, _) => format!("data: {chunk}\r\n\r\n"),
        (false, 0) => chunk.to_string(),
        (false, _) => format!(",\r\n{chunk}"),
    }
}

fn chunk(content: &ResponseContent, words: &str, output: u64, last: bool) -> Value {
    let mut candidate = json!({
        "content": { "parts": [{ "text": words }], "role": "model" },
        "index": 0,
    });
    if last {
        candidate["finishReason"] = json!(match content.finish {
            Finish::Stop => "STOP",
            Finish::Length => "MAX_TOKENS",
        });
    }
    let mut usage = json!({
        "promptTokenCount": content.input,
        "candidatesTokenCount": output,
        "totalTokenCount": content.input + output,
    });
    if content.cached > 0 {
        usage["cachedContentTokenCount"] = json!(content.cached);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": content.model,
        "responseId": format!("sim-{}", content.number),
    })
}

fn describe(
    failure: &Failure,
    context: &ResponseContext<'_>,
) -> (StatusCode, &'static str, String) {
    let exhausted = |rest: &str| {
        let message = format!("You exceeded your current quota.{rest}");
        (StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", message)
    };
    match failure {
        Failure::Limited(_) | Failure::Throttled { .. } | Failure::DayQuota { .. } => {
            match reported_wait(failure, context) {
                Some(wait) => exhausted(&format!(" Please retry in {}.", decimal_seconds(wait))),
                None => exhausted(""),
            }
        }
        Failure::Busy { .. } => exhausted(""),
        Failure::OutOfCredit => {
            exhausted(&context.unless_hidden(format_args!(" limit: 0, model: {}", context.model)))
        }
        Failure::ServerError => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL",
            "An internal error has occurred.".into(),
        ),
        Failure::Unavailable | Failure::Overloaded => (
            StatusCode::SERVICE_UNAVAILABLE,
            "UNAVAILABLE",
            "The model is overloaded. Try again later.".into(),
        ),
        Failure::BadKey => {
            (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", "API key not valid.".into())
        }
        Failure::NoModel(model) => (
            StatusCode::NOT_FOUND,
            "NOT_FOUND",
            format!("models/{model} is not found for API version v1beta."),
        ),
        Failure::NoPath => (StatusCode::NOT_FOUND, "NOT_FOUND", "There is no such method.".into()),
        Failure::BadRequest(why) => {
            (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", (*why).to_owned())
        }
    }
}

/// Returns the wait to report, which is made up for daily quotas.
fn reported_wait(failure: &Failure, context: &ResponseContext<'_>) -> Option<u64> {
    match failure {
        _ if context.hides_limits() => None,
        Failure::DayQuota { .. } => Some(DAY_RETRY),
        Failure::Limited(blocked) if blocked.dimension == Dimension::Day => Some(DAY_RETRY),
        other => context.wait(other),
    }
}

/// Returns the violated quota and the wait; `None` if the failure has no details.
fn details(failure: &Failure, context: &ResponseContext<'_>) -> Option<Value> {
    const REQUESTS: &str = "generativelanguage.googleapis.com/generate_content_requests";
    const TOKENS: &str = "generativelanguage.googleapis.com/generate_content_input_token_count";
    const PER_MINUTE: &str = "GenerateRequestsPerMinutePerProjectPerModel";
    const PER_DAY: &str = "GenerateRequestsPerDayPerProjectPerModel";
    let requests = context.snapshot.requests.map_or(0, |limit_status| limit_status.limit);
    let (metric, id, value) = match failure {
        Failure::Limited(blocked) => match blocked.dimension {
            Dimension::Day => (REQUESTS, PER_DAY, blocked.limit_status.limit),
            Dimension::InputTokens | Dimension::Tokens | Dimension::OutputTokens => {
                (TOKENS, "GenerateContentInputTokensPerModelPerMinute", blocked.limit_status.limit)
            }
            Dimension::Requests | Dimension::Slice | Dimension::Acceleration => {
                (REQUESTS, PER_MINUTE, requests)
            }
        },
        Failure::DayQuota { limit, .. } => (REQUESTS, PER_DAY, *limit),
        Failure::OutOfCredit => (REQUESTS, PER_DAY, 0),
        Failure::Throttled { wait: Some(_) } => (REQUESTS, PER_MINUTE, requests),
        Failure::BadKey => {
            return Some(json!([{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID",
                "domain": "googleapis.com",
            }]));
        }
        _ => return None,
    };
    let mut violation = json!({
        "quotaMetric": metric,
        "quotaId": id,
        "quotaDimensions": { "location": "global", "model": context.model },
    });
    if !context.hides_limits() {
        violation["quotaValue"] = json!(value.to_string());
    }
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [violation],
    })];
    if let Some(wait) = reported_wait(failure, context) {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", wait.div_ceil(SECOND)),
        }));
    }
    Some(Value::Array(details))
}
