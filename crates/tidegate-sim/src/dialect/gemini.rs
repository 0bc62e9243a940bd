//! Gemini: the model in the path, no headers about limits, and everything in the bodies of errors,
//! which the streaming endpoint wraps into a list.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Failure, Fields, Finish, Refused, Reply, Scene, Voice};
use crate::calendar::{SECOND, decimal_seconds};
use crate::limits::quota::Dimension;
use crate::server::ask::{Ask, Endpoint, Head};
use crate::text;

/// What is told to those who have used up a day: it is not true.
const DAY_RETRY: u64 = 22 * SECOND;

pub(super) struct Gemini;

impl Voice for Gemini {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        // Both versions have these methods, and official clients differ in which they name.
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

    fn ask(&self, head: &Head, endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
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
        let around = text::characters(&body["systemInstruction"]) + text::written(&body["tools"]);
        Ok(Ask {
            endpoint,
            model,
            streams: endpoint == Endpoint::ChatStream,
            sse: head.query("alt") == Some("sse"),
            include_usage: true,
            max_output,
            attempts: 1,
            characters: around + text::characters(&body["contents"]),
            inputs: 1,
        })
    }

    fn announce(&self, _scene: &Scene<'_>, _fields: &mut Fields) {}

    fn refuse(&self, failure: &Failure, scene: &Scene<'_>) -> Refused {
        let (status, name, message) = describe(failure, scene);
        let mut error = json!({ "code": status.as_u16(), "message": message, "status": name });
        if let Some(details) = details(failure, scene) {
            error["details"] = details;
        }
        let body = json!({ "error": error });
        let body = if scene.endpoint == Some(Endpoint::ChatStream) { json!([body]) } else { body };
        Refused::new(status, body)
    }

    fn whole(&self, reply: &Reply) -> Value {
        chunk(reply, &text::sentence(reply.output), reply.output, true)
    }

    fn stream_type(&self, ask: &Ask) -> &'static str {
        if ask.sse { "text/event-stream" } else { "application/json; charset=UTF-8" }
    }

    fn opening(&self, reply: &Reply) -> String {
        if reply.sse { String::new() } else { "[".to_owned() }
    }

    fn token(&self, reply: &Reply, index: u64, word: &str) -> String {
        let said = index + 1;
        frame(reply, index, &chunk(reply, word, said, said == reply.output))
    }

    fn closing(&self, reply: &Reply) -> String {
        // The last token closes the stream; an empty answer still says that it is over.
        let empty = if reply.output == 0 {
            frame(reply, 0, &chunk(reply, "", 0, true))
        } else {
            String::new()
        };
        if reply.sse { empty } else { format!("{empty}]") }
    }

    fn breaking(&self, reply: &Reply) -> String {
        let error = json!({
            "error": { "code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE" },
        });
        if reply.sse { format!("data: {error}\r\n\r\n") } else { format!(",\r\n{error}]") }
    }
}

fn frame(reply: &Reply, index: u64, chunk: &Value) -> String {
    match (reply.sse, index) {
        (true, _) => format!("data: {chunk}\r\n\r\n"),
        (false, 0) => chunk.to_string(),
        (false, _) => format!(",\r\n{chunk}"),
    }
}

fn chunk(reply: &Reply, words: &str, output: u64, last: bool) -> Value {
    let mut candidate = json!({
        "content": { "parts": [{ "text": words }], "role": "model" },
        "index": 0,
    });
    if last {
        candidate["finishReason"] = json!(match reply.finish {
            Finish::Stop => "STOP",
            Finish::Length => "MAX_TOKENS",
        });
    }
    let mut usage = json!({
        "promptTokenCount": reply.input,
        "candidatesTokenCount": output,
        "totalTokenCount": reply.input + output,
    });
    if reply.cached > 0 {
        usage["cachedContentTokenCount"] = json!(reply.cached);
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage,
        "modelVersion": reply.model,
        "responseId": format!("sim-{}", reply.number),
    })
}

fn describe(failure: &Failure, scene: &Scene<'_>) -> (StatusCode, &'static str, String) {
    let exhausted = |rest: &str| {
        let message = format!("You exceeded your current quota.{rest}");
        (StatusCode::TOO_MANY_REQUESTS, "RESOURCE_EXHAUSTED", message)
    };
    match failure {
        Failure::Limited(_) | Failure::Throttled { .. } | Failure::DayQuota { .. } => {
            match told_wait(failure, scene) {
                Some(wait) => exhausted(&format!(" Please retry in {}.", decimal_seconds(wait))),
                None => exhausted(""),
            }
        }
        Failure::Busy { .. } => exhausted(""),
        Failure::OutOfCredit => {
            exhausted(&scene.numbers(format_args!(" limit: 0, model: {}", scene.model)))
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

/// The wait that is told, which for a day's quota is made up.
fn told_wait(failure: &Failure, scene: &Scene<'_>) -> Option<u64> {
    match failure {
        _ if scene.is_silent() => None,
        Failure::DayQuota { .. } => Some(DAY_RETRY),
        Failure::Limited(blocked) if blocked.dimension == Dimension::Day => Some(DAY_RETRY),
        other => scene.wait(other),
    }
}

/// The violated quota and the wait; nothing at all where a client is to be left in the dark.
fn details(failure: &Failure, scene: &Scene<'_>) -> Option<Value> {
    const REQUESTS: &str = "generativelanguage.googleapis.com/generate_content_requests";
    const TOKENS: &str = "generativelanguage.googleapis.com/generate_content_input_token_count";
    const PER_MINUTE: &str = "GenerateRequestsPerMinutePerProjectPerModel";
    const PER_DAY: &str = "GenerateRequestsPerDayPerProjectPerModel";
    let requests = scene.standing.requests.map_or(0, |gauge| gauge.limit);
    let (metric, id, value) = match failure {
        Failure::Limited(blocked) => match blocked.dimension {
            Dimension::Day => (REQUESTS, PER_DAY, blocked.gauge.limit),
            Dimension::InputTokens | Dimension::Tokens | Dimension::OutputTokens => {
                (TOKENS, "GenerateContentInputTokensPerModelPerMinute", blocked.gauge.limit)
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
        "quotaDimensions": { "location": "global", "model": scene.model },
    });
    if !scene.is_silent() {
        violation["quotaValue"] = json!(value.to_string());
    }
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [violation],
    })];
    if let Some(wait) = told_wait(failure, scene) {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", wait.div_ceil(SECOND)),
        }));
    }
    Some(Value::Array(details))
}
