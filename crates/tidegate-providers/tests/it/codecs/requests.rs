//! Encoded requests, compared exactly.

use http::{HeaderName, HeaderValue, Method, Request};
use serde_json::{Value, json};
use tidegate_providers::request::Target;
use tidegate_providers::{Chat, Credential, Dialect, Message, Tool, ToolCall};

/// A chat with everything in it: two parallel calls, their results, and all options.
fn everything() -> Chat {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: "length".into(),
        arguments: arguments.into(),
        signature: None,
    };
    let result = |id: &str, content: &str| Message::Tool {
        id: id.into(),
        name: "length".into(),
        content: content.into(),
    };
    let calls = vec![call("call_1", r#"{"river":"Elbe"}"#), call("call_2", "")];
    Chat::user("Which is longer?")
        .system("Be brief.")
        .message(Message::Assistant { text: String::new(), calls })
        .message(result("call_1", r#"{"km":1094}"#))
        .message(result("call_2", "unknown"))
        .message(Message::assistant("The Elbe."))
        .message(Message::user("Sure?"))
        .tool(Tool {
            name: "length".into(),
            description: Some("How long a river is".into()),
            parameters: schema(),
        })
        .max_tokens(50)
        .temperature(0.5)
        .top_p(0.25)
        .stop("END")
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "river": { "type": "string" } } })
}

#[derive(Clone, Copy)]
enum Mode {
    Complete,
    Stream,
}

fn request(dialect: Dialect, base: &str, chat: &Chat, mode: Mode) -> Request<bytes::Bytes> {
    let target = Target::new(dialect, base, "m", &Credential::new("secret-key")).unwrap();
    let request = match mode {
        Mode::Complete => target.encode(chat),
        Mode::Stream => target.encode_streamed(chat),
    };
    request.unwrap()
}

fn body(dialect: Dialect, chat: &Chat, mode: Mode) -> Value {
    let request = request(dialect, "http://host", chat, mode);
    serde_json::from_slice(request.body()).unwrap()
}

#[test]
fn openai() {
    let expected = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Which is longer?" },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "call_1", "type": "function",
                  "function": { "name": "length", "arguments": "{\"river\":\"Elbe\"}" } },
                { "id": "call_2", "type": "function",
                  "function": { "name": "length", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "call_1", "content": "{\"km\":1094}" },
            { "role": "tool", "tool_call_id": "call_2", "content": "unknown" },
            { "role": "assistant", "content": "The Elbe." },
            { "role": "user", "content": "Sure?" },
        ],
        "tools": [{ "type": "function", "function": {
            "name": "length", "description": "How long a river is", "parameters": schema(),
        } }],
        "max_completion_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.25,
        "stop": ["END"],
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    assert_eq!(body(Dialect::OpenAi, &everything(), Mode::Stream), expected);
    let plain = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(body(Dialect::OpenAi, &Chat::user("hi"), Mode::Complete), plain);
}

#[test]
fn compatible_providers_differ_in_small_things() {
    let differences = [
        (Dialect::Azure, "max_completion_tokens", true),
        (Dialect::Groq, "max_tokens", true),
        (Dialect::Mistral, "max_tokens", false),
        (Dialect::Together, "max_tokens", true),
        (Dialect::OpenRouter, "max_tokens", true),
        (Dialect::DeepSeek, "max_tokens", true),
        (Dialect::Compatible, "max_tokens", true),
    ];
    for (dialect, bound, asks_for_usage) in differences {
        let mut expected = body(Dialect::OpenAi, &everything(), Mode::Stream);
        let members = expected.as_object_mut().unwrap();
        let tokens = members.remove("max_completion_tokens").unwrap();
        members.insert(bound.to_owned(), tokens);
        if !asks_for_usage {
            members.remove("stream_options");
        }
        assert_eq!(body(dialect, &everything(), Mode::Stream), expected, "{dialect:?}");
    }
}

#[test]
fn anthropic() {
    let expected = json!({
        "model": "m",
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Which is longer?" }] },
            { "role": "assistant", "content": [
                { "type": "tool_use", "id": "call_1", "name": "length",
                  "input": { "river": "Elbe" } },
                { "type": "tool_use", "id": "call_2", "name": "length", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "call_1", "content": "{\"km\":1094}" },
                { "type": "tool_result", "tool_use_id": "call_2", "content": "unknown" },
            ] },
            { "role": "assistant", "content": [{ "type": "text", "text": "The Elbe." }] },
            { "role": "user", "content": [{ "type": "text", "text": "Sure?" }] },
        ],
        "tools": [{
            "name": "length", "description": "How long a river is", "input_schema": schema(),
        }],
        "temperature": 0.5,
        "top_p": 0.25,
        "stop_sequences": ["END"],
        "stream": true,
    });
    assert_eq!(body(Dialect::Anthropic, &everything(), Mode::Stream), expected);
    let plain = body(Dialect::Anthropic, &Chat::user("hi"), Mode::Complete);
    assert_eq!(plain["max_tokens"], 4_096, "Anthropic requires a number");
    assert_eq!(plain.get("stream"), None);
}

