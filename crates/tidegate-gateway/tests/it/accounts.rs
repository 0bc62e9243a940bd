//! Callers' keys: each has its own limits, and their number is bounded.

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

use crate::support::{
    FAMILIES, Mode, SECOND, account, chat_with_key, credential, engine, gateway, gateway_to,
    is_idle, per_minute, send, settle, simulator, upstream,
};
use crate::transport::ScriptedProvider;

#[tokio::test(start_paused = true)]
async fn every_key_has_its_own_limits() {
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway =
        gateway_to(&provider, [upstream("openai", Dialect::OpenAi).limits(per_minute(1))]);
    for key in ["sk-1", "sk-2", "sk-3"] {
        let response = send(&gateway, chat_with_key("openai", Mode::Single, key)).await;
        assert_eq!(response.number("x-tidegate-wait-ms"), 0, "{key}");
    }
    let mut again = chat_with_key("openai", Mode::Single, "sk-2");
    again.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    assert_eq!(send(&gateway, again).await.status, 429);
}

/// A call that is refused instead of waiting.
fn chat_without_wait(key: &str) -> Request<Full<Bytes>> {
    let mut request = chat_with_key("openai", Mode::Single, key);
    request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
    request
}

/// A gateway with little memory that allows every key one call per minute.
fn small_gateway(provider: &ScriptedProvider) -> Gateway {
    let upstream = upstream("openai", Dialect::OpenAi)
        .limits(per_minute(1))
        .all_keys_limits(NonZeroU32::new(1_000_000), None);
    let builder = Gateway::builder(&engine()).http(provider.clone()).max_memory(1 << 20);
    builder.upstream(upstream).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn keys_in_debt_are_kept_and_further_keys_share_an_account() {
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = small_gateway(&provider);
    let mut accepted = 0;
    for number in 0..300 {
        let status = send(&gateway, chat_without_wait(&format!("sk-{number}"))).await.status;
        accepted += usize::from(status == 200);
    }
    let accounts = gateway.status()[0].accounts;
    assert!((20..150).contains(&accounts), "{accounts}");
    // Each key with its own account, plus one for the shared account; the keyless account exists
    // too.
    assert_eq!(accepted, accounts - 1);
    assert_eq!(send(&gateway, chat_without_wait("sk-0")).await.status, 429, "spent");
    assert_eq!(
        send(&gateway, chat_without_wait("sk-new")).await.status,
        429,
        "in the shared account"
    );
    tokio::time::advance(SECOND * 120).await;
    for number in 0..300 {
        let status = send(&gateway, chat_without_wait(&format!("sk-later-{number}"))).await.status;
        accepted += usize::from(status == 200);
    }
    assert!(accepted > accounts + 20, "accounts without debt are evicted: {accepted}");
    assert!(gateway.status()[0].accounts <= accounts + 1);
    assert!(is_idle(&gateway));
}

/// A daily quota stays exhausted until the day ends, however many other keys appear.
#[tokio::test(start_paused = true)]
async fn a_key_with_an_exhausted_daily_quota_is_kept() {
    let limits = RawConstraint { requests_per_day: Some(1), ..RawConstraint::default() };
    let limits = Constraint::try_new(&limits).unwrap();
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi).limits(limits)]);
    assert_eq!(send(&gateway, chat_without_wait("sk-1")).await.status, 200);
    gateway.set_max_memory(1);
    for number in 0..50 {
        send(&gateway, chat_without_wait(&format!("junk-{number}"))).await;
        tokio::time::advance(SECOND).await;
    }
    assert_eq!(gateway.status()[0].accounts, 3, "keyless, sk-1 and the shared account");
    assert_eq!(send(&gateway, chat_without_wait("sk-1")).await.status, 429);
}

/// Where keys are not checked, a key does not identify a caller.
#[tokio::test(start_paused = true)]
async fn keyless_providers_have_one_account() {
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let local = upstream("local", Dialect::Compatible).limits(per_minute(1));
    let gateway = gateway_to(&provider, [local]);
    let mut statuses = Vec::new();
    for authorization in ["Bearer one", "Basic dHdv", "three words here"] {
        let mut request = chat_with_key("local", Mode::Single, "sk-1");
        request.headers_mut().insert("authorization", authorization.parse().unwrap());
        request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
        statuses.push(send(&gateway, request).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 429, 429]);
    assert_eq!(provider.requests()[0].headers["authorization"], "Bearer one", "it is forwarded");
    assert_eq!(gateway.status()[0].accounts, 1);
}

#[tokio::test(start_paused = true)]
async fn the_limit_over_all_keys_can_be_reconfigured() {
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let with = |requests| {
        let upstream = upstream("openai", Dialect::OpenAi).limits(per_minute(1));
        upstream.all_keys_limits(NonZeroU32::new(requests), None)
    };
    let gateway = gateway_to(&provider, [with(3)]);
    let mut answers = Vec::new();
    for number in 0..5 {
        answers.push(send(&gateway, chat_without_wait(&format!("sk-{number}"))).await);
    }
    let statuses: Vec<_> = answers.iter().map(|response| response.status.as_u16()).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(answers[4].header("x-tidegate-limited-by"), "all_keys_requests");
    let views = gateway.inspect().await;
    assert_eq!(views[0].all_keys[0].allowed.map(|(amount, _)| amount), Some(3));
    // A refused call did not use the limit of its key.
    tokio::time::advance(SECOND * 20).await;
    assert_eq!(send(&gateway, chat_without_wait("sk-4")).await.status, 200);
    assert_eq!(send(&gateway, chat_without_wait("sk-5")).await.status, 429);
    gateway.reconfigure(vec![with(600)]).unwrap();
    // A bucket switches to a new policy with the first call it admits.
    tokio::time::advance(SECOND * 20).await;
    assert_eq!(send(&gateway, chat_without_wait("sk-5")).await.status, 200);
    tokio::time::advance(SECOND).await;
    let response = send(&gateway, chat_without_wait("sk-6")).await;
    assert_eq!(response.status, 200, "ten in a second: {response:?}");
}

