//! Another configuration while calls are under way.

use tidegate::pacer::PoolSize;
use tidegate_gateway::{Gateway, GatewayError, Upstream};
use tidegate_llm::plan::{Constraint, RawConstraint};
use tidegate_providers::{Dialect, Endpoint};
use tidegate_sim::{Delay, Fault};

use crate::log::Log;
use crate::stage::{
    FAMILIES, LABEL, PEER, SECOND, Want, account, ask, chat, gateway, is_idle, per_minute, read,
    secret, settle, simulator, upstream,
};

fn places(upstream: Upstream, calls: u64) -> Upstream {
    upstream.concurrency(PoolSize::Fixed(calls))
}

/// So many callers that call one after the other.
fn callers(
    gateway: &Gateway,
    name: &'static str,
    callers: usize,
    calls: usize,
) -> Vec<tokio::task::JoinHandle<()>> {
    let caller = || {
        let gateway = gateway.clone();
        tokio::spawn(async move {
            for _ in 0..calls {
                assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.status, 200);
            }
        })
    };
    (0..callers).map(|_| caller()).collect()
}

#[tokio::test(start_paused = true)]
async fn eight_calls_at_a_time_become_two_under_load() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, places(upstream(name, dialect), 8));
    let callers = callers(&gateway, name, 16, 10);
    tokio::time::sleep(SECOND * 5).await;
    assert_eq!(gateway.status()[0].in_flight, 8);
    gateway.reconfigure(vec![places(upstream(name, dialect), 2)]).unwrap();
    let changed = simulator.elapsed();
    tokio::time::sleep(SECOND * 2).await;
    let status = &gateway.status()[0];
    assert_eq!((status.in_flight, status.concurrency), (2, Some(2)));
    assert_eq!(status.binding, Some("concurrency"));
    gateway.reconfigure(vec![places(upstream(name, dialect), 16)]).unwrap();
    for caller in callers {
        caller.await.unwrap();
    }
    let entries = simulator.ledger().entries();
    let drained = changed + SECOND;
    let narrow = entries.iter().filter(|one| (drained..drained + SECOND).contains(&one.at));
    assert!(narrow.clone().count() > 0 && narrow.clone().all(|one| one.in_flight <= 2));
    assert_eq!(simulator.ledger().seen(), 160);
    assert!(is_idle(&gateway));
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_changed_holds_for_those_who_wait() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, upstream(name, dialect).limits(per_minute(4)));
    let callers = callers(&gateway, name, 3, 1);
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
async fn an_endpoint_gets_a_limit_of_its_own_at_run_time() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).first_token(Delay::fixed(SECOND * 10)));
    let gateway = gateway(&simulator, places(upstream(name, dialect), 3));
    let _first = callers(&gateway, name, 1, 1);
    settle().await;
    let at_once = |calls: i64| {
        let max_concurrent_requests = Some(calls);
        let raw = RawConstraint { max_concurrent_requests, ..RawConstraint::default() };
        let own = Constraint::try_new(&raw).unwrap();
        places(upstream(name, dialect), 3).endpoint(Endpoint::new("chat"), own)
    };
    gateway.reconfigure(vec![at_once(1)]).unwrap();
    let _more = callers(&gateway, name, 5, 1);
    settle().await;
    assert_eq!((gateway.status()[0].in_flight, gateway.status()[0].queued), (2, 4));
    gateway.reconfigure(vec![at_once(4)]).unwrap();
    settle().await;
    assert_eq!((gateway.status()[0].in_flight, gateway.status()[0].queued), (3, 3), "of three");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_changes_nothing() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    let gateway = gateway(&simulator, places(upstream(name, dialect), 8));
    let wrong = places(upstream(name, dialect), 1);
    let twice = gateway.reconfigure(vec![wrong.clone(), wrong.clone()]);
    assert!(matches!(twice, Err(GatewayError::Twice(_))));
    let astray = gateway.reconfigure(vec![wrong.fallback(["nobody"])]);
    assert!(matches!(astray, Err(GatewayError::Fallback { .. })));
    let others: Vec<String> = (0..11).map(|number| format!("other-{number}")).collect();
    let names = || others.iter().map(String::as_str);
    let own = |name| upstream(name, dialect).credential(secret("sk-own")).unwrap();
    let mut long = vec![places(upstream(name, dialect), 1).fallback(names())];
    long.extend(names().map(own));
    assert!(matches!(gateway.reconfigure(long), Err(GatewayError::TooManyFallbacks(_))));
    ask(&gateway, chat(name, Want::Whole)).await;
    assert_eq!(gateway.status()[0].concurrency, Some(8));
    for name in ["", "a/b", "a b", "..", "é"] {
        let named = Upstream::new(name, Dialect::OpenAi, "http://a.test");
        assert!(matches!(named, Err(GatewayError::Name(_))), "{name}");
    }
    assert!(Upstream::new("a", Dialect::OpenAi, "ftp://a.test").is_err());
}

#[tokio::test(start_paused = true)]
async fn calls_to_a_provider_that_is_gone_end_in_peace() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim).per_token(Delay::fixed(SECOND)));
    let gateway = gateway(&simulator, upstream(name, dialect));
    let response = gateway.handle(chat(name, Want::Stream), PEER).await;
    gateway.reconfigure(vec![]).unwrap();
    assert!(!gateway.serves("/openai/v1/models"));
    assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.status, 404);
    assert!(read(response).await.unwrap().body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(start_paused = true)]
async fn retries_and_waits_are_those_of_the_next_call() {
    let (name, dialect, sim) = FAMILIES[0];
    let simulator = simulator(account(sim));
    simulator.inject(LABEL, Fault::ServerError, 100).unwrap();
    let gateway = gateway(&simulator, upstream(name, dialect).max_retries(0));
    assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.number("x-tidegate-attempts"), 1);
    gateway.reconfigure(vec![upstream(name, dialect).max_retries(3)]).unwrap();
    assert_eq!(ask(&gateway, chat(name, Want::Whole)).await.number("x-tidegate-attempts"), 4);
}

#[test]
fn the_log_tells_of_a_client_when_it_is_made_and_not_when_others_change() {
    const CLIENT: &str = "openai client configured with max_retries";
    const PLACES: &str = "Created concurrency semaphore for provider 'openai'";
    let log = Log::default();
    log.hear(|| {
        let limited =
            |calls| places(upstream("openai", Dialect::OpenAi).limits(per_minute(600)), calls);
        let gateway =
            Gateway::builder(&crate::stage::engine()).upstream(limited(8)).build().unwrap();
        assert_eq!((log.count(CLIENT), log.count(PLACES)), (1, 1));
        let other = |calls| places(upstream("groq", Dialect::Groq), calls);
        for calls in 1..4 {
            gateway.reconfigure(vec![limited(8), other(calls)]).unwrap();
        }
        assert_eq!((log.count(CLIENT), log.count(PLACES)), (1, 1));
        gateway.reconfigure(vec![limited(8).max_retries(1)]).unwrap();
        assert_eq!((log.count(CLIENT), log.count(PLACES)), (2, 1));
    });
}