#[test]
fn gemini() {
    let unsigned = "skip_thought_signature_validator";
    let expected = json!({
        "systemInstruction": { "parts": [{ "text": "Be brief." }] },
        "contents": [
            { "role": "user", "parts": [{ "text": "Which is longer?" }] },
            { "role": "model", "parts": [
                { "functionCall": { "id": "call_1", "name": "length",
                                    "args": { "river": "Elbe" } },
                  "thoughtSignature": unsigned },
                { "functionCall": { "id": "call_2", "name": "length", "args": {} } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": "call_1", "name": "length",
                                        "response": { "km": 1094 } } },
                { "functionResponse": { "id": "call_2", "name": "length",
                                        "response": { "result": "unknown" } } },
            ] },
            { "role": "model", "parts": [{ "text": "The Elbe." }] },
            { "role": "user", "parts": [{ "text": "Sure?" }] },
        ],
        "tools": [{ "functionDeclarations": [{
            "name": "length", "description": "How long a river is",
            "parametersJsonSchema": schema(),
        }] }],
        "generationConfig": {
            "maxOutputTokens": 50, "temperature": 0.5, "topP": 0.25, "stopSequences": ["END"],
        },
    });
    assert_eq!(body(Dialect::Gemini, &everything(), Mode::Stream), expected);
    assert_eq!(body(Dialect::Gemini, &everything(), Mode::Complete), expected);
}

#[test]
fn gemini_gets_its_signatures_back_but_no_generated_ids() {
    let call = |id: &str, signature: Option<&str>| ToolCall {
        id: id.into(),
        name: "length".into(),
        arguments: "{}".into(),
        signature: signature.map(Into::into),
    };
    let calls = vec![call("gemini-call-0", Some("signed")), call("gemini-call-1", None)];
    let chat = Chat::new([
        Message::Assistant { text: "Well.".into(), calls },
        Message::Tool { id: "gemini-call-0".into(), name: "length".into(), content: "{}".into() },
    ]);
    let expected = json!([
        { "role": "model", "parts": [
            { "text": "Well." },
            { "functionCall": { "name": "length", "args": {} }, "thoughtSignature": "signed" },
            { "functionCall": { "name": "length", "args": {} } },
        ] },
        { "role": "user", "parts": [
            { "functionResponse": { "name": "length", "response": {} } },
        ] },
    ]);
    assert_eq!(body(Dialect::Gemini, &chat, Mode::Complete)["contents"], expected);
}

#[test]
fn ollama() {
    let expected = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "Which is longer?" },
            { "role": "assistant", "content": "", "tool_calls": [
                { "function": { "name": "length", "arguments": { "river": "Elbe" } } },
                { "function": { "name": "length", "arguments": {} } },
            ] },
            { "role": "tool", "tool_name": "length", "content": "{\"km\":1094}" },
            { "role": "tool", "tool_name": "length", "content": "unknown" },
            { "role": "assistant", "content": "The Elbe." },
            { "role": "user", "content": "Sure?" },
        ],
        "tools": [{ "type": "function", "function": {
            "name": "length", "description": "How long a river is", "parameters": schema(),
        } }],
        "options": { "num_predict": 50, "temperature": 0.5, "top_p": 0.25, "stop": ["END"] },
        "stream": true,
    });
    assert_eq!(body(Dialect::Ollama, &everything(), Mode::Stream), expected);
    let plain = body(Dialect::Ollama, &Chat::user("hi"), Mode::Complete);
    assert_eq!(plain["stream"], false, "Ollama streams by default");
}

#[test]
fn extra_members_override_and_objects_are_merged() {
    let chat = Chat::user("hi")
        .temperature(0.5)
        .extra("options", json!({ "num_ctx": 8192 }))
        .extra("keep_alive", "5m")
        .extra("model", "another");
    let body = body(Dialect::Ollama, &chat, Mode::Complete);
    assert_eq!(body["options"], json!({ "temperature": 0.5, "num_ctx": 8192 }));
    assert_eq!((&body["keep_alive"], &body["model"]), (&json!("5m"), &json!("another")));
}

