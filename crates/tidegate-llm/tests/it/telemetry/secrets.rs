//! Logs, metrics and `Debug` output never contain a prompt, a reply or a key.
//!
//! A model with all modules is called with unique words, at providers that quote them in their
//! errors. All output is then searched for these words.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tidegate_llm::mock::Step;
use tidegate_llm::models::{Model, Models, Profile};
use tidegate_llm::settings::RetrySettings;
use tidegate_llm::telemetry::{Observer, tracing_observer};
use tidegate_llm::{Call, CallResponse};
use tidegate_providers::{Chat, Credential, Event, Message, Reply, Tool, ToolCall};
use tower::service_fn;
use tracing::Level;

use crate::log::Log;

const KEY: &str = "sk-hippopotamus";
const PROMPT: &str = "marmalade";
const ANSWER: &str = "zeppelin";

/// Returns whether a text contains one of the secrets.
fn contains_secret(text: &str) -> bool {
    [KEY, PROMPT, ANSWER].iter().any(|secret| text.contains(secret))
}

#[derive(Default)]
struct Output(Vec<String>);

impl Output {
    fn debug(&mut self, value: &impl Debug) {
        self.0.push(format!("{value:?}"));
        self.0.push(format!("{value:#?}"));
    }
}

/// Returns the `number`th response of a provider. Most are errors that quote the request and its
/// key.
fn answer(number: usize) -> Response<Full<Bytes>> {
    let quoting = format!("cannot answer {PROMPT:?} with the key {KEY}");
    let (status, body) = match number % 4 {
        0 => (StatusCode::TOO_MANY_REQUESTS, error(&quoting, "rate_limit_exceeded")),
        1 => (StatusCode::INTERNAL_SERVER_ERROR, error(&quoting, "server_error")),
        2 => (StatusCode::UNAUTHORIZED, error(&quoting, "invalid_api_key")),
        _ => (StatusCode::OK, completion()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

fn error(message: &str, code: &str) -> String {
    serde_json::json!({ "error": { "message": message, "type": code, "code": code } }).to_string()
}

fn completion() -> String {
    let message = serde_json::json!({ "role": "assistant", "content": ANSWER });
    let choices = serde_json::json!([{ "message": message, "finish_reason": "stop" }]);
    serde_json::json!({ "choices": choices }).to_string()
}

/// A registry of providers that check the key and cycle through the responses.
fn registry(observer: Arc<dyn Observer>) -> Models {
    let count = Arc::new(AtomicUsize::new(0));
    let http = service_fn(move |request: Request<Full<Bytes>>| {
        let is_key = |value: &HeaderValue| value.as_bytes().ends_with(KEY.as_bytes());
        assert!(request.headers().values().any(is_key), "the provider gets it");
        ready(Ok::<_, Infallible>(answer(count.fetch_add(1, Ordering::Relaxed))))
    });
    let profile = || Profile::new().credential(Credential::new(KEY)).model("large");
    let names = ["openai", "groq", "mistral"].into_iter();
    let builder = Models::builder().http(http).observer(observer);
    names.fold(builder, |builder, name| builder.provider(name, profile())).build()
}

fn load(models: &Models, output: &mut Output) -> Model {
    let builder = models
        .load_model("openai", None)
        .rate_limit(true)
        .retry(RetrySettings::new().max_retries(2))
        .fallback_to(["groq", "mistral/small"]);
    output.debug(&builder);
    builder.build().unwrap()
}

fn call() -> Call {
    let chat = Chat::user(PROMPT).system(PROMPT).message(Message::assistant(ANSWER));
    Call::new(chat.extra("user", PROMPT))
}

/// Makes calls that fail, are retried, fall back and succeed, streamed and not. Returns the number
/// of successes.
async fn run(models: &Models, output: &mut Output) -> usize {
    let model = load(models, output);
    let mut answered = 0;
    for _ in 0..40 {
        let call = call();
        output.debug(&call);
        match model.invoke(call.clone()).await {
            Ok(reply) => {
                assert_eq!(reply.text, ANSWER);
                answered += 1;
            }
            Err(error) => {
                output.debug(&error);
                let mut cause: Option<&dyn std::error::Error> = Some(&error);
                while let Some(error) = cause {
                    output.0.push(error.to_string());
                    cause = error.source();
                }
            }
        }
        if let Ok(answer) = model.stream(call).await {
            output.debug(&answer);
        }
    }
    output.debug(&model);
    output.debug(models);
    output.debug(model.account().unwrap());
    output.debug(&model.account().unwrap().reserve("large", &call()).await.unwrap());
    answered
}

/// Collects the `Debug` output of all types that contain text.
fn debug_all(output: &mut Output) {
    let words = || ANSWER.to_owned();
    let part = ToolCall { arguments: words(), signature: Some(words()), ..ToolCall::default() };
    let reasoning = Event::Reasoning(words());
    let events = [Event::Text(words()), reasoning, Event::ToolCall { index: 0, part }];
    let mut reply = Reply::default();
    events.iter().cloned().for_each(|event| reply.add(event));
    let about = Some(PROMPT.to_owned());
    let tool = Tool { name: "t".into(), description: about, parameters: PROMPT.into() };
    let content = PROMPT.to_owned();
    let result = Message::Tool { id: "1".into(), name: "t".into(), content };
    let called = Message::Assistant { text: words(), calls: reply.calls.clone() };
    let chat = Chat::user(PROMPT).system(PROMPT).message(called).message(result);
    output.debug(&chat.tool(tool).stop(PROMPT).extra("user", PROMPT));
    output.debug(&events);
    output.debug(&CallResponse::complete("openai".into(), reply.clone()));
    output.debug(&Step::from_reply(reply.clone()));
    output.debug(&reply);
}

#[test]
fn debug_output_of_chats_and_replies_contains_no_text() {
    let mut output = Output::default();
    debug_all(&mut output);
    for text in &output.0 {
        assert!(!contains_secret(text), "{text}");
    }
    assert_eq!(format!("{:?}", Message::user("four")), "User(4 bytes)");
}

#[tokio::test(start_paused = true)]
async fn log_contains_no_prompt_reply_or_key() {
    let log = Log::default();
    let _listening = log.listen_from(Level::TRACE);
    let mut output = Output::default();
    let answered = run(&registry(tracing_observer()), &mut output).await;
    assert!(answered >= 10, "{answered}");
    let lines = log.lines();
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(has("backing off") && has("falling back") && has("rate_limit.acquire"), "{lines:#?}");
    for text in output.0.iter().chain(&lines) {
        assert!(!contains_secret(text), "{text}");
    }
}

#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn metrics_contain_no_prompt_reply_or_key() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (scrape, _local) = (recorder.handle(), metrics::set_default_local_recorder(&recorder));
    let measured = tidegate_llm::telemetry::metrics_observer();
    run(&registry(measured), &mut Output::default()).await;
    let rendered = scrape.render();
    assert!(rendered.contains("retry_delay") && rendered.contains("rate_limit_hits"), "{rendered}");
    assert!(!contains_secret(&rendered), "{rendered}");
}
