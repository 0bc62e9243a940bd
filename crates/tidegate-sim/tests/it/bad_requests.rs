//! Requests that nobody can answer, and servers that fail, in the words of every dialect.

use serde_json::{Value, json};
use tidegate_sim::{Dialect, Fault, Limits};

use crate::client::{Call, DIALECTS, simulator};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Key,
    Model,
    Path,
    Server,
    Down,
}

fn openai(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn like_openai(wrong: Wrong) -> (u16, Value) {
    let invalid = "invalid_request_error";
    match wrong {
        Wrong::Key => (401, openai("The API key is not valid.", invalid, Some("invalid_api_key"))),
        Wrong::Model => {
            (404, openai("The model `zzz` does not exist.", invalid, Some("model_not_found")))
        }
        Wrong::Path => (404, openai("There is nothing at this URL.", invalid, None)),
        Wrong::Server => {
            (500, openai("The server had an error while it answered.", "server_error", None))
        }
        Wrong::Down => {
            (503, openai("The model is overloaded; try again later.", "server_error", None))
        }
    }
}

fn mistral(wrong: Wrong) -> (u16, Value) {
    let invalid = "invalid_request_error";
    let (status, message, kind, code) = match wrong {
        Wrong::Key => (401, "The key is not valid.", invalid, "1401"),
        Wrong::Model => (400, "There is no such model.", "invalid_model", "1500"),
        Wrong::Path => (404, "There is no such route.", invalid, "1404"),
        Wrong::Server => {
            (500, "The server failed while it answered.", "internal_server_error", "1000")
        }
        Wrong::Down => (503, "The service is unavailable.", "unavailable", "1001"),
    };
    let body = json!({
        "object": "error",
        "message": message,
        "type": kind,
        "param": null,
        "code": code,
        "raw_status_code": status,
    });
    (status, body)
}

fn openrouter(wrong: Wrong) -> (u16, Value) {
    let (status, message) = match wrong {
        Wrong::Key => (401, "There is no such key."),
        Wrong::Model => (400, "There is no such model."),
        Wrong::Path => (404, "There is nothing at this URL."),
        Wrong::Server => (500, "The server had an error while it answered."),
        Wrong::Down => (503, "No provider is available."),
    };
    let metadata = json!({ "provider_name": "sim" });
    (status, json!({ "error": { "code": status, "message": message, "metadata": metadata } }))
}

fn anthropic(wrong: Wrong) -> (u16, Value) {
    let (status, kind, message) = match wrong {
        Wrong::Key => (401, "authentication_error", "invalid x-api-key"),
        Wrong::Model => (404, "not_found_error", "model: zzz"),
        Wrong::Path => (404, "not_found_error", "Not Found"),
        Wrong::Server => (500, "api_error", "Internal server error"),
        Wrong::Down => (503, "api_error", "Service unavailable"),
    };
    let error = json!({ "type": kind, "message": message });
    (status, json!({ "type": "error", "error": error, "request_id": "req_sim_1" }))
}

fn gemini(wrong: Wrong) -> (u16, Value) {
    let (status, name, message) = match wrong {
        Wrong::Key => (400, "INVALID_ARGUMENT", "API key not valid."),
        Wrong::Model => (404, "NOT_FOUND", "models/zzz is not found for API version v1beta."),
        Wrong::Path => (404, "NOT_FOUND", "There is no such method."),
        Wrong::Server => (500, "INTERNAL", "An internal error has occurred."),
        Wrong::Down => (503, "UNAVAILABLE", "The model is overloaded. Try again later."),
    };
    let mut error = json!({ "code": status, "message": message, "status": name });
    if wrong == Wrong::Key {
        error["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
        }]);
    }
    (status, json!({ "error": error }))
}

