//! Shorter runs over real sockets and in real time, and two processes that share a Redis.
//!
//! Machines are busy, so the assertions allow for late timers. The tests under virtual time have
//! the exact bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::pacer::PoolSize;
use tidegate::{Engine, StoreHandle};
use tidegate_llm::adapter::Adapter;
use tidegate_llm::client::Client;
use tidegate_llm::plan::{Constraint, ConstraintSource, RawConstraint};
use tidegate_llm::rate_limit::{Account, AccountBuilder};
use tidegate_providers::request::Target;
use tidegate_providers::{Credential, Dialect};
use tidegate_redis::RedisStore;
use tidegate_sim::{self as sim, Delay, Limits, Output, Simulator};
use tidegate_testkit::launch::{Flavor, Peer, RedisServer};
use tokio::time::Instant;

use crate::traffic::{
    AGENTS, Dice, KEY, LABEL, MODEL, WORKERS, drive, provider, stack, throttled_per_mille,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// Environment of a peer process.
const PROVIDER_URL: &str = "TIDEGATE_TEST_PROVIDER";
const REDIS_URL: &str = "TIDEGATE_TEST_REDIS";

/// Serves a simulator on a socket: requests limited per second, responses within some tens of
/// milliseconds.
async fn served(dialect: sim::Dialect, per_minute: u64) -> (Simulator, String) {
    let limits = Limits::new().requests_per_minute(per_minute).slice(SECOND);
    let account = sim::Account::new(dialect, LABEL, KEY)
        .model(MODEL, limits)
        .output(Output::between(5..=50))
        .first_token(Delay::between(MILLI * 20..=MILLI * 90));
    let simulator = Simulator::builder().account(account).build().unwrap();
    let url = simulator.serve_on_loopback().await.unwrap();
    (simulator, url)
}

fn limited(builder: AccountBuilder, per_minute: u64) -> AccountBuilder {
    let raw = RawConstraint {
        requests_per_minute: Some(i64::try_from(per_minute).unwrap()),
        ..RawConstraint::default()
    };
    builder.limits(Constraint::try_new(&raw).unwrap(), ConstraintSource::Override)
}

fn adapter(dialect: Dialect, url: &str) -> Adapter<Client> {
    let target = Target::new(dialect, url, MODEL, &Credential::new(KEY)).unwrap();
    Adapter::new(Client::new().unwrap(), provider(dialect), target)
}

/// Two hundred mixed calls by forty agents that start at once.
async fn two_hundred(dialect: Dialect, simulated: sim::Dialect) {
    const CALLS: u64 = 200;
    let (simulator, url) = served(simulated, 3_000).await;
    let account = Account::builder(provider(dialect), &Credential::new(KEY));
    let account = limited(account, 3_000).build().unwrap();
    let model = stack(adapter(dialect, &url), dialect, &account, 1);
    let started = Arc::new(AtomicU64::new(0));
    let should_continue = move || started.fetch_add(1, Ordering::Relaxed) < CALLS;
    let (completed, failed) = drive(model, WORKERS * AGENTS, Dice::new(1), should_continue).await;
    assert_eq!((completed, failed), (CALLS, 0));
    let throttled = throttled_per_mille(&simulator);
    assert!(throttled <= 50.0, "{throttled} of a thousand were refused");
}

#[tokio::test]
async fn two_hundred_calls_over_sockets() {
    two_hundred(Dialect::OpenAi, sim::Dialect::OpenAi).await;
    two_hundred(Dialect::Anthropic, sim::Dialect::Anthropic).await;
    two_hundred(Dialect::Gemini, sim::Dialect::Gemini).await;
}

/// Two processes with twenty agents each share one limit of twenty calls per second.
#[test]
fn two_processes_share_one_limit() {
    const PER_MINUTE: u64 = 1_200;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    if let (Some(url), Some(redis)) = (Peer::env_var(PROVIDER_URL), Peer::env_var(REDIS_URL)) {
        let (completed, failed) = runtime.block_on(worker(&url, &redis, PER_MINUTE));
        Peer::report(&format!("{completed} {failed}"));
        return;
    }
    let (simulator, url) = runtime.block_on(served(sim::Dialect::OpenAi, PER_MINUTE));
    let redis = RedisServer::start(Flavor::Redis);
    let test_name = "real_time::two_processes_share_one_limit";
    let environment = [(PROVIDER_URL, &*url), (REDIS_URL, &redis.url())];
    let mut peers: Vec<Peer> = (0..2).map(|_| Peer::spawn(test_name, &environment)).collect();
    for peer in &mut peers {
        assert_eq!(peer.line(), "ready");
    }
    for peer in &mut peers {
        peer.send_line("go");
    }
    let start = simulator.elapsed();
    let counts: Vec<(u64, u64)> = peers
        .iter_mut()
        .map(|peer| {
            let line = peer.line();
            let (completed, failed) = line.split_once(' ').unwrap();
            (completed.parse().unwrap(), failed.parse().unwrap())
        })
        .collect();
    assert!(counts.iter().all(|(completed, failed)| *completed > 20 && *failed == 0), "{counts:?}");
    let throttled = throttled_per_mille(&simulator);
    assert!(throttled <= 50.0, "{throttled} of a thousand were refused: {counts:?}");
    let window = start + SECOND * 2..start + SECOND * 11;
    let usage = simulator.usage(LABEL, MODEL, window).unwrap();
    assert!((0.85..=1.01).contains(&usage.ratio()), "{usage:?} {counts:?}");
}

/// Runs one of the two processes for twelve seconds.
async fn worker(url: &str, redis: &str, per_minute: u64) -> (u64, u64) {
    let store = RedisStore::builder(redis).open().unwrap();
    store.connected().await.unwrap();
    let account = Account::builder("openai", &Credential::new(KEY))
        .engine(&Engine::on(StoreHandle::shared(Arc::new(store))))
        .concurrency(PoolSize::Unlimited);
    let account = limited(account, per_minute).build().unwrap();
    let model = stack(adapter(Dialect::OpenAi, url), Dialect::OpenAi, &account, 1);
    Peer::report("ready");
    assert_eq!(Peer::read_line().as_deref(), Some("go"));
    let start = Instant::now();
    drive(model, 20, Dice::new(1), move || start.elapsed() < SECOND * 12).await
}
