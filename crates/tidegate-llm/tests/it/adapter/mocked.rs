//! The mock, as programs use it in their tests.

use std::time::Duration;

use tidegate_llm::mock::{Mock, Step};
use tidegate_llm::{Call, ConnectionFailure};
use tidegate_providers::{Chat, Class, Event, Failure, Reply, StopReason, ToolCall, Usage};
use tokio::time::Instant;
use tower::ServiceExt as _;

fn call(text: &str) -> Call {
    Call::new(Chat::user(text))
}

#[tokio::test(start_paused = true)]
async fn mock_follows_its_script_then_repeats_the_default() {
    let mock = Mock::new("mock")
        .then(Step::fail(Class::RateLimited { after: None, dimension: None }))
        .then(Step::connection_failure(ConnectionFailure::NotConnected))
        .then(Step::reply("first"));
    let class = mock.clone().oneshot(call("a")).await.unwrap_err().class();
    assert_eq!(class, Class::RateLimited { after: None, dimension: None });
    let error = mock.clone().oneshot(call("b")).await.unwrap_err();
    assert!(!error.was_sent());
    for text in ["first", "This is a mock.", "This is a mock."] {
        let reply = mock.clone().oneshot(call("c")).await.unwrap().into_reply().await.unwrap();
        assert_eq!(reply.text, text);
    }
    assert_eq!(mock.call_count(), 5);
}

#[tokio::test]
async fn mock_records_its_calls() {
    let mock = Mock::new("mock");
    let chat = Chat::user("A river?").system("Be brief.").max_tokens(5);
    let _ = mock.clone().oneshot(Call::new(chat.clone()).streamed()).await.unwrap();
    let calls = mock.calls();
    assert_eq!((calls[0].chat(), calls[0].is_streamed()), (&chat, true));
    for _ in 0..2_000 {
        let _ = mock.clone().oneshot(call("more")).await.unwrap();
    }
    assert_eq!((mock.calls().len(), mock.call_count()), (1_024, 2_001));
    assert_eq!(mock.calls()[0].chat(), &Chat::user("more"), "the oldest calls are dropped");
}

#[tokio::test(start_paused = true)]
async fn stream_arrives_word_by_word() {
    let second = Duration::from_secs(1);
    let mut reply = Reply::default();
    reply.text = "one two".into();
    reply.calls = vec![ToolCall { name: "length".into(), ..ToolCall::default() }];
    let mock = Mock::new("mock").then(Step::from_reply(reply).after(second * 5).pause(second));
    let started = Instant::now();
    let mut answer = mock.oneshot(call("hi there").streamed()).await.unwrap();
    assert_eq!(started.elapsed(), second * 5);
    let mut events = Vec::new();
    while let Some(event) = answer.next().await {
        events.push((started.elapsed().as_secs(), event.unwrap()));
    }
    let part = ToolCall { name: "length".into(), ..ToolCall::default() };
    let usage = Usage { input: 6, output: 2, ..Usage::default() };
    let expected = [
        (6, Event::Text("one ".into())),
        (7, Event::Text("two".into())),
        (8, Event::ToolCall { index: 0, part }),
        (9, Event::Usage(usage)),
        (10, Event::Stop(StopReason::Tools)),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn response_can_fail_after_its_words() {
    let steps = [
        (Step::reply("one two").then_disconnects(ConnectionFailure::Closed), Class::Transient),
        (Step::reply("one two").then_fails(Class::Overloaded), Class::Overloaded),
    ];
    for (step, class) in steps {
        let mock = Mock::new("mock").always(step);
        let error = mock.clone().oneshot(call("whole")).await.unwrap_err();
        assert_eq!(error.class(), class);
        let mut answer = mock.oneshot(call("streamed").streamed()).await.unwrap();
        for word in ["one ", "two"] {
            assert_eq!(answer.next().await.unwrap().unwrap(), Event::Text(word.into()));
        }
        let error = answer.next().await.unwrap().unwrap_err();
        assert_eq!(error.class(), class);
        assert!(error.failure().is_none_or(|failure| failure.status.is_success()));
        assert!(answer.next().await.is_none());
    }
}

#[tokio::test]
async fn failure_is_returned_unchanged() {
    let status = http::StatusCode::IM_A_TEAPOT;
    let mut failure = Failure::new("other".into(), Class::BadRequest, status);
    failure.kind = Some("teapot".into());
    let error = Mock::new("mock").then(Step::failure(failure)).oneshot(call("")).await.unwrap_err();
    assert_eq!(error.to_string(), "other answered 418 teapot");
}
