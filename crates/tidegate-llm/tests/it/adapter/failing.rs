//! Failed, truncated and malformed responses.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tidegate_llm::adapter::Adapter;
use tidegate_llm::{Call, CallError, CallResponse, ConnectionFailure};
use tidegate_providers::request::{RequestError, Target};
use tidegate_providers::response::DecodeError;
use tidegate_providers::{
    Chat, Class, Credential, Dialect, Event, Message, Reply, StopReason, ToolCall,
};
use tidegate_sim::{Account, CallEnding, Delay, Fault, Hint, Limits};
use tokio::time::Instant;
use tower::{ServiceExt as _, service_fn};

use super::{DIALECTS, account, adapter, call, send, simulator, target};

const SECOND: Duration = Duration::from_secs(1);

/// Reads a response until it fails.
async fn until_error(mut answer: CallResponse) -> (Reply, CallError) {
    let mut reply = Reply::default();
    loop {
        match answer.next().await.unwrap() {
            Ok(event) => reply.add(event),
            Err(error) => {
                assert!(answer.next().await.is_none(), "the stream ends after an error");
                return (reply, error);
            }
        }
    }
}

fn connection_failure(error: &CallError) -> Option<ConnectionFailure> {
    match error {
        CallError::Connection { kind, .. } => Some(*kind),
        _ => None,
    }
}

/// Calls an adapter whose HTTP service returns this body.
async fn call_with_body(
    dialect: Dialect,
    body: impl Into<Bytes>,
) -> Result<CallResponse, CallError> {
    let body: Bytes = body.into();
    let http = service_fn(move |_| {
        let response = Response::new(Full::new(body.clone()));
        async move { Ok::<_, Infallible>(response) }
    });
    Adapter::new(http, "sim", target(dialect, "http://sim", &[])).oneshot(call().streamed()).await
}

#[tokio::test(start_paused = true)]
async fn truncated_stream_is_an_error_after_its_events() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        simulator.inject("main", Fault::Cut { after: 3 }, 1).unwrap();
        let answer = send(&adapter(&simulator, dialect), call().streamed()).await.unwrap();
        let (reply, error) = until_error(answer).await;
        assert_eq!(reply.text, "the sea ran ", "{dialect:?}");
        assert_eq!(connection_failure(&error), Some(ConnectionFailure::Closed), "{dialect:?}");
        assert!(error.was_sent());
    }
}

#[tokio::test]
async fn stream_without_its_end_marker_is_truncated() {
    let cut = [
        (Dialect::OpenAi, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"),
        (Dialect::OpenAi, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"cho"),
        (
            Dialect::Anthropic,
            "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n",
        ),
        (
            Dialect::Gemini,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}]}\r\n\r\n",
        ),
        (Dialect::Ollama, "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"mess"),
    ];
    for (dialect, body) in cut {
        let (reply, error) = until_error(call_with_body(dialect, body).await.unwrap()).await;
        assert_eq!(reply.text, "a", "{dialect:?}");
        assert_eq!(connection_failure(&error), Some(ConnectionFailure::Closed), "{dialect:?}");
    }
    let error = call_with_body(Dialect::OpenAi, "").await.unwrap_err();
    assert_eq!(
        connection_failure(&error),
        Some(ConnectionFailure::Closed),
        "an empty body is truncated"
    );
}

#[tokio::test(start_paused = true)]
async fn truncated_response_in_one_piece_is_an_error() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        simulator.inject("main", Fault::Cut { after: 3 }, 1).unwrap();
        let error = send(&adapter(&simulator, dialect), call()).await.unwrap_err();
        assert_eq!(connection_failure(&error), Some(ConnectionFailure::Closed), "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_in_a_stream_is_a_failure_of_the_provider() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        simulator.inject("main", Fault::StreamError { after: 2 }, 1).unwrap();
        let answer = send(&adapter(&simulator, dialect), call().streamed()).await.unwrap();
        let id = answer.request_id().map(str::to_owned);
        let (reply, error) = until_error(answer).await;
        assert_eq!(reply.text, "the sea ", "{dialect:?}");
        let failure = error.failure().unwrap();
        assert_eq!((failure.status.as_u16(), failure.provider.as_str()), (200, "sim"));
        assert_eq!(failure.request_id, id, "{dialect:?}");
        assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Broken);
    }
}

