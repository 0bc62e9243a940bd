//! Several nodes and several processes on one server.

use std::time::Duration;

use tidegate_core::{Answer, Answers, Change, Charge, Limit, Operation, Policy, Store as _};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, Peer, RedisServer, wait_until};
use tidegate_testkit::subject::{ask, block_on};

use crate::fixture::{granted, left, open, prefix, runtime, server, slow, take};

/// What a peer is told: the server and the prefix.
const URL: &str = "TIDEGATE_TEST_URL";
const PREFIX: &str = "TIDEGATE_TEST_PREFIX";

async fn nodes<const N: usize>(server: &RedisServer) -> [RedisStore; N] {
    let prefix = prefix();
    let mut stores = Vec::new();
    for _ in 0..N {
        stores.push(open(RedisStore::builder(&server.url()).prefix(&*prefix)).await);
    }
    stores.try_into().unwrap()
}

/// R150, R285: fifteen at once on ten tokens, from two nodes.
#[test]
fn fifteen_at_once_on_ten_from_two_nodes() {
    let limit = slow("client", 10);
    let allowed = block_on(async {
        let stores: [RedisStore; 2] = nodes(server(Flavor::Redis)).await;
        let calls: Vec<_> = (0..15)
            .map(|call| {
                let (store, limit) = (stores[call % 2].clone(), limit.clone());
                runtime()
                    .spawn(async move { take(&store, &limit, "a", 1).await.unwrap().is_allowed() })
            })
            .collect();
        let mut allowed = 0;
        for call in calls {
            allowed += u64::from(call.await.unwrap());
        }
        allowed
    });
    assert_eq!(allowed, 10);
}

/// A receipt of one node is taken back by another.
#[test]
fn receipts_are_good_on_every_node() {
    let limit = slow("client", 10);
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Valkey)).await;
        let receipt = granted(&one, &limit, "a", 6).await.receipt;
        let back = [tidegate_core::Correction::new(&limit, "a", -4)];
        let settle = Operation::Settle { corrections: &back, receipt: Some(&receipt) };
        let answer = ask(&other, settle).await.unwrap();
        let Answer::Settled(settlement) = answer else { panic!("{answer:?}") };
        assert_eq!(settlement.outcomes[0].remaining, 8);
    });
}

/// A node that was given a new policy decides for all; the others adopt it when they meet it.
#[test]
fn the_newest_policy_decides_on_every_node() {
    let old = slow("client", 10);
    let new = old.revise(*slow("x", 4).policy(), Change::KeepTokens).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Redis)).await;
        granted(&one, &old, "a", 1).await;
        granted(&other, &old, "b", 1).await;
        // Nine tokens were left; four fit under the new policy.
        assert_eq!(granted(&one, &new, "a", 1).await.outcomes[0].remaining, 3);
        let decision = take(&other, &old, "a", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (4, 2));
        // From then on it counts for every key of the limit, also those that nobody has touched.
        let decision = take(&other, &old, "c", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (4, 3));
        assert_eq!(left(&one, &new, "b").await, 4);
    });
}

/// A node that starts with the present policy joins; one that starts with another one changes it.
#[test]
fn a_node_that_starts_brings_its_policy() {
    let server = server(Flavor::Redis);
    let prefix = prefix();
    let node = || open(RedisStore::builder(&server.url()).prefix(&*prefix));
    block_on(async {
        let one = node().await;
        granted(&one, &slow("client", 10), "a", 3).await;
        let same = node().await;
        assert_eq!(granted(&same, &slow("client", 10), "a", 3).await.outcomes[0].remaining, 4);
        let other = node().await;
        assert_eq!(granted(&other, &slow("client", 20), "a", 1).await.outcomes[0].remaining, 3);
        let decision = take(&one, &slow("client", 10), "a", 1).await.unwrap();
        assert_eq!((decision.outcomes()[0].capacity, decision.remaining()), (20, 2));
    });
}

/// Nodes know of each other, and notice when one has gone.
#[test]
fn nodes_are_counted() {
    let server = RedisServer::start(Flavor::Redis);
    let [one, other]: [RedisStore; 2] = block_on(nodes(&server));
    wait_until("two nodes to meet", || (one.nodes().map(u32::from) == Some(2)).then_some(()));
    drop(other);
}

