//! Several nodes and several processes on one server.

use std::time::Duration;

use tidegate_core::{
    Charge, Limit, Operation, Policy, PolicyChange, Store as _, StoreResponse, StoreResponses,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, Peer, RedisServer, wait_until};
use tidegate_testkit::subject::{block_on, execute};

use crate::fixture::{
    ConcurrentCallers, TimedStores, granted, nodes, open, prefix, remaining, server, server_micros,
    slow_bucket, take, wait_until_server_time,
};

/// Environment of a peer process: the server and the prefix.
const URL: &str = "TIDEGATE_TEST_URL";
const PREFIX: &str = "TIDEGATE_TEST_PREFIX";

/// R150, R285: fifteen concurrent takes on ten tokens, from two nodes.
#[test]
fn fifteen_concurrent_takes_on_ten_tokens_from_two_nodes() {
    let limit = slow_bucket("client", 10);
    let allowed = block_on(async {
        let stores: [RedisStore; 2] = nodes(server(Flavor::Redis), &prefix()).await;
        ConcurrentCallers::on(stores.iter().cycle().take(15), &limit, 1).allowed().await
    });
    assert_eq!(allowed, 10);
}

/// A receipt of one node is settled by another.
#[test]
fn receipts_are_valid_on_every_node() {
    let limit = slow_bucket("client", 10);
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Valkey), &prefix()).await;
        let receipt = granted(&one, &limit, "a", 6).await.receipt;
        let back = [tidegate_core::Correction::new(&limit, "a", -4)];
        let settle = Operation::Settle { corrections: &back, receipt: Some(&receipt) };
        let answer = execute(&other, settle).await.unwrap();
        let StoreResponse::Settled(settlement) = answer else { panic!("{answer:?}") };
        assert_eq!(settlement.outcomes[0].remaining, 8);
    });
}

/// A node with a new policy sets it for all; the others adopt it when they see it.
#[test]
fn newest_policy_applies_on_every_node() {
    let old = slow_bucket("client", 10);
    let new = old.revise(*slow_bucket("x", 4).policy(), PolicyChange::KeepTokens).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Redis), &prefix()).await;
        granted(&one, &old, "a", 1).await;
        granted(&other, &old, "b", 1).await;
        // Nine tokens were left; four fit under the new policy.
        assert_eq!(granted(&one, &new, "a", 1).await.outcomes[0].remaining, 3);
        let decision = take(&other, &old, "a", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (4, 2));
        // From then on it applies to every key of the limit, including unused ones.
        let decision = take(&other, &old, "c", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (4, 3));
        assert_eq!(remaining(&one, &new, "b").await, 4);
    });
}

/// A node that starts with the current policy joins; one with a different policy changes it.
#[test]
fn starting_node_sets_its_policy() {
    let server = server(Flavor::Redis);
    let prefix = prefix();
    let node = || open(RedisStore::builder(&server.url()).prefix(&*prefix));
    block_on(async {
        let one = node().await;
        granted(&one, &slow_bucket("client", 10), "a", 3).await;
        let same = node().await;
        assert_eq!(
            granted(&same, &slow_bucket("client", 10), "a", 3).await.outcomes[0].remaining,
            4
        );
        let other = node().await;
        assert_eq!(
            granted(&other, &slow_bucket("client", 20), "a", 1).await.outcomes[0].remaining,
            3
        );
        let decision = take(&one, &slow_bucket("client", 10), "a", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (20, 2));
    });
}

/// Nodes count each other, and drop one that has been silent for ten seconds. The maximum of the
/// last counts applies: a server that lost its keys counts from one again.
#[test]
fn silent_nodes_are_no_longer_counted() {
    let mut stores = two_nodes();
    stores.drop_last();
    heartbeat_at(&stores, Duration::from_secs(9));
    assert_eq!(recorded_nodes(&stores), 2, "it may come back");
    heartbeat_at(&stores, Duration::from_secs(20));
    assert_eq!(recorded_nodes(&stores), 1);
    let noticed = (21..33).find(|&second| {
        heartbeat_at(&stores, Duration::from_secs(second));
        stores.nodes()[0].nodes().map(u32::from) == Some(1)
    });
    assert!(noticed.is_some());
}

