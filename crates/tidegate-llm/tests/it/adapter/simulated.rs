//! Every dialect as the simulator speaks it.

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::adapter::Adapter;
use tidegate_providers::{Chat, Dialect, Event, Reply, StopReason, Usage};
use tidegate_sim::{Delay, Ending, Output};
use tokio::time::Instant;

use super::{DIALECTS, account, adapter, ask, call, simulator, target};
use crate::wire;

const FIELDS: [(&str, &str); 3] =
    [("x-sim-output-tokens", "3"), ("x-sim-input-tokens", "12"), ("x-sim-cached-tokens", "5")];

async fn reply(sim: tidegate_sim::Dialect, dialect: Dialect, call: Call) -> Reply {
    let simulator = simulator(account(sim));
    let target = target(dialect, "http://sim/", &FIELDS);
    let answer = ask(&Adapter::new(wire::http(&simulator), "sim", target), call).await.unwrap();
    let reply = answer.whole().await.unwrap();
    assert_eq!(simulator.ledger().entries()[0].ending, Ending::Complete, "{dialect:?}");
    reply
}

#[tokio::test(start_paused = true)]
async fn every_dialect_says_the_same_whole_and_in_pieces() {
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
async fn every_dialect_hears_how_long_an_answer_may_be() {
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
async fn a_stream_is_handed_out_with_its_first_word_and_read_as_it_comes() {
    let second = Duration::from_secs(1);
    let account = account(tidegate_sim::Dialect::Anthropic)
        .first_token(Delay::fixed(second * 5))
        .per_token(Delay::fixed(second));
    let simulator = simulator(account);
    let began = Instant::now();
    let call = call().streamed();
    let mut answer = ask(&adapter(&simulator, Dialect::Anthropic), call).await.unwrap();
    assert_eq!(began.elapsed(), second * 5);
    assert_eq!(answer.request_id(), Some("req_sim_1"));
    let mut texts = Vec::new();
    let mut last = None;
    while let Some(event) = answer.next().await {
        last = Some(event.unwrap());
        if let Some(Event::Text(text)) = &last {
            texts.push((text.clone(), began.elapsed().as_secs()));
        }
    }
    assert_eq!(texts.len(), 10);
    assert_eq!(texts[1], ("sea ".to_owned(), 6));
    assert_eq!(texts[9].1, 14);
    assert_eq!(last, Some(Event::Stop(StopReason::End)), "the reason to stop comes last");
}

#[tokio::test(start_paused = true)]
async fn the_last_count_of_a_stream_is_the_one_that_holds() {
    for dialect in [Dialect::Anthropic, Dialect::Gemini] {
        let sim = DIALECTS.iter().find(|(_, known)| *known == dialect).unwrap().0;
        let simulator = simulator(account(sim).output(Output::fixed(10)));
        let answer = ask(&adapter(&simulator, dialect), call().streamed()).await.unwrap();
        assert_eq!(answer.whole().await.unwrap().usage.unwrap().output, 10, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_an_answer() {
    for (sim, dialect) in DIALECTS {
        let simulator = simulator(account(sim));
        let target = target(dialect, "http://sim", &[("x-sim-output-tokens", "0")]);
        let adapter = Adapter::new(wire::http(&simulator), "sim", target);
        for call in [call(), call().streamed()] {
            let reply = ask(&adapter, call).await.unwrap().whole().await.unwrap();
            assert_eq!((reply.text.as_str(), reply.stop), ("", Some(StopReason::End)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_in_the_middle_hangs_up() {
    let account =
        account(tidegate_sim::Dialect::OpenAi).per_token(Delay::fixed(Duration::from_secs(1)));
    let simulator = simulator(account);
    let call = call().streamed();
    let mut answer = ask(&adapter(&simulator, Dialect::OpenAi), call).await.unwrap();
    answer.next().await.unwrap().unwrap();
    assert_eq!(simulator.ledger().entries()[0].ending, Ending::Open);
    drop(answer);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(simulator.ledger().entries()[0].ending, Ending::Abandoned);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_before_its_answer_hangs_up() {
    let account =
        account(tidegate_sim::Dialect::Gemini).first_token(Delay::fixed(Duration::from_secs(60)));
    let simulator = simulator(account);
    let adapter = adapter(&simulator, Dialect::Gemini);
    for call in [call(), call().streamed()] {
        let asked = tokio::time::timeout(Duration::from_secs(1), ask(&adapter, call)).await;
        assert!(asked.is_err());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(simulator.ledger().count(|entry| entry.ending == Ending::Abandoned), 2);
}
