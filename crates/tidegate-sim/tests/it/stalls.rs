//! Responses that stop, and requests without a response.

use std::time::Duration;

use tidegate_sim::{
    CallEnding, Charging, Delay, Dialect, Fault, LedgerEntry, Limits, RefusalCause, Simulator,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::client::{Call, DIALECTS, account, simulator, with};

const SECOND: Duration = Duration::from_secs(1);

fn streamed(dialect: Dialect) -> Call {
    match dialect {
        Dialect::Gemini => {
            Call::new(dialect).path("/v1beta/models/m:streamGenerateContent?alt=sse")
        }
        _ => Call::new(dialect).field("stream", true),
    }
}

/// Waits until the first call has ended and returns its entry.
async fn first_ended_entry(simulator: &Simulator) -> LedgerEntry {
    loop {
        let entry = simulator.ledger().entries().remove(0);
        if entry.ending != CallEnding::Open {
            return entry;
        }
        sleep(SECOND / 100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_stream_stops_after_the_given_tokens() {
    for dialect in DIALECTS {
        let simulator = simulator(dialect, Limits::new());
        simulator.inject("main", Fault::Stall { after: 3 }, 1).unwrap();
        let began = Instant::now();
        let connection = simulator.connect().unwrap();
        let call = streamed(dialect).output(10);
        let response = call.send_until_idle(connection, SECOND * 3_600).await.unwrap();
        assert_eq!((response.status, response.is_complete), (200, false), "{dialect}");
        assert_eq!(began.elapsed(), SECOND * 3_600, "{dialect}: the connection stays open");
        for (word, sent_text) in [("the ", true), ("sea ", true), ("ran ", true), ("out ", false)] {
            assert_eq!(response.body.contains(word), sent_text, "{dialect} {word}");
        }
        let entry = first_ended_entry(&simulator).await;
        assert_eq!((entry.status, entry.ending), (Some(200), CallEnding::Stalled), "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn stall_withholds_the_end_of_the_stream() {
    for (after, sent_text) in [(0, ""), (99, "the sea ")] {
        let simulator = simulator(Dialect::OpenAi, Limits::new());
        simulator.inject("main", Fault::Stall { after }, 1).unwrap();
        let call = streamed(Dialect::OpenAi).output(2);
        let connection = simulator.connect().unwrap();
        let response = call.send_until_idle(connection, SECOND).await.unwrap();
        let words: String = response
            .events()
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!((words.as_str(), response.is_complete), (sent_text, false));
        assert!(!response.body.contains("[DONE]"));
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_whole_response_sends_half() {
    for dialect in DIALECTS {
        let simulator = simulator(dialect, Limits::new());
        let call = Call::new(dialect).output(50);
        simulator.inject("main", Fault::Stall { after: 0 }, 1).unwrap();
        let began = Instant::now();
        let connection = simulator.connect().unwrap();
        let half = call.send_until_idle(connection, SECOND * 60).await.unwrap();
        assert_eq!((half.status, half.is_complete), (200, false), "{dialect}");
        assert_eq!(began.elapsed(), SECOND * 60, "{dialect}: the connection stays open");
        assert_eq!(first_ended_entry(&simulator).await.ending, CallEnding::Stalled, "{dialect}");
        let whole = call.send(&simulator).await;
        assert_eq!(half.body.len(), whole.body.len() / 2, "{dialect}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_fault_keeps_the_connection_open() {
    for dialect in DIALECTS {
        for call in [Call::new(dialect), streamed(dialect)] {
            let simulator = simulator(dialect, Limits::new());
            simulator.inject("main", Fault::Silent, 1).unwrap();
            let began = Instant::now();
            let connection = simulator.connect().unwrap();
            let response = call.send_until_idle(connection, SECOND * 3_600).await;
            assert!(response.is_none(), "{dialect}: {response:?}");
            assert_eq!(began.elapsed(), SECOND * 3_600, "{dialect}");
            let entry = first_ended_entry(&simulator).await;
            assert_eq!((entry.status, entry.ending), (None, CallEnding::Stalled), "{dialect}");
            assert_eq!(call.send(&simulator).await.status, 200);
            assert!(simulator.ledger().entries()[1].is_retry, "{dialect}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_the_caller_disconnects() {
    for fault in [Fault::Stall { after: 3 }, Fault::Silent] {
        let rule = Charging::of(Dialect::OpenAi).refund_unused();
        let limits = Limits::new().concurrency(1).tokens_per_minute(1_000);
        let simulator = with(account(Dialect::OpenAi, limits).charging(rule));
        simulator.inject("main", fault, 1).unwrap();
        let call = streamed(Dialect::OpenAi).field("max_tokens", 98).output(10);
        let (stalled, connection) = (call.clone(), simulator.connect().unwrap());
        let caller =
            tokio::spawn(async move { stalled.send_until_idle(connection, SECOND * 30).await });
        sleep(SECOND * 29).await;
        assert_eq!(call.send(&simulator).await.status, 429);
        let refused = simulator.ledger().entries().pop().unwrap();
        assert_eq!(refused.refusal, Some(RefusalCause::Concurrency));
        caller.await.unwrap();
        let entry = first_ended_entry(&simulator).await;
        assert!((SECOND * 30..SECOND * 31).contains(&entry.ended.unwrap()), "{entry:?}");
        let sent = if fault == Fault::Silent { 0 } else { 3 };
        assert_eq!((entry.charged.input, entry.charged.output), (2, sent), "what was sent");
        assert_eq!(call.send(&simulator).await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn queued_call_can_stall() {
    for fault in [Fault::Stall { after: 0 }, Fault::Silent] {
        let account = account(Dialect::DeepSeek, Limits::new().concurrency(1));
        let simulator = with(account.first_token(Delay::fixed(SECOND * 25)));
        let call = Call::new(Dialect::DeepSeek).output(50);
        let (first, server) = (call.clone(), simulator.clone());
        let running = tokio::spawn(async move { first.send(&server).await });
        sleep(SECOND).await;
        simulator.inject("main", fault, 1).unwrap();
        let connection = simulator.connect().unwrap();
        let response = call.send_until_idle(connection, SECOND * 60).await;
        // A silent call sends no keep-alives either.
        let expected = (fault != Fault::Silent).then_some(false);
        assert_eq!(response.map(|response| response.is_complete), expected, "{fault:?}");
        assert!(running.await.unwrap().is_complete);
        assert_eq!(call.send(&simulator).await.status, 200, "the slot is free again");
        assert_eq!(simulator.ledger().entries()[1].ending, CallEnding::Stalled);
    }
}

#[tokio::test(start_paused = true)]
async fn disconnect_before_the_stall_is_abandoned() {
    let account = account(Dialect::OpenAi, Limits::new()).per_token(Delay::fixed(SECOND * 10));
    let simulator = with(account);
    simulator.inject("main", Fault::Stall { after: 3 }, 1).unwrap();
    let connection = simulator.connect().unwrap();
    let call = streamed(Dialect::OpenAi).output(10);
    call.send_until_idle(connection, SECOND).await.unwrap();
    assert_eq!(first_ended_entry(&simulator).await.ending, CallEnding::Abandoned);
}

#[tokio::test]
async fn disconnect_is_noticed_on_a_socket() {
    for fault in [Fault::Stall { after: 1 }, Fault::Silent] {
        let simulator = simulator(Dialect::Anthropic, Limits::new());
        simulator.inject("main", fault, 1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = simulator.clone();
        let serving = tokio::spawn(async move { server.serve(listener).await });
        let connection = TcpStream::connect(address).await.unwrap();
        streamed(Dialect::Anthropic).send_until_idle(connection, SECOND / 5).await;
        assert_eq!(first_ended_entry(&simulator).await.ending, CallEnding::Stalled);
        serving.abort();
    }
}