/// A node last seen in the future, before the clock stepped back, must not stay counted until then.
#[test]
fn clock_that_steps_back_leaves_no_stale_nodes() {
    const DAY: Duration = Duration::from_secs(86_400);
    let mut stores = two_nodes();
    stores.set(TimedStores::ORIGIN + DAY);
    wait_until("two nodes in the future", || (seen_at(&stores, DAY) == 2).then_some(()));
    stores.drop_last();
    heartbeat_at(&stores, DAY + Duration::from_secs(1));
    assert_eq!(recorded_nodes(&stores), 2);
    heartbeat_at(&stores, Duration::ZERO);
    assert_eq!(recorded_nodes(&stores), 1);
}

fn two_nodes() -> TimedStores {
    let stores = block_on(TimedStores::with_nodes(Flavor::Redis, 2));
    let met = || stores.nodes().iter().all(|node| node.nodes().map(u32::from) == Some(2));
    wait_until("two nodes to count each other", || met().then_some(()));
    stores
}

/// Sets the clock to this time after its start, and waits for a heartbeat.
fn heartbeat_at(stores: &TimedStores, since: Duration) {
    stores.set(TimedStores::ORIGIN + since);
    wait_until("a heartbeat", || (seen_at(stores, since) > 0).then_some(()));
}

/// Number of nodes last seen at this time after the start of the clock.
fn seen_at(stores: &TimedStores, since: Duration) -> i64 {
    let (record, then) = (record(stores), (TimedStores::ORIGIN + since).as_micros().to_string());
    server(Flavor::Redis).command(&["ZCOUNT", &record, &then, &then]).integer()
}

/// Number of nodes recorded on the server.
fn recorded_nodes(stores: &TimedStores) -> i64 {
    server(Flavor::Redis).command(&["ZCARD", &record(stores)]).integer()
}

fn record(stores: &TimedStores) -> String {
    format!("{}1n", stores.prefix())
}

/// 8 processes on one key: exactly the capacity plus the refill by the server's clock. A pause of
/// the machine of less than ten seconds does not fill the bucket.
#[test]
fn eight_processes_share_one_bucket() {
    const CAPACITY: u64 = 1_000;
    const PER_SECOND: u64 = 100;
    let policy = Policy::per_second(PER_SECOND).capacity(CAPACITY).build().unwrap();
    let limit = Limit::named("client", policy).unwrap();
    if let (Some(url), Some(prefix)) = (Peer::env_var(URL), Peer::env_var(PREFIX)) {
        return drain(&url, &prefix, &limit);
    }
    let (server, prefix) = (RedisServer::start(Flavor::Redis), prefix());
    let test_name = "sharing::eight_processes_share_one_bucket";
    let variables = [(URL, server.url()), (PREFIX, prefix.clone())];
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::spawn(test_name, &variables)).collect();
    for peer in &mut peers {
        assert_eq!(peer.line(), "ready");
    }
    let start = server_micros(&server);
    for peer in &mut peers {
        peer.send_line("go");
    }
    // Ten seconds of the server's clock.
    wait_until_server_time(&server, start + 10_000_000);
    for peer in &mut peers {
        peer.send_line("stop");
    }
    let counts: Vec<(u64, u64, u64)> = peers.iter_mut().map(|peer| numbers(&peer.line())).collect();
    let granted: u64 = counts.iter().map(|count| count.0).sum();
    let first = counts.iter().map(|count| count.1).min().unwrap();
    let last = counts.iter().map(|count| count.2).max().unwrap();
    assert!(counts.iter().all(|count| count.0 > 0), "{counts:?}");
    // The bucket was full at the first grant and empty at the last denial, so the grants are the
    // capacity plus the refill in between.
    let exact = CAPACITY + (last - first) * PER_SECOND / 1_000_000;
    assert!(granted.abs_diff(exact) <= 1, "{granted} granted, {exact} expected");
    assert!(last - first >= 9_000_000, "{} us", last - first);
}