/// Otherwise invented keys would lock out callers with a valid one.
#[tokio::test(start_paused = true)]
async fn rejected_keys_do_not_use_the_limit_over_all_keys() {
    let provider = ScriptedProvider::new(|number, _| {
        let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
        if number < 20 {
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        }
        response
    });
    let upstream = upstream("openai", Dialect::OpenAi).limits(per_minute(1));
    let gateway = gateway_to(&provider, [upstream.all_keys_limits(NonZeroU32::new(3), None)]);
    for number in 0..20 {
        assert_eq!(
            send(&gateway, chat_without_wait(&format!("junk-{number}"))).await.status,
            401,
            "{number}"
        );
    }
    assert_eq!(send(&gateway, chat_without_wait("sk-1")).await.status, 200);
}

/// A shared store keeps a record of every limit, and a snapshot every named limit, but callers
/// control the number of keys.
#[tokio::test(start_paused = true)]
async fn caller_keys_are_not_stored_in_the_engine_store() {
    let store = Arc::new(MemoryStore::builder().clock(TokioClock::new()).build().unwrap());
    let engine = Engine::on(StoreHandle::shared(store.clone()));
    let provider =
        ScriptedProvider::new(|_, _| Response::new(Full::new(Bytes::from_static(b"{}"))));
    let open = |upstream: Upstream| {
        let builder = Gateway::builder(&engine).http(provider.clone());
        builder.upstream(upstream.limits(per_minute(1))).build().unwrap()
    };
    let callers = open(upstream("openai", Dialect::OpenAi));
    let (before, limits) = (store.len(), engine.limits().len());
    for number in 0..20 {
        let key = format!("sk-{number}");
        assert_eq!(send(&callers, chat_with_key("openai", Mode::Single, &key)).await.status, 200);
    }
    assert_eq!((store.len(), engine.limits().len()), (before, limits));
    let configured =
        open(upstream("mistral", Dialect::Mistral).credential(credential("sk-own")).unwrap());
    assert_eq!(send(&configured, chat_with_key("mistral", Mode::Single, "sk-1")).await.status, 200);
    assert!(store.len() > before, "configured keys use the engine store");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_key_is_forgotten_at_once() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let before = gateway.status()[0].accounts;
    for number in 0..20 {
        let refused =
            send(&gateway, chat_with_key(name, Mode::Single, &format!("sk-wrong-{number}"))).await;
        assert_eq!((refused.status.as_u16(), refused.number("x-tidegate-attempts")), (401, 1));
    }
    settle().await;
    assert_eq!(gateway.status()[0].accounts, before);
    send(&gateway, chat_with_key(name, Mode::Single, crate::support::KEY)).await;
    assert_eq!(gateway.status()[0].accounts, before + 1);
}

/// A provider that responds with these statuses in order.
fn statuses(statuses: &'static [u16]) -> ScriptedProvider {
    ScriptedProvider::new(|number, _| {
        let response = Response::builder().status(statuses[number]);
        response.body(Full::new(Bytes::from_static(b"{}"))).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn an_accepted_key_keeps_its_limits_when_rejected_later() {
    let provider = statuses(&[200, 401, 200]);
    let limits = RawConstraint {
        requests_per_minute: Some(2),
        burst_capacity: Some(2),
        ..RawConstraint::default()
    };
    let limits = Constraint::try_new(&limits).unwrap();
    let gateway = gateway_to(&provider, [upstream("openai", Dialect::OpenAi).limits(limits)]);
    let chat_without_wait = || {
        let mut request = chat_with_key("openai", Mode::Single, "sk-1");
        request.headers_mut().insert("x-tidegate-max-wait-ms", "0".parse().unwrap());
        request
    };
    assert_eq!(send(&gateway, chat_without_wait()).await.status, 200);
    assert_eq!(send(&gateway, chat_without_wait()).await.status, 401);
    settle().await;
    assert_eq!(send(&gateway, chat_without_wait()).await.status, 429, "the limit is still spent");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_rejecting_its_key_does_not_affect_the_callers_key() {
    let provider = statuses(&[500, 401]);
    let first = upstream("openai", Dialect::OpenAi).fallback(["groq"]).max_retries(0);
    let second = upstream("groq", Dialect::Groq).credential(credential("gsk-dead")).unwrap();
    let gateway = gateway_to(&provider, [first, second]);
    let accounts = || gateway.status().iter().map(|status| status.accounts).sum::<usize>();
    let before = accounts();
    assert_eq!(send(&gateway, chat_with_key("openai", Mode::Single, "sk-1")).await.status, 500);
    settle().await;
    assert_eq!((provider.requests().len(), accounts()), (2, before + 1));
}
