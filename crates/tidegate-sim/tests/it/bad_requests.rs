//! Invalid requests and server failures, in the format of every dialect.

use serde_json::{Value, json};
use tidegate_sim::{Dialect, Fault, Limits};

use crate::client::{Call, DIALECTS, simulator};

/// What is wrong with a request, or the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    Key,
    Model,
    Path,
    Server,
    Down,
}

fn openai(message: &str, kind: &str, code: Option<&str>) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn openai_like(mistake: Mistake) -> (u16, Value) {
    let invalid = "invalid_request_error";
    match mistake {
        Mistake::Key => {
            (401, openai("The API key is not valid.", invalid, Some("invalid_api_key")))
        }
        Mistake::Model => {
            (404, openai("The model `zzz` does not exist.", invalid, Some("model_not_found")))
        }
        Mistake::Path => (404, openai("There is nothing at this URL.", invalid, None)),
        Mistake::Server => {
            (500, openai("The server had an error while it answered.", "server_error", None))
        }
        Mistake::Down => {
            (503, openai("The model is overloaded; try again later.", "server_error", None))
        }
    }
}

fn mistral(mistake: Mistake) -> (u16, Value) {
    let invalid = "invalid_request_error";
    let (status, message, kind, code) = match mistake {
        Mistake::Key => (401, "The key is not valid.", invalid, "1401"),
        Mistake::Model => (400, "There is no such model.", "invalid_model", "1500"),
        Mistake::Path => (404, "There is no such route.", invalid, "1404"),
        Mistake::Server => {
            (500, "The server failed while it answered.", "internal_server_error", "1000")
        }
        Mistake::Down => (503, "The service is unavailable.", "unavailable", "1001"),
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

fn openrouter(mistake: Mistake) -> (u16, Value) {
    let (status, message) = match mistake {
        Mistake::Key => (401, "There is no such key."),
        Mistake::Model => (400, "There is no such model."),
        Mistake::Path => (404, "There is nothing at this URL."),
        Mistake::Server => (500, "The server had an error while it answered."),
        Mistake::Down => (503, "No provider is available."),
    };
    let metadata = json!({ "provider_name": "sim" });
    (status, json!({ "error": { "code": status, "message": message, "metadata": metadata } }))
}

fn anthropic(mistake: Mistake) -> (u16, Value) {
    let (status, kind, message) = match mistake {
        Mistake::Key => (401, "authentication_error", "invalid x-api-key"),
        Mistake::Model => (404, "not_found_error", "model: zzz"),
        Mistake::Path => (404, "not_found_error", "Not Found"),
        Mistake::Server => (500, "api_error", "Internal server error"),
        Mistake::Down => (503, "api_error", "Service unavailable"),
    };
    let error = json!({ "type": kind, "message": message });
    (status, json!({ "type": "error", "error": error, "request_id": "req_sim_1" }))
}

fn gemini(mistake: Mistake) -> (u16, Value) {
    let (status, name, message) = match mistake {
        Mistake::Key => (400, "INVALID_ARGUMENT", "API key not valid."),
        Mistake::Model => (404, "NOT_FOUND", "models/zzz is not found for API version v1beta."),
        Mistake::Path => (404, "NOT_FOUND", "There is no such method."),
        Mistake::Server => (500, "INTERNAL", "An internal error has occurred."),
        Mistake::Down => (503, "UNAVAILABLE", "The model is overloaded. Try again later."),
    };
    let mut error = json!({ "code": status, "message": message, "status": name });
    if mistake == Mistake::Key {
        error["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
        }]);
    }
    (status, json!({ "error": error }))
}

fn ollama(mistake: Mistake) -> (u16, Value) {
    let (status, message) = match mistake {
        // Ollama has no key.
        Mistake::Key => return (200, Value::Null),
        Mistake::Path => (404, "not found"),
        Mistake::Model => (404, "model 'zzz' not found"),
        Mistake::Server => (500, "the model runner has stopped"),
        Mistake::Down => (503, "the server is shutting down"),
    };
    (status, json!({ "error": message }))
}

#[tokio::test(start_paused = true)]
async fn every_dialect_reports_errors_in_its_own_format() {
    for dialect in DIALECTS {
        for mistake in [Mistake::Key, Mistake::Model, Mistake::Path, Mistake::Server, Mistake::Down]
        {
            let simulator = simulator(dialect, Limits::new());
            let call = Call::new(dialect);
            let call = match mistake {
                Mistake::Key => {
                    let header = call.headers.first().map(|(name, _)| name.clone());
                    call.header(&header.unwrap_or("x-api-key".into()), "Bearer other")
                }
                Mistake::Model => {
                    let path = call.path.replace("/m/", "/zzz/").replace("/m:", "/zzz:");
                    call.model("zzz").path(&path)
                }
                Mistake::Path => call.path("/nowhere"),
                Mistake::Server | Mistake::Down => call,
            };
            match mistake {
                Mistake::Server => simulator.inject("main", Fault::ServerError, 1).unwrap(),
                Mistake::Down => simulator.inject("main", Fault::Unavailable, 1).unwrap(),
                Mistake::Key | Mistake::Model | Mistake::Path => {}
            }
            let (status, body) = match dialect {
                Dialect::Anthropic => anthropic(mistake),
                Dialect::Gemini => gemini(mistake),
                Dialect::Mistral => mistral(mistake),
                Dialect::OpenRouter => openrouter(mistake),
                Dialect::Ollama => ollama(mistake),
                _ => openai_like(mistake),
            };
            let response = call.send(&simulator).await;
            assert_eq!(response.status, status, "{dialect} {mistake:?}");
            if !body.is_null() {
                assert_eq!(response.json(), body, "{dialect} {mistake:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_requests_are_rejected() {
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
async fn mistral_rejects_unknown_members() {
    let options = json!({ "include_usage": true });
    for (name, value) in [("max_completion_tokens", json!(5)), ("stream_options", options)] {
        for (dialect, status) in [(Dialect::OpenAi, 200), (Dialect::Mistral, 400)] {
            let simulator = simulator(dialect, Limits::new());
            let response = Call::new(dialect).field(name, value.clone()).send(&simulator).await;
            assert_eq!(response.status, status, "{dialect} {name}");
        }
    }
}