/// Takes until told to stop, and reports the number of grants, and the server's time of the first
/// grant and the last denial.
fn drain(url: &str, prefix: &str, limit: &Limit) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::builder(url).prefix(prefix).open().unwrap();
        store.connected().await.unwrap();
        remaining(&store, limit, "a").await;
        Peer::report("ready");
        assert_eq!(Peer::read_line().as_deref(), Some("go"));
        let (stop, stopped) = std::sync::mpsc::channel();
        std::thread::spawn(move || stop.send(Peer::read_line()));
        let (mut granted, mut first, mut last) = (0_u64, u64::MAX, 0);
        loop {
            let (allowed, server_micros) = timed_take(&store, limit).await;
            if allowed {
                granted += 1;
                first = first.min(server_micros);
            } else {
                last = last.max(server_micros);
                if stopped.try_recv().is_ok() {
                    break;
                }
            }
        }
        Peer::report(&format!("{granted} {first} {last}"));
    });
}

/// Takes one token, and returns the server's time of the decision, from a second decision in the
/// same call, on a practically unlimited allowance.
async fn timed_take(store: &RedisStore, limit: &Limit) -> (bool, u64) {
    let clock = Limit::named("clock", Policy::allowance(1 << 50).unwrap()).unwrap();
    let (one, clock_charge) = ([Charge::new(limit, "a", 1)], [Charge::new(&clock, "now", 1)]);
    let operations = [Operation::Take(&one), Operation::Take(&clock_charge)];
    let mut answers = StoreResponses::new();
    store.submit(&operations, &mut answers).await;
    let mut decisions = answers.into_iter().map(|answer| match answer.unwrap() {
        StoreResponse::Decision(decision) => decision,
        other => panic!("{other:?} is not a decision"),
    });
    let (first, second) = (decisions.next().unwrap(), decisions.next().unwrap());
    (first.is_allowed(), second.granted().unwrap().receipt.start().as_nanos() / 1_000)
}

/// The slot of a killed process is free when its lease has expired, not before.
#[test]
fn a_killed_holder_frees_its_slot() {
    let lease = Duration::from_secs(2);
    let limit = Limit::named("calls", Policy::concurrency(1, Some(lease)).unwrap()).unwrap();
    if let (Some(url), Some(prefix)) = (Peer::env_var(URL), Peer::env_var(PREFIX)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let store = RedisStore::builder(&url).prefix(&*prefix).open().unwrap();
            store.connected().await.unwrap();
            granted(&store, &limit, "a", 1).await;
            Peer::report("holding");
            let _ = Peer::read_line();
        });
    }
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let test_name = "sharing::a_killed_holder_frees_its_slot";
    let mut peer = Peer::spawn(test_name, &[(URL, &server.url()), (PREFIX, &prefix)]);
    assert_eq!(peer.line(), "holding");
    let store = block_on(open(RedisStore::builder(&server.url()).prefix(&*prefix)));
    let denied = block_on(take(&store, &limit, "a", 1)).unwrap();
    assert!(!denied.is_allowed());
    let hint = denied.retry().unwrap().after().unwrap();
    assert!(hint <= lease, "{hint:?}");
    peer.kill();
    assert!(!block_on(take(&store, &limit, "a", 1)).unwrap().is_allowed(), "it may come back");
    wait_until("the lease to expire", || {
        block_on(take(&store, &limit, "a", 1)).unwrap().is_allowed().then_some(())
    });
}

fn numbers(line: &str) -> (u64, u64, u64) {
    let mut words = line.split(' ').map(|word| word.parse().unwrap());
    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap())
}
