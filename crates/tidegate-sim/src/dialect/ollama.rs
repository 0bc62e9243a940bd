//! Ollama: no key, no headers, no rates; a queue, lines of JSON, and streaming unless it is refused.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Failure, Fields, Finish, Refused, Reply, Scene, Voice};
use crate::calendar::rfc3339;
use crate::server::ask::{Ask, Endpoint, Head};
use crate::text;

pub(super) struct Ollama;

impl Voice for Ollama {
    fn route(&self, path: &str) -> Option<(Endpoint, Option<String>)> {
        (path == "/api/chat").then_some((Endpoint::Chat, None))
    }

    fn credential<'a>(&self, _head: &'a Head) -> Option<&'a str> {
        None
    }

    fn ask(&self, _head: &Head, endpoint: Endpoint, body: &Value) -> Result<Ask, Failure> {
        let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
            return Err(Failure::BadRequest("model is required"));
        };
        // A negative number means that there is no bound.
        let max_output = body["options"]["num_predict"].as_u64();
        Ok(Ask {
            endpoint,
            model: model.to_owned(),
            streams: body["stream"].as_bool().unwrap_or(true),
            sse: false,
            include_usage: true,
            max_output,
            attempts: 1,
            characters: text::characters(&body["messages"]) + text::written(&body["tools"]),
            inputs: 1,
        })
    }

    fn announce(&self, _scene: &Scene<'_>, _fields: &mut Fields) {}

    fn refuse(&self, failure: &Failure, _scene: &Scene<'_>) -> Refused {
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
        Refused::new(status, json!({ "error": message }))
    }

    fn whole(&self, reply: &Reply) -> Value {
        last(reply, &text::sentence(reply.output))
    }

    fn stream_type(&self, _ask: &Ask) -> &'static str {
        "application/x-ndjson"
    }

    fn opening(&self, _reply: &Reply) -> String {
        String::new()
    }

    fn token(&self, reply: &Reply, _index: u64, word: &str) -> String {
        format!("{}\n", line(reply, word))
    }

    fn closing(&self, reply: &Reply) -> String {
        format!("{}\n", last(reply, ""))
    }

    fn breaking(&self, _reply: &Reply) -> String {
        format!("{}\n", json!({ "error": "the model runner has stopped" }))
    }
}

fn line(reply: &Reply, words: &str) -> Value {
    json!({
        "model": reply.model,
        "created_at": rfc3339(reply.created),
        "message": { "role": "assistant", "content": words },
        "done": false,
    })
}

fn last(reply: &Reply, words: &str) -> Value {
    let (first, all) = reply.timing;
    let mut object = line(reply, words);
    object["done"] = json!(true);
    object["done_reason"] = json!(match reply.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    });
    object["total_duration"] = json!(all);
    object["load_duration"] = json!(0);
    object["prompt_eval_count"] = json!(reply.input);
    object["prompt_eval_cached_count"] = json!(reply.cached);
    object["prompt_eval_duration"] = json!(first);
    object["eval_count"] = json!(reply.output);
    object["eval_duration"] = json!(all.saturating_sub(first));
    object
}
