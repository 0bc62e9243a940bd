//! Ollama: no key, no headers and no rate limits; a queue, JSON lines, and streaming by default.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Codec, ErrorResponse, Failure, Finish, ResponseContent, ResponseContext, ResponseHeaders,
};
use crate::calendar::rfc3339;
use crate::server::request::{Endpoint, Head, RequestSummary};
use crate::text;

pub(super) struct Ollama;

impl Codec for Ollama {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        (path == "/api/chat").then_some((Endpoint::Chat, None))
    }

    fn credential<'a>(&self, _head: &'a Head) -> Option<&'a str> {
        None
    }

    fn parse_request(
        &self,
        _head: &Head,
        endpoint: Endpoint,
        body: &Value,
    ) -> Result<RequestSummary, Failure> {
        let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
            return Err(Failure::BadRequest("model is required"));
        };
        // A negative number means no limit.
        let max_output = body["options"]["num_predict"].as_u64();
        Ok(RequestSummary {
            endpoint,
            model: model.to_owned(),
            streams: body["stream"].as_bool().unwrap_or(true),
            sse: false,
            include_usage: true,
            max_output,
            attempts: 1,
            characters: text::characters(&body["messages"]) + text::json_characters(&body["tools"]),
            inputs: 1,
        })
    }

    fn limit_headers(&self, _scene: &ResponseContext<'_>, _fields: &mut ResponseHeaders) {}

    fn error_response(&self, failure: &Failure, _scene: &ResponseContext<'_>) -> ErrorResponse {
        let (status, message) = match failure {
            Failure::Limited(_)
            | Failure::Busy { .. }
            | Failure::Throttled { .. }
            | Failure::DayQuota { .. }
            | Failure::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "server busy, please try again. maximum pending requests exceeded".to_owned(),
            ),
            Failure::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down".to_owned())
            }
            Failure::OutOfCredit | Failure::ServerError => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the model runner has stopped".to_owned())
            }
            Failure::BadKey => (StatusCode::UNAUTHORIZED, "unauthorized".to_owned()),
            Failure::NoModel(model) => {
                (StatusCode::NOT_FOUND, format!("model '{model}' not found"))
            }
            Failure::NoPath => (StatusCode::NOT_FOUND, "not found".to_owned()),
            Failure::BadRequest(why) => (StatusCode::BAD_REQUEST, (*why).to_owned()),
        };
        ErrorResponse::new(status, json!({ "error": message }))
    }

    fn response_body(&self, content: &ResponseContent) -> Value {
        last(content, &text::sentence(content.output))
    }

    fn stream_content_type(&self, _ask: &RequestSummary) -> &'static str {
        "application/x-ndjson"
    }

    fn stream_start(&self, _reply: &ResponseContent) -> String {
        String::new()
    }

    fn stream_token(&self, content: &ResponseContent, _index: u64, word: &str) -> String {
        format!("{}\n", line(content, word))
    }

    fn stream_end(&self, content: &ResponseContent) -> String {
        format!("{}\n", last(content, ""))
    }

    fn stream_error(&self, _reply: &ResponseContent) -> String {
        format!("{}\n", json!({ "error": "the model runner has stopped" }))
    }
}

fn line(content: &ResponseContent, words: &str) -> Value {
    json!({
        "model": content.model,
        "created_at": rfc3339(content.created),
        "message": { "role": "assistant", "content": words },
        "done": false,
    })
}

fn last(content: &ResponseContent, words: &str) -> Value {
    let (first, all) = content.timing;
    let mut object = line(content, words);
    object["done"] = json!(true);
    object["done_reason"] = json!(match content.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    });
    object["total_duration"] = json!(all);
    object["load_duration"] = json!(0);
    object["prompt_eval_count"] = json!(content.input);
    object["prompt_eval_cached_count"] = json!(content.cached);
    object["prompt_eval_duration"] = json!(first);
    object["eval_count"] = json!(content.output);
    object["eval_duration"] = json!(all.saturating_sub(first));
    object
}