#[tokio::test(start_paused = true)]
async fn error_before_the_first_word_fails_the_call() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        simulator.inject("main", Fault::StreamError { after: 0 }, 1).unwrap();
        let error = send(&adapter(&simulator, dialect), call().streamed()).await.unwrap_err();
        assert!(error.failure().is_some(), "{dialect:?}");
    }
}

#[tokio::test]
async fn errors_are_recognized_in_every_form() {
    let forms = [
        (Dialect::Ollama, "{\"error\":\"the runner has stopped\"}\n"),
        (Dialect::Gemini, "[{\n \"error\": {\"code\": 503, \"status\": \"UNAVAILABLE\"}\n}\n]"),
        (Dialect::Gemini, "data: [{\"error\":{\"code\":503}}]\n\n"),
        (Dialect::Gemini, "{\n  \"error\": {\"code\": 503}\n}\n"),
        (Dialect::OpenAi, "{\"error\":{\"message\":\"no\",\"type\":\"server_error\"}}"),
        (Dialect::Mistral, "data: {\"object\":\"error\",\"type\":\"internal_server_error\"}\n\n"),
        (Dialect::OpenRouter, "data: {\"choices\":[{\"finish_reason\":\"error\"}]}\n\n"),
        (Dialect::Anthropic, "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n"),
    ];
    for (dialect, body) in forms {
        let error = call_with_body(dialect, body).await.unwrap_err();
        assert!(error.failure().is_some(), "{dialect:?} {body}: {error:?}");
    }
}

#[tokio::test]
async fn response_that_is_not_streamed_is_decoded() {
    let body = "{\"choices\":[{\"message\":{\"content\":\"Elbe\"},\n\"finish_reason\":\"stop\"}]}";
    let reply =
        call_with_body(Dialect::Compatible, body).await.unwrap().into_reply().await.unwrap();
    assert_eq!((reply.text.as_str(), reply.stop), ("Elbe", Some(StopReason::End)));
}