#[test]
fn every_dialect_has_its_url() {
    let addresses = [
        (Dialect::OpenAi, "/v1/chat/completions"),
        (Dialect::Azure, "/openai/deployments/m/chat/completions?api-version=2024-10-21"),
        (Dialect::Anthropic, "/v1/messages"),
        (Dialect::Groq, "/openai/v1/chat/completions"),
        (Dialect::Mistral, "/v1/chat/completions"),
        (Dialect::Together, "/v1/chat/completions"),
        (Dialect::OpenRouter, "/api/v1/chat/completions"),
        (Dialect::DeepSeek, "/chat/completions"),
        (Dialect::Ollama, "/api/chat"),
        (Dialect::Compatible, "/v1/chat/completions"),
        (Dialect::Gemini, "/v1beta/models/m:generateContent"),
    ];
    for (dialect, path) in addresses {
        for base in ["https://host:8443", "https://host:8443/", "https://host:8443/a/b/"] {
            let request = request(dialect, base, &Chat::user("hi"), Mode::Complete);
            let expected = format!("{}{path}", base.trim_end_matches('/'));
            assert_eq!(request.uri().to_string(), expected, "{dialect:?}");
            assert_eq!(request.method(), Method::POST);
        }
    }
    let streamed = request(Dialect::Gemini, "http://host", &Chat::user("hi"), Mode::Stream);
    let expected = "http://host/v1beta/models/m:streamGenerateContent?alt=sse";
    assert_eq!(streamed.uri(), expected);
}

#[test]
fn base_url_may_include_the_api_root() {
    let bases = [
        (Dialect::OpenAi, "https://api.openai.com/v1"),
        (Dialect::Groq, "https://api.groq.com/openai/v1/"),
        (Dialect::OpenRouter, "https://openrouter.ai/api/v1"),
        (Dialect::Anthropic, "https://api.anthropic.com/v1/"),
        (Dialect::Gemini, "https://generativelanguage.googleapis.com/v1beta"),
        (Dialect::Mistral, "https://api.mistral.ai/v1"),
        (Dialect::Ollama, "http://127.0.0.1:11434/api"),
    ];
    for (dialect, base) in bases {
        let plain =
            request(dialect, dialect.base_url().unwrap(), &Chat::user("hi"), Mode::Complete);
        let rooted = request(dialect, base, &Chat::user("hi"), Mode::Complete);
        assert_eq!(plain.uri(), rooted.uri());
    }
}

#[test]
fn names_are_escaped_where_they_are_part_of_an_address() {
    let uri = |dialect, model: &str| {
        let target = Target::new(dialect, "http://host", model, &Credential::none()).unwrap();
        let target = target.api_version("2025-01-01 preview");
        target.encode(&Chat::user("hi")).unwrap().uri().to_string()
    };
    assert_eq!(
        uri(Dialect::Azure, "my/model ä?"),
        "http://host/openai/deployments/my%2Fmodel%20%C3%A4%3F/chat/completions\
         ?api-version=2025-01-01%20preview"
    );
    let gemini = "http://host/v1beta/models/gemini-2.5:generateContent";
    assert_eq!(uri(Dialect::Gemini, "models/gemini-2.5"), gemini);
}

#[test]
fn key_is_sent_in_the_right_header_and_not_shown() {
    let fields = [
        (Dialect::OpenAi, "authorization", "Bearer secret-key"),
        (Dialect::Azure, "api-key", "secret-key"),
        (Dialect::Anthropic, "x-api-key", "secret-key"),
        (Dialect::Gemini, "x-goog-api-key", "secret-key"),
        (Dialect::Ollama, "authorization", "Bearer secret-key"),
    ];
    for (dialect, name, value) in fields {
        let request = request(dialect, "http://host", &Chat::user("hi"), Mode::Complete);
        assert_eq!(request.headers()[name], value);
        assert_eq!(request.headers()["content-type"], "application/json");
        assert!(!format!("{:?}", request.headers()).contains("secret"));
        let target = Target::new(dialect, "http://host", "m", &Credential::none()).unwrap();
        assert!(!target.encode(&Chat::user("hi")).unwrap().headers().contains_key(name));
        assert!(format!("{target:?}").contains("http://host"));
    }
    let anthropic = request(Dialect::Anthropic, "http://host", &Chat::user("hi"), Mode::Complete);
    assert_eq!(anthropic.headers()["anthropic-version"], "2023-06-01");
    let target = Target::new(Dialect::Anthropic, "http://host", "m", &Credential::none()).unwrap();
    let beta = HeaderName::from_static("anthropic-beta");
    let target = target.header(beta, HeaderValue::from_static("context-1m"));
    let request = target.encode(&Chat::user("hi")).unwrap();
    assert_eq!(request.headers()["anthropic-beta"], "context-1m");
}
