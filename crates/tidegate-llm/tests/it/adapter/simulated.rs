//! Every dialect against the simulator.

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::adapter::Adapter;
use tidegate_providers::{Chat, Dialect, Event, Reply, StopReason, Usage};
use tidegate_sim::{CallEnding, Delay, Output};
use tokio::time::Instant;

use super::{DIALECTS, account, adapter, call, send, simulator, target};
use crate::wire;

const HEADERS: [(&str, &str); 3] =
    [("x-sim-output-tokens", "3"), ("x-sim-input-tokens", "12"), ("x-sim-cached-tokens", "5")];

async fn reply(sim: tidegate_sim::Dialect, dialect: Dialect, call: Call) -> Reply {
    let simulator = simulator(account(sim));
    let target = target(dialect, "http://sim/", &HEADERS);
    let answer = send(&Adapter::new(wire::http(&simulator), "sim", target), call).await.unwrap();
    let reply = answer.into_reply().await.unwrap();
    assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Complete, "{dialect:?}");
    reply
}

#[tokio::test(start_paused = true)]
async fn whole_and_streamed_replies_are_equal_in_every_dialect() {
    for (sim, dialect) in DIALECTS {
        let whole = reply(sim, dialect, call()).await;
        assert_eq!(whole.text, "the sea ran ", "{dialect:?}");
        assert_eq!(whole.stop, Some(StopReason::End), "{dialect:?}");
        let usage = Usage { input: 12, output: 3, cache_read: 5, ..Usage::default() };
        assert_eq!(whole.usage, Some(usage), "{dialect:?}");
        assert_eq!(reply(sim, dialect, call().streamed()).await, whole, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn max_tokens_is_sent_in_every_dialect() {
    for (sim, dialect) in DIALECTS {
        let call = Call::new(Chat::user("12345678").max_tokens(2));
        for call in [call.clone(), call.streamed()] {
            let reply = reply(sim, dialect, call).await;
            assert_eq!(reply.stop, Some(StopReason::Length), "{dialect:?}");
            assert_eq!(reply.usage.unwrap().output, 2, "{dialect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stream_is_returned_with_its_first_word() {
    let second = Duration::from_secs(1);
    let account = account(tidegate_sim::Dialect::Anthropic)
        .first_token(Delay::fixed(second * 5))
        .per_token(Delay::fixed(second));
    let simulator = simulator(account);
    let started = Instant::now();
    let call = call().streamed();
    let mut answer = send(&adapter(&simulator, Dialect::Anthropic), call).await.unwrap();
    assert_eq!(started.elapsed(), second * 5);
    assert_eq!(answer.request_id(), Some("req_sim_1"));
    let mut texts = Vec::new();
    let mut last = None;
    while let Some(event) = answer.next().await {
        last = Some(event.unwrap());
        if let Some(Event::Text(text)) = &last {
            texts.push((text.clone(), started.elapsed().as_secs()));
        }
    }
    assert_eq!(texts.len(), 10);
    assert_eq!(texts[1], ("sea ".to_owned(), 6));
    assert_eq!(texts[9].1, 14);
    assert_eq!(last, Some(Event::Stop(StopReason::End)), "the stop reason comes last");
}

#[tokio::test(start_paused = true)]
async fn last_usage_of_a_stream_applies() {
    for dialect in [Dialect::Anthropic, Dialect::Gemini] {
        let sim = DIALECTS.iter().find(|(_, known)| *known == dialect).unwrap().0;
        let simulator = simulator(account(sim).output(Output::fixed(10)));
        let answer = send(&adapter(&simulator, dialect), call().streamed()).await.unwrap();
        assert_eq!(answer.into_reply().await.unwrap().usage.unwrap().output, 10, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn empty_reply_is_not_an_error() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        let target = target(dialect, "http://sim", &[("x-sim-output-tokens", "0")]);
        let adapter = Adapter::new(wire::http(&simulator), "sim", target);
        for call in [call(), call().streamed()] {
            let reply = send(&adapter, call).await.unwrap().into_reply().await.unwrap();
            assert_eq!((reply.text.as_str(), reply.stop), ("", Some(StopReason::End)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_response_closes_the_connection() {
    let account =
        account(tidegate_sim::Dialect::OpenAi).per_token(Delay::fixed(Duration::from_secs(1)));
    let simulator = simulator(account);
    let call = call().streamed();
    let mut answer = send(&adapter(&simulator, Dialect::OpenAi), call).await.unwrap();
    answer.next().await.unwrap().unwrap();
    assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Open);
    drop(answer);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(simulator.ledger().entries()[0].ending, CallEnding::Abandoned);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_closes_the_connection() {
    let account =
        account(tidegate_sim::Dialect::Gemini).first_token(Delay::fixed(Duration::from_secs(60)));
    let simulator = simulator(account);
    let adapter = adapter(&simulator, Dialect::Gemini);
    for call in [call(), call().streamed()] {
        let sent = tokio::time::timeout(Duration::from_secs(1), send(&adapter, call)).await;
        assert!(sent.is_err());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(simulator.ledger().count(|entry| entry.ending == CallEnding::Abandoned), 2);
}