#[tokio::test(start_paused = true)]
async fn malformed_json_cannot_be_decoded() {
    for (sim, dialect) in DIALECTS {
        for call in [call(), call().streamed()] {
            let simulator = simulator(account(sim));
            simulator.inject("main", Fault::Malformed, 1).unwrap();
            let error = send(&adapter(&simulator, dialect), call).await.unwrap_err();
            assert!(matches!(error, CallError::InvalidResponse { .. }), "{dialect:?}: {error:?}");
            assert_eq!(error.class(), Class::Transient);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_start_times_out() {
    for call in [call(), call().streamed()] {
        let simulator = simulator(account(tidegate_sim::Dialect::OpenAi));
        simulator.inject("main", Fault::SlowStart(SECOND * 130), 1).unwrap();
        let started = Instant::now();
        let adapter = adapter(&simulator, Dialect::OpenAi);
        let error = send(&adapter, call.clone()).await.unwrap_err();
        assert_eq!(connection_failure(&error), Some(ConnectionFailure::TimedOut));
        assert_eq!(started.elapsed(), SECOND * 120, "two minutes by default");
        simulator.inject("main", Fault::SlowStart(SECOND * 130), 1).unwrap();
        send(&adapter.timeout(SECOND * 140), call).await.unwrap().into_reply().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn gap_in_a_stream_times_out() {
    let account = account(tidegate_sim::Dialect::Ollama).per_token(Delay::fixed(SECOND * 30));
    let simulator = simulator(account);
    let adapter = adapter(&simulator, Dialect::Ollama);
    let with_longer_timeout = adapter.clone().timeout(SECOND * 31);
    // The whole stream takes longer than the timeout, but no gap does.
    let answer = send(&with_longer_timeout, call().streamed()).await.unwrap();
    assert_eq!(answer.into_reply().await.unwrap().usage.unwrap().output, 10);
    let answer = send(&adapter.timeout(SECOND * 29), call().streamed()).await.unwrap();
    let started = Instant::now();
    let (reply, error) = until_error(answer).await;
    assert_eq!(
        (reply.text.as_str(), connection_failure(&error)),
        ("the ", Some(ConnectionFailure::TimedOut))
    );
    assert_eq!(started.elapsed(), SECOND * 29);
}

#[tokio::test(start_paused = true)]
async fn keep_alives_extend_the_wait() {
    let account = Account::new(tidegate_sim::Dialect::DeepSeek, "main", "secret-key")
        .model("m", Limits::new().concurrency(1))
        .first_token(Delay::fixed(SECOND * 25));
    let simulator = simulator(account);
    // Up to 35 seconds may pass between the last keep-alive and the first word.
    let adapter = adapter(&simulator, Dialect::DeepSeek).timeout(SECOND * 36);
    let calls = [call(), call().streamed(), call(), call().streamed()];
    let answers = calls.map(|call| async {
        send(&adapter, call).await.unwrap().into_reply().await.unwrap().usage.unwrap().output
    });
    assert_eq!(futures_util::future::join_all(answers).await, [10; 4]);
    assert_eq!(simulator.elapsed(), SECOND * 100, "the calls ran one after the other");
}

#[tokio::test(start_paused = true)]
async fn refused_and_reset_connections_are_distinguished() {
    let simulator = simulator(account(tidegate_sim::Dialect::OpenAi));
    let adapter = adapter(&simulator, Dialect::OpenAi);
    simulator.inject("main", Fault::Reset, 1).unwrap();
    let error = send(&adapter, call()).await.unwrap_err();
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Closed), true)
    );
    simulator.refuse_connections(SECOND);
    let error = send(&adapter, call()).await.unwrap_err();
    assert_eq!(
        (connection_failure(&error), error.was_sent()),
        (Some(ConnectionFailure::Refused), false)
    );
}

#[tokio::test(start_paused = true)]
async fn failure_has_status_and_request_id() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        let fault = match dialect {
            Dialect::Ollama => Fault::Overloaded,
            _ => Fault::LockOut { length: SECOND, hint: Hint::Sent },
        };
        simulator.inject("main", fault, 1).unwrap();
        let error = send(&adapter(&simulator, dialect), call().streamed()).await.unwrap_err();
        let failure = error.failure().unwrap();
        let status = if dialect == Dialect::Ollama { 503 } else { 429 };
        assert_eq!(failure.status.as_u16(), status, "{dialect:?}");
        let id = match dialect {
            Dialect::OpenAi | Dialect::Compatible | Dialect::Anthropic | Dialect::Groq => {
                Some("req_sim_1")
            }
            Dialect::Azure => Some("sim-1"),
            _ => None,
        };
        assert_eq!(failure.request_id.as_deref(), id, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn check_size_rejects_large_requests_without_sending() {
    let simulator = simulator(account(tidegate_sim::Dialect::Anthropic));
    let adapter = adapter(&simulator, Dialect::Anthropic).check_size();
    let large = Call::new(Chat::user("x".repeat(32 << 20)));
    let error = send(&adapter, large).await.unwrap_err();
    assert_eq!(error.class(), Class::TooLarge);
    assert!(!error.class().is_retryable());
    assert_eq!(error.failure().unwrap().kind.as_deref(), Some("request_too_large"));
    assert_eq!(simulator.ledger().seen(), 0);
    let _ = send(&adapter, call()).await.unwrap();
    assert_eq!(simulator.ledger().seen(), 1);
}

#[tokio::test]
async fn oversized_response_is_rejected() {
    let http = service_fn(|_| {
        let body = Full::new(Bytes::from(vec![b' '; (64 << 20) + 1]));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let adapter = Adapter::new(http, "sim", target(Dialect::OpenAi, "http://sim", &[]));
    let CallError::InvalidResponse { source, .. } = adapter.oneshot(call()).await.unwrap_err()
    else {
        panic!("the response was accepted");
    };
    let error = source.downcast::<DecodeError>().unwrap();
    assert!(matches!(*error, DecodeError::TooLarge { limit: 67_108_864 }));
}

#[tokio::test(start_paused = true)]
async fn endless_error_body_does_not_hide_the_status() {
    let http = service_fn(|_| async {
        let pieces = std::iter::repeat_n(Bytes::from(vec![b' '; 1 << 19]), 2);
        let pieces = futures_util::stream::iter(pieces.map(|piece| Ok(Frame::data(piece))));
        let endless = futures_util::StreamExt::chain(pieces, futures_util::stream::pending());
        let mut response = Response::new(StreamBody::new(endless).boxed_unsync());
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        Ok::<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible>(response)
    });
    let adapter = Adapter::new(http, "sim", target(Dialect::OpenAi, "http://sim", &[]));
    let started = Instant::now();
    let error = adapter.oneshot(call().streamed()).await.unwrap_err();
    assert_eq!(error.failure().unwrap().status.as_u16(), 502);
    assert_eq!(started.elapsed(), SECOND * 5, "the status is known; the body is not worth more");
}

#[tokio::test(start_paused = true)]
async fn finished_stream_does_not_wait_for_the_connection_to_close() {
    let http = service_fn(|_| async {
        let frames = "data: {\"choices\":[{\"delta\":{\"content\":\"Elbe\"}}]}\n\ndata: [DONE]\n\n";
        let frames = futures_util::stream::iter([Ok::<_, Infallible>(Frame::data(frames.into()))]);
        let body = futures_util::StreamExt::chain(frames, futures_util::stream::pending());
        Ok::<_, Infallible>(Response::new(StreamBody::new(body).boxed_unsync()))
    });
    let adapter = Adapter::new(http, "sim", target(Dialect::OpenAi, "http://sim", &[]));
    let started = Instant::now();
    let mut answer = adapter.oneshot(call().streamed()).await.unwrap();
    assert_eq!(answer.next().await.unwrap().unwrap(), Event::Text("Elbe".into()));
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(answer.next().await.is_none());
    assert_eq!(started.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn chat_that_cannot_be_encoded_is_not_sent() {
    let simulator = simulator(account(tidegate_sim::Dialect::Gemini));
    let tool_call =
        ToolCall { name: "rivers".into(), arguments: "[no object]".into(), ..Default::default() };
    let message = Message::Assistant { text: String::new(), calls: vec![tool_call] };
    let call = Call::new(Chat::new([message]));
    let error = send(&adapter(&simulator, Dialect::Gemini), call).await.unwrap_err();
    assert!(matches!(error, CallError::InvalidRequest { .. }));
    assert_eq!((error.class(), simulator.ledger().seen()), (Class::BadRequest, 0));
}

#[test]
fn invalid_targets_are_rejected_with_the_reason() {
    let new = |url: &str| {
        let key = Credential::none();
        Target::new(Dialect::Compatible, url, "m", &key).map(drop)
    };
    assert_eq!(new("https://host:8000/v1/"), Ok(()));
    assert_eq!(new("http://"), Err(RequestError::InvalidBaseUrl));
    assert_eq!(new("no url at all"), Err(RequestError::InvalidBaseUrl));
    assert_eq!(new("api.openai.com"), Err(RequestError::BaseUrlWithoutHost));
    assert_eq!(new("/v1"), Err(RequestError::BaseUrlWithoutHost));
    assert_eq!(new("ftp://host"), Err(RequestError::BaseUrlWithoutHost));
    assert_eq!(new("https://host/v1?key=x"), Err(RequestError::BaseUrlWithQuery));
    assert_eq!(new("https://me:secret@host/v1"), Err(RequestError::BaseUrlWithCredentials));
    let key = Credential::new("two\nlines");
    let target = Target::new(Dialect::OpenAi, "http://host", "m", &key);
    assert_eq!(target.unwrap_err(), RequestError::InvalidCredential);
    let mock = Target::new(Dialect::Mock, "http://host", "m", &key);
    assert_eq!(mock.unwrap_err(), RequestError::Mock);
}