fn ollama(wrong: Wrong) -> (u16, Value) {
    let (status, message) = match wrong {
        // There is no key, so none can be wrong.
        Wrong::Key => return (200, Value::Null),
        Wrong::Path => (404, "not found"),
        Wrong::Model => (404, "model 'zzz' not found"),
        Wrong::Server => (500, "the model runner has stopped"),
        Wrong::Down => (503, "the server is shutting down"),
    };
    (status, json!({ "error": message }))
}

#[tokio::test(start_paused = true)]
async fn every_dialect_has_its_own_words_for_what_is_wrong() {
    for dialect in DIALECTS {
        for wrong in [Wrong::Key, Wrong::Model, Wrong::Path, Wrong::Server, Wrong::Down] {
            let simulator = simulator(dialect, Limits::new());
            let call = Call::new(dialect);
            let call = match wrong {
                Wrong::Key => {
                    let header = call.headers.first().map(|(name, _)| name.clone());
                    call.header(&header.unwrap_or("x-api-key".into()), "Bearer other")
                }
                Wrong::Model => {
                    let path = call.path.replace("/m/", "/zzz/").replace("/m:", "/zzz:");
                    call.model("zzz").path(&path)
                }
                Wrong::Path => call.path("/nowhere"),
                Wrong::Server | Wrong::Down => call,
            };
            match wrong {
                Wrong::Server => simulator.inject("main", Fault::ServerError, 1).unwrap(),
                Wrong::Down => simulator.inject("main", Fault::Unavailable, 1).unwrap(),
                Wrong::Key | Wrong::Model | Wrong::Path => {}
            }
            let (status, body) = match dialect {
                Dialect::Anthropic => anthropic(wrong),
                Dialect::Gemini => gemini(wrong),
                Dialect::Mistral => mistral(wrong),
                Dialect::OpenRouter => openrouter(wrong),
                Dialect::Ollama => ollama(wrong),
                _ => like_openai(wrong),
            };
            let answer = call.send(&simulator).await;
            assert_eq!(answer.status, status, "{dialect} {wrong:?}");
            if !body.is_null() {
                assert_eq!(answer.json(), body, "{dialect} {wrong:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_make_no_sense_are_refused() {
    let openai = simulator(Dialect::OpenAi, Limits::new());
    let call = Call::new(Dialect::OpenAi);
    for bad in [
        call.clone().field("messages", json!([])),
        call.clone().field("max_tokens", 0),
        call.clone().field("max_tokens", "many"),
        call.clone().field("model", json!(null)),
        call.clone().header("x-sim-output-tokens", "-1"),
        call.clone().header("x-sim-output-tokens", "1000001"),
    ] {
        let refused = bad.send(&openai).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    let refused = call.send_bytes(openai.connect().unwrap(), "{\"model\":".into()).await.unwrap();
    assert_eq!(refused.status, 400);
    let anthropic = simulator(Dialect::Anthropic, Limits::new());
    let mut unversioned = Call::new(Dialect::Anthropic);
    unversioned.headers.retain(|(name, _)| name != "anthropic-version");
    assert_eq!(unversioned.send(&anthropic).await.status, 400);
    let unbounded = Call::new(Dialect::Anthropic).field("max_tokens", json!(null));
    assert_eq!(unbounded.send(&anthropic).await.status, 400);
    let azure = simulator(Dialect::AzureOpenAi, Limits::new());
    let unversioned =
        Call::new(Dialect::AzureOpenAi).path("/openai/deployments/m/chat/completions");
    assert_eq!(unversioned.send(&azure).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn mistral_refuses_members_that_it_does_not_know() {
    let options = json!({ "include_usage": true });
    for (name, value) in [("max_completion_tokens", json!(5)), ("stream_options", options)] {
        for (dialect, status) in [(Dialect::OpenAi, 200), (Dialect::Mistral, 400)] {
            let simulator = simulator(dialect, Limits::new());
            let answer = Call::new(dialect).field(name, value.clone()).send(&simulator).await;
            assert_eq!(answer.status, status, "{dialect} {name}");
        }
    }
}