/// 8 processes on one key: exactly the capacity and what came meanwhile, by the server's clock.
#[test]
fn eight_processes_share_one_bucket() {
    const CAPACITY: u64 = 100;
    const PER_SECOND: u64 = 500;
    let policy = Policy::per_second(PER_SECOND).capacity(CAPACITY).build().unwrap();
    let limit = Limit::named("client", policy).unwrap();
    if let (Some(url), Some(prefix)) = (Peer::told(URL), Peer::told(PREFIX)) {
        return drain(&url, &prefix, &limit);
    }
    let (server, prefix) = (RedisServer::start(Flavor::Redis), prefix());
    let here = "sharing::eight_processes_share_one_bucket";
    let told = [(URL, server.url()), (PREFIX, prefix.clone())];
    let told: Vec<(&str, &str)> =
        told.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut peers: Vec<Peer> = (0..8).map(|_| Peer::spawn(here, &told)).collect();
    for peer in &mut peers {
        assert_eq!(peer.line(), "ready");
    }
    let start = micros(&server);
    for peer in &mut peers {
        peer.say("go");
    }
    // Ten seconds of the server's clock.
    wait_until_late(&server, start + 10_000_000);
    for peer in &mut peers {
        peer.say("stop");
    }
    let counts: Vec<(u64, u64, u64)> = peers.iter_mut().map(|peer| numbers(&peer.line())).collect();
    let granted: u64 = counts.iter().map(|count| count.0).sum();
    let first = counts.iter().map(|count| count.1).min().unwrap();
    let last = counts.iter().map(|count| count.2).max().unwrap();
    assert!(counts.iter().all(|count| count.0 > 0), "{counts:?}");
    // The bucket was full at the first grant and empty at the last denial, so what was granted is
    // the capacity and what came between the two.
    let exact = CAPACITY + (last - first) * PER_SECOND / 1_000_000;
    assert!(granted.abs_diff(exact) <= 1, "{granted} granted, {exact} came");
    assert!(last - first >= 9_000_000, "{} us", last - first);
}

/// Takes until told to stop, and reports how many, and the server's time of its first grant and
/// its last denial.
fn drain(url: &str, prefix: &str, limit: &Limit) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedisStore::builder(url).prefix(prefix).open().unwrap();
        store.connected().await.unwrap();
        left(&store, limit, "a").await;
        Peer::report("ready");
        assert_eq!(Peer::heard().as_deref(), Some("go"));
        let (stop, stopped) = std::sync::mpsc::channel();
        std::thread::spawn(move || stop.send(Peer::heard()));
        let (mut granted, mut first, mut last) = (0_u64, u64::MAX, 0);
        loop {
            let (allowed, micros) = timed_take(&store, limit).await;
            if allowed {
                granted += 1;
                first = first.min(micros);
            } else {
                last = last.max(micros);
                if stopped.try_recv().is_ok() {
                    break;
                }
            }
        }
        Peer::report(&format!("{granted} {first} {last}"));
    });
}

/// Takes one token, and tells the server's time of the decision: that of a second decision in the
/// same call, on an allowance that does not run out.
async fn timed_take(store: &RedisStore, limit: &Limit) -> (bool, u64) {
    let clock = Limit::named("clock", Policy::allowance(1 << 50).unwrap()).unwrap();
    let (one, look) = ([Charge::new(limit, "a", 1)], [Charge::new(&clock, "now", 1)]);
    let operations = [Operation::Take(&one), Operation::Take(&look)];
    let mut answers = Answers::new();
    store.submit(&operations, &mut answers).await;
    let mut decisions = answers.into_iter().map(|answer| match answer.unwrap() {
        Answer::Decision(decision) => decision,
        other => panic!("{other:?} is not a decision"),
    });
    let (first, second) = (decisions.next().unwrap(), decisions.next().unwrap());
    (first.is_allowed(), second.granted().unwrap().receipt.start().as_nanos() / 1_000)
}

/// The server's time.
fn micros(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).array();
    let mut words = time.into_iter().map(|word| word.text().parse::<u64>().unwrap());
    words.next().unwrap() * 1_000_000 + words.next().unwrap()
}

/// Waits for the server's clock. Unlike `wait_until` it may take longer than a test is patient.
fn wait_until_late(server: &RedisServer, end: u64) {
    while micros(server) < end {
        let second = (micros(server) + 1_000_000).min(end);
        wait_until("a second to pass", || (micros(server) >= second).then_some(()));
    }
}

/// A process that dies holding a slot frees it when its lease has run out, not before.
#[test]
fn a_killed_holder_frees_its_slot() {
    let lease = Duration::from_secs(2);
    let limit = Limit::named("calls", Policy::concurrency(1, Some(lease)).unwrap()).unwrap();
    if let (Some(url), Some(prefix)) = (Peer::told(URL), Peer::told(PREFIX)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(async {
            let store = RedisStore::builder(&url).prefix(&*prefix).open().unwrap();
            store.connected().await.unwrap();
            granted(&store, &limit, "a", 1).await;
            Peer::report("holding");
            let _ = Peer::heard();
        });
    }
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let here = "sharing::a_killed_holder_frees_its_slot";
    let mut peer = Peer::spawn(here, &[(URL, &server.url()), (PREFIX, &prefix)]);
    assert_eq!(peer.line(), "holding");
    let store = block_on(open(RedisStore::builder(&server.url()).prefix(&*prefix)));
    let denied = block_on(take(&store, &limit, "a", 1)).unwrap();
    assert!(!denied.is_allowed());
    let hint = denied.retry().unwrap().after().unwrap();
    assert!(hint <= lease, "{hint:?}");
    peer.kill();
    assert!(!block_on(take(&store, &limit, "a", 1)).unwrap().is_allowed(), "it may come back");
    wait_until("the lease to run out", || {
        block_on(take(&store, &limit, "a", 1)).unwrap().is_allowed().then_some(())
    });
}

fn numbers(line: &str) -> (u64, u64, u64) {
    let mut words = line.split(' ').map(|word| word.parse().unwrap());
    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap())
}
