//! Keys of callers: each has limits of its own, and there are only so many of them.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore, StoreHandle};
use tidegate_gateway::{Gateway, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::Dialect;

use crate::stage::{
    FAMILIES, SECOND, Want, account, ask, chat_as, engine, gateway, is_idle, per_minute, scripted,
    secret, settle, simulator, upstream,
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

/// A call that is refused where it would have to wait.
fn quick(key: &str) -> Request<Full<Bytes>> {
    let mut request = chat_as("openai", Want::Whole, key);
    request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    request
}

/// A gateway with little memory, at which every key may make one call a minute.
fn small(script: &Script) -> Gateway {
    let upstream = upstream("openai", Dialect::OpenAi)
        .limits(per_minute(1))
        .all_keys_limits(NonZeroU32::new(1_000_000), None);
    let builder = Gateway::builder(&engine()).http(script.clone()).max_memory(1 << 20);
    builder.upstream(upstream).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_in_debt_are_kept_and_further_ones_share_an_account() {
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = small(&script);
    let mut passed = 0;
    for number in 0..300 {
        let status = ask(&gateway, quick(&format!("sk-{number}"))).await.status;
        passed += usize::from(status == 200);
    }
    let accounts = gateway.status()[0].accounts;
    assert!((20..150).contains(&accounts), "{accounts}");
    // Those with accounts of their own, and one of all others; that of no key is there, too.
    assert_eq!(passed, accounts - 1);
    assert_eq!(ask(&gateway, quick("sk-0")).await.status, 429, "spent");
    assert_eq!(ask(&gateway, quick("sk-new")).await.status, 429, "among the others");
    tokio::time::advance(SECOND * 120).await;
    for number in 0..300 {
        let status = ask(&gateway, quick(&format!("sk-later-{number}"))).await.status;
        passed += usize::from(status == 200);
    }
    assert!(passed > accounts + 20, "what owes nothing any more goes: {passed}");
    assert!(gateway.status()[0].accounts <= accounts + 1);
    assert!(is_idle(&gateway));
}

/// Requests of a day are spent until the day is over, and no number of other keys gives them back.
#[tokio::test(start_paused = true)]
async fn a_key_that_has_spent_its_day_is_kept() {
    let limits = RawConstraint { requests_per_day: Some(1), ..RawConstraint::default() };
    let limits = Constraint::try_new(&limits).unwrap();
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = scripted(&script, [upstream("openai", Dialect::OpenAi).limits(limits)]);
    assert_eq!(ask(&gateway, quick("sk-1")).await.status, 200);
    gateway.set_max_memory(1);
    for number in 0..50 {
        ask(&gateway, quick(&format!("junk-{number}"))).await;
        tokio::time::advance(SECOND).await;
    }
    assert_eq!(gateway.status()[0].accounts, 3, "of no key, of the key, and of all others");
    assert_eq!(ask(&gateway, quick("sk-1")).await.status, 429);
}

/// Whatever callers write there, it says nothing about who they are.
#[tokio::test(start_paused = true)]
async fn where_keys_are_not_checked_all_callers_share_an_account() {
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let local = upstream("local", Dialect::Compatible).limits(per_minute(1));
    let gateway = scripted(&script, [local]);
    let mut statuses = Vec::new();
    for authorization in ["Bearer one", "Basic dHdv", "three words here"] {
        let mut request = chat_as("local", Want::Whole, "sk-1");
        request.headers_mut().insert("authorization", authorization.parse().unwrap());
        request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
        statuses.push(ask(&gateway, request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(script.got()[0].fields["authorization"], "Bearer one", "it is passed on");
    assert_eq!(gateway.status()[0].accounts, 1);
}

#[tokio::test(start_paused = true)]
async fn all_keys_together_have_a_ceiling_that_can_be_changed() {
    let script = Script::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let with = |requests| {
        let upstream = upstream("openai", Dialect::OpenAi).limits(per_minute(1));
        upstream.all_keys_limits(NonZeroU32::new(requests), None)
    };
    let gateway = scripted(&script, [with(3)]);
    let mut answers = Vec::new();
    for number in 0..5 {
        answers.push(ask(&gateway, quick(&format!("sk-{number}"))).await);
    }
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status.as_u16()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(answers[4].field("x-tidegate-limited-by"), "all_keys_requests");
    let views = gateway.inspect().await;
    assert_eq!(views[0].all_keys[0].allowed.map(|(amount, _)| amount), Some(3));
    // Nothing was taken of the limits of a key that was refused.
    tokio::time::advance(SECOND * 20).await;
    assert_eq!(ask(&gateway, quick("sk-4")).await.status, 200);
    assert_eq!(ask(&gateway, quick("sk-5")).await.status, 429);
    gateway.reconfigure(vec![with(600)]).unwrap();
    // A bucket comes under another policy with the first call that it admits.
    tokio::time::advance(SECOND * 20).await;
    assert_eq!(ask(&gateway, quick("sk-5")).await.status, 200);
    tokio::time::advance(SECOND).await;
    let answer = ask(&gateway, quick("sk-6")).await;
    assert_eq!(answer.status, 200, "ten in a second: {answer:?}");
}

/// Whoever invents keys would lock out those who have one.
#[tokio::test(start_paused = true)]
async fn keys_that_are_rejected_use_nothing_of_what_all_keys_have() {
    let script = Script::new(|number, _| {
        let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
        if number < 20 {
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        }
        response
    });
    let upstream = upstream("openai", Dialect::OpenAi).limits(per_minute(1));
    let gateway = scripted(&script, [upstream.all_keys_limits(NonZeroU32::new(3), None)]);
    for number in 0..20 {
        assert_eq!(ask(&gateway, quick(&format!("junk-{number}"))).await.status, 401, "{number}");
    }
    assert_eq!(ask(&gateway, quick("sk-1")).await.status, 200);
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
