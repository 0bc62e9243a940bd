//! Configuration changes while calls are in flight.

use tidegate::pacer::PoolSize;
use tidegate_gateway::{Gateway, GatewayError, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::{Dialect, Endpoint};
use tidegate_sim::{Delay, Fault};

use crate::log::Log;
use crate::support::{
    ACCOUNT, FAMILIES, Mode, PEER, SECOND, account, chat, credential, gateway, is_idle, per_minute,
    read, send, settle, simulator, upstream,
};

fn with_concurrency(upstream: Upstream, calls: u64) -> Upstream {
    upstream.concurrency(PoolSize::Fixed(calls))
}

/// Spawns callers that make `calls` calls each, one after the other.
fn spawn_callers(
    gateway: &Gateway,
    name: &'static str,
    callers: usize,
    calls: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    let caller = || {
        let gateway = gateway.clone();
        tokio::spawn(async move {
            for _ in 0..calls {
                assert_eq!(send(&gateway, chat(name, Mode::Single)).await.status, 200);
            }
        })
    };
    (0..callers).map(|_| caller()).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrency_can_be_lowered_under_load() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, with_concurrency(upstream(name, dialect), 8));
    let callers = spawn_callers(&gateway, name, 16, 10);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(gateway.status()[0].in_flight, 8);
    gateway.reconfigure(vec![with_concurrency(upstream(name, dialect), 2)]).unwrap();
    let changed = simulator.elapsed();
    tokio::time::sleep(SECOND * 2).await;
    let status = &gateway.status()[0];
    assert_eq!((status.in_flight, status.concurrency), (2, Some(2)));
    assert_eq!(status.binding, Some("concurrency"));
    gateway.reconfigure(vec![with_concurrency(upstream(name, dialect), 16)]).unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    let entries = simulator.ledger().entries();
    let drained = changed + SECOND;
    let during_low_limit =
        entries.iter().filter(|entry| (drained..drained + SECOND).contains(&entry.at));
    assert!(
        during_low_limit.clone().count() > 0
            && during_low_limit.clone().all(|entry| entry.in_flight <= 2)
    );
    assert_eq!(simulator.ledger().seen(), 160);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_applies_to_waiting_calls() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(4)));
    let callers = spawn_callers(&gateway, name, 3, 1);
    settle().await;
    assert_eq!(gateway.status()[0].queued, 2);
    gateway.reconfigure(vec![upstream(name, dialect).limits(per_minute(6_000))]).unwrap();
    tokio::time::sleep(SECOND).await;
    assert!(is_idle(&gateway), "{:?}", gateway.status());
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_limit_can_be_added_at_run_time() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 10)));
    let gateway = gateway(&simulator, with_concurrency(upstream(name, dialect), 3));
    let _first = spawn_callers(&gateway, name, 1, 1);
    settle().await;
    let at_once = |calls: i64| {
        let max_concurrent_requests = Some(calls);
        let raw = RawConstraint { max_concurrent_requests, ..RawConstraint::default() };
        let own = Constraint::try_new(&raw).unwrap();
        with_concurrency(upstream(name, dialect), 3).endpoint(Endpoint::new("chat"), own)
    };
    gateway.reconfigure(vec![at_once(1)]).unwrap();
    let _more = spawn_callers(&gateway, name, 5, 1);
    settle().await;
    assert_eq!((gateway.status()[0].in_flight, gateway.status()[0].queued), (2, 4));
    gateway.reconfigure(vec![at_once(4)]).unwrap();
    settle().await;
    assert_eq!(
        (gateway.status()[0].in_flight, gateway.status()[0].queued),
        (3, 3),
        "limited by the concurrency of three"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_configuration_changes_nothing() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, with_concurrency(upstream(name, dialect), 8));
    let wrong = with_concurrency(upstream(name, dialect), 1);
    let twice = gateway.reconfigure(vec![wrong.clone(), wrong.clone()]);
    assert!(matches!(twice, Err(GatewayError::DuplicateName(_))));
    let unknown_fallback = gateway.reconfigure(vec![wrong.fallback(["missing"])]);
    assert!(matches!(unknown_fallback, Err(GatewayError::UnknownFallback { .. })));
    let others: Vec<String> = (0..11).map(|number| format!("other-{number}")).collect();
    let names = || others.iter().map(String::as_str);
    let own = |name| upstream(name, dialect).credential(credential("sk-own")).unwrap();
    let mut too_many_fallbacks =
        vec![with_concurrency(upstream(name, dialect), 1).fallback(names())];
    too_many_fallbacks.extend(names().map(own));
    assert!(matches!(
        gateway.reconfigure(too_many_fallbacks),
        Err(GatewayError::TooManyFallbacks(_))
    ));
    send(&gateway, chat(name, Mode::Single)).await;
    assert_eq!(gateway.status()[0].concurrency, Some(8));
    for name in ["", "a/b", "a b", "..", "é"] {
        let named = Upstream::new(name, Dialect::OpenAi, "http://a.test");
        assert!(matches!(named, Err(GatewayError::InvalidName(_))), "{name}");
    }
    assert!(Upstream::new("a", Dialect::OpenAi, "ftp://a.test").is_err());
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_removed_provider_finish() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let response = gateway.handle(chat(name, Mode::Stream), PEER).await;
    gateway.reconfigure(vec![]).unwrap();
    assert!(!gateway.serves("/openai/v1/models"));
    assert_eq!(send(&gateway, chat(name, Mode::Single)).await.status, 404);
    assert!(read(response).await.unwrap().body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn retry_settings_apply_to_the_next_call() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.inject(ACCOUNT, Fault::ServerError, 100).unwrap();
    let gateway = gateway(&simulator, upstream(name, dialect).max_retries(0));
    assert_eq!(send(&gateway, chat(name, Mode::Single)).await.number("x-tidegate-attempts"), 1);
    gateway.reconfigure(vec![upstream(name, dialect).max_retries(3)]).unwrap();
    assert_eq!(send(&gateway, chat(name, Mode::Single)).await.number("x-tidegate-attempts"), 4);
}

#[test]
fn clients_are_logged_when_configured_and_not_when_others_change() {
    const CLIENT_CONFIGURED: &str = "retries configured provider=openai";
    const SEMAPHORE: &str = "concurrency pool created provider=openai";
    let log = Log::default();
    log.capture(|| {
        let limited = |calls| {
            with_concurrency(upstream("openai", Dialect::OpenAi).limits(per_minute(600)), calls)
        };
        let gateway =
            Gateway::builder(&crate::support::engine()).upstream(limited(8)).build().unwrap();
        assert_eq!((log.count(CLIENT_CONFIGURED), log.count(SEMAPHORE)), (1, 1));
        let other = |calls| with_concurrency(upstream("groq", Dialect::Groq), calls);
        for calls in 1..4 {
            gateway.reconfigure(vec![limited(8), other(calls)]).unwrap();
        }
        assert_eq!((log.count(CLIENT_CONFIGURED), log.count(SEMAPHORE)), (1, 1));
        gateway.reconfigure(vec![limited(8).max_retries(1)]).unwrap();
        assert_eq!((log.count(CLIENT_CONFIGURED), log.count(SEMAPHORE)), (2, 1));
    });
}
