//! Keys of callers: each has limits of its own, and there are only so many of them.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore, StoreHandle};
use tidegate_gateway::{Gateway, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dialect;

use crate::stage::{
    FAMILIES, SECOND, Want, account, ask, chat_as, gateway, is_idle, per_minute, scripted, secret,
    settle, simulator, upstream,
};
use crate::wire::Script;

#[tokio::test(start_paused = true)]
async fn every_key_has_its_own_limits() {
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).limits(per_minute(1))]);
    for key in ["sk-1", "sk-2", "sk-3"] {
        let answer = ask(&gateway, chat_as("openai", Want::Whole, key)).await;
        assert_eq!(answer.number("x-tidegate-wait-ms"), 0, "{key}");
    }
    let mut again = chat_as("openai", Want::Whole, "sk-2");
    again.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    assert_eq!(ask(&gateway, again).await.status, 429);
}

#[tokio::test(start_paused = true)]
async fn accounts_are_bounded_and_what_a_forgotten_one_spent_still_counts() {
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).limits(per_minute(1))]);
    for number in 0..3_000 {
        ask(&gateway, chat_as("openai", Want::Whole, &format!("sk-{number}"))).await;
    }
    assert!(gateway.status()[0].accounts <= 1_024, "{}", gateway.status()[0].accounts);
    let quick = |key: &str| {
        let mut request = chat_as("openai", Want::Whole, key);
        request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
        request
    };
    assert_eq!(ask(&gateway, quick("sk-2999")).await.status, 429, "remembered");
    // The account of the oldest key is gone, its bucket is in the store.
    assert_eq!(ask(&gateway, quick("sk-0")).await.status, 429, "spent");
    tokio::time::advance(SECOND * 120).await;
    assert_eq!(ask(&gateway, quick("sk-0")).await.status, 200, "refilled");
    assert!(is_idle(&gateway));
}

/// A shared store keeps a record for every limit, and a snapshot every limit that has a name; how many
/// keys there are is up to callers.
#[tokio::test(start_paused = true)]
async fn callers_put_nothing_into_the_store_of_the_engine() {
    let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build().unwrap());
    let engine = Engine::on(StoreHandle::shared(store.clone()));
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let open = |upstream: Upstream| {
        let builder = Gateway::builder(&engine).http(script.clone());
        builder.upstream(upstream.limits(per_minute(1))).build().unwrap()
    };
    let callers = open(upstream("openai", Dialect::OpenAi));
    let (before, limits) = (store.len(), engine.limits().len());
    for number in 0..20 {
        let key = format!("sk-{number}");
        assert_eq!(ask(&callers, chat_as("openai", Want::Whole, &key)).await.status, 200);
    }
    assert_eq!((store.len(), engine.limits().len()), (before, limits));
    let configured =
        open(upstream("mistral", Dialect::Mistral).credential(secret("sk-own")).unwrap());
    assert_eq!(ask(&configured, chat_as("mistral", Want::Whole, "sk-1")).await.status, 200);
    assert!(store.len() > before, "a configured key is limited there");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_is_forgotten_at_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let before = gateway.status()[0].accounts;
    for number in 0..20 {
        let refused =
            ask(&gateway, chat_as(name, Want::Whole, &format!("sk-wrong-{number}"))).await;
        assert_eq!((refused.status.as_u16(), refused.number("x-tidegate-attempts")), (401, 1));
    }
    settle().await;
    assert_eq!(gateway.status()[0].accounts, before);
    ask(&gateway, chat_as(name, Want::Whole, crate::stage::KEY)).await;
    assert_eq!(gateway.status()[0].accounts, before + 1);
}

/// Answers with these statuses, one after the other.
fn statuses(statuses: &'static [u16]) -> Script {
    Script::new(|number, _| {
        let response = Response::builder().status(statuses[number]);
        response.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_key_that_worked_keeps_its_limits_when_it_is_refused() {
    let script = statuses(&[200, 401, 200]);
    let limits = RawConstraint {
        requests_per_minute: Some(2),
        burst_capacity: Some(2),
        ..RawConstraint::default()
    };
    let limits = Constraint::try_new(&limits).unwrap();
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).limits(limits)]);
    let quick = || {
        let mut request = chat_as("openai", Want::Whole, "sk-1");
        request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
        request
    };
    assert_eq!(ask(&gateway, quick()).await.status, 200);
    assert_eq!(ask(&gateway, quick()).await.status, 401);
    settle().await;
    assert_eq!(ask(&gateway, quick()).await.status, 429, "the limit is still spent");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_refuses_its_own_key_says_nothing_of_the_callers() {
    let script = statuses(&[500, 401]);
    let first = upstream("openai", Dialect::OpenAi).fallback(["groq"]).max_retries(0);
    let second = upstream("groq", Dialect::Groq).credential(secret("gsk-dead")).unwrap();
    let gateway = scripted(&script, [first, second]);
    let accounts = || gateway.status().iter().map(|status| status.accounts).sum::<usize>();
    let before = accounts();
    assert_eq!(ask(&gateway, chat_as("openai", Want::Whole, "sk-1")).await.status, 500);
    settle().await;
    assert_eq!((script.got().len(), accounts()), (2, before + 1));
}
