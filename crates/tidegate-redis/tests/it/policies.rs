//! Policies of several nodes: who decides, who adopts, and what becomes of lost records.
//!
//! In every test the first node is the one that is behind: it holds a limit that the second node
//! has revised.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::{
    Answer, Answers, Change, Charge, Correction, Limit, Operation, Policy, Store as _,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, Proxy, RedisServer, wait_until};
use tidegate_testkit::subject::{ask, block_on};

use crate::fixture::{
    Crowd, Timed, capacity, granted, left, nodes, open, prefix, runtime, server, slow, story, take,
};

/// The limit with the policy of another one.
fn revised(limit: &Limit, like: &Limit) -> Limit {
    limit.revise(*like.policy(), Change::KeepTokens).unwrap()
}

/// Two nodes. The first has the limit `y` of ten tokens; the second has given it twenty, and has
/// spent one of the key `k`, which the first one has yet to meet.
async fn one_behind(server: &RedisServer) -> ([RedisStore; 2], Limit, String) {
    let (y, prefix) = (slow("y", 10), prefix());
    let stores: [RedisStore; 2] = nodes(server, &prefix).await;
    assert_eq!(left(&stores[0], &y, "other").await, 10);
    granted(&stores[1], &revised(&y, &slow("y", 20)), "k", 1).await;
    (stores, y, prefix)
}

/// A charge of nothing only reports its bucket. A node that found it under a newer policy had
/// already spent the rest of the list, and spent it again when it had learned the policy.
#[test]
fn who_reports_a_newer_policy_spends_once() {
    block_on(async {
        let ([one, _other], y, _) = one_behind(server(Flavor::Redis)).await;
        let x = slow("x", 10);
        let list = [Charge::new(&x, "k", 1), Charge::new(&y, "k", 0)];
        let answer = ask(&one, Operation::Take(&list)).await.unwrap();
        let Answer::Decision(decision) = answer else { panic!("{answer:?}") };
        let outcomes = decision.outcomes();
        assert_eq!((outcomes[0].remaining, outcomes[1].remaining), (9, 19));
        assert_eq!(outcomes[1].capacity, 20, "the newest policy is reported");
        assert_eq!(left(&one, &x, "k").await, 9);
    });
}

/// A bucket that is full is full under every policy, so nothing needs to be converted. The node
/// that is behind must learn all the same, before anything of its submission is carried out.
#[test]
fn who_finds_a_full_bucket_of_a_newer_policy_spends_once() {
    let fast = |capacity| Policy::per_second(1_000).capacity(capacity).build().unwrap();
    let y = Limit::named("y", fast(10)).unwrap();
    let x = slow("x", 10);
    let timed = block_on(Timed::with_nodes(Flavor::Redis, 2));
    let [one, other] = timed.nodes() else { panic!("two nodes") };
    block_on(async {
        assert_eq!(left(one, &y, "other").await, 10);
        granted(other, &y.revise(fast(20), Change::KeepTokens).unwrap(), "k", 1).await;
        timed.set(Timed::ORIGIN + Duration::from_secs(1));
        let (first, second) = ([Charge::new(&y, "k", 1)], [Charge::new(&x, "k", 1)]);
        let mut answers = Answers::new();
        one.submit(&[Operation::Take(&first), Operation::Take(&second)], &mut answers).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!([left(one, &y, "k").await, left(one, &x, "k").await], [19, 9]);
    });
}

/// The same with what is given back: a refund beside a newer policy was given twice.
#[test]
fn who_settles_beside_a_newer_policy_settles_once() {
    block_on(async {
        let ([one, _other], y, _) = one_behind(server(Flavor::Valkey)).await;
        let x = slow("x", 10);
        granted(&one, &x, "k", 8).await;
        let back = [Correction::new(&x, "k", -3), Correction::new(&y, "k", 0)];
        let settle = Operation::Settle { corrections: &back, receipt: None };
        let answer = ask(&one, settle).await.unwrap();
        let Answer::Settled(settlement) = answer else { panic!("{answer:?}") };
        assert_eq!(settlement.outcomes[0].remaining, 5);
        assert_eq!(left(&one, &x, "k").await, 5);
    });
}

/// And with slots: the lease of the first time would have been nobody's.
#[test]
fn who_takes_a_slot_beside_a_newer_policy_takes_one() {
    let calls = Limit::named("calls", Policy::concurrency(5, None).unwrap()).unwrap();
    block_on(async {
        let ([one, _other], y, _) = one_behind(server(Flavor::Redis)).await;
        let list = [Charge::new(&calls, "k", 1), Charge::new(&y, "k", 0)];
        ask(&one, Operation::Take(&list)).await.unwrap();
        assert_eq!(left(&one, &calls, "k").await, 4);
    });
}

/// Slots carry no policy, so nobody meets a newer one with them: heartbeats tell of it.
#[test]
fn a_newer_number_of_slots_comes_with_a_heartbeat() {
    let calls = |slots| Policy::concurrency(slots, None).unwrap();
    let limit = Limit::named("calls", calls(10)).unwrap();
    let fewer = limit.revise(calls(2), Change::KeepTokens).unwrap();
    let [one, other]: [RedisStore; 2] = block_on(nodes(server(Flavor::Redis), &prefix()));
    block_on(async {
        granted(&one, &limit, "k", 1).await;
        granted(&other, &fewer, "k", 1).await;
        assert!(!take(&other, &fewer, "k", 1).await.unwrap().is_allowed());
    });
    adopted(&one, &limit, 2);
    assert!(!block_on(take(&one, &limit, "k", 1)).unwrap().is_allowed());
}

/// A bucket that has become slots leaves nothing to meet either.
#[test]
fn another_kind_of_limit_comes_with_a_heartbeat() {
    let limit = slow("calls", 10);
    let slots = Policy::concurrency(2, None).unwrap();
    let slots = limit.revise(slots, Change::KeepTokens).unwrap();
    let [one, other]: [RedisStore; 2] = block_on(nodes(server(Flavor::Valkey), &prefix()));
    block_on(async {
        granted(&one, &limit, "k", 1).await;
        granted(&other, &slots, "k", 2).await;
    });
    adopted(&one, &limit, 2);
    assert!(!block_on(take(&one, &limit, "k", 1)).unwrap().is_allowed());
}

/// Waits until a node decides by a policy of this capacity.
fn adopted(store: &RedisStore, limit: &Limit, wanted: u64) {
    wait_until("the newer policy to be adopted", || {
        (block_on(capacity(store, limit, "elsewhere")) == wanted).then_some(())
    });
}

/// The server forgets everything. A node that is behind then meets a bucket under a policy that no
/// record has. It could not tell what that was and failed until somebody wrote it down again; now
/// such a bucket counts as empty, which is in nobody's favour.
#[test]
fn a_lost_record_stops_nobody() {
    let server = RedisServer::start(Flavor::Redis);
    block_on(async {
        let ([one, other], y, _) = one_behind(&server).await;
        let y2 = revised(&y, &slow("y", 20));
        let _ = server.command(&["FLUSHALL"]);
        granted(&other, &y2, "k", 1).await;
        let mut allowed = 1;
        for _ in 0..25 {
            for (store, limit) in [(&one, &y), (&other, &y2)] {
                allowed += u64::from(take(store, limit, "k", 1).await.unwrap().is_allowed());
            }
        }
        assert!(allowed <= 20, "{allowed} of twenty");
        granted(&one, &y, "a bucket of its own", 1).await;
    });
}

/// Whoever knows the newest policy confirms it with every heartbeat, so that a record that was
/// lost comes back, and the policy with it to those who had not heard of it.
#[test]
fn a_lost_record_comes_back_with_a_heartbeat() {
    let server = RedisServer::start(Flavor::Valkey);
    let ([one, _other], y, prefix) = block_on(one_behind(&server));
    let newest = || server.command(&["HGET", &format!("{prefix}1p:{{y}}"), "newest"]);
    let before = newest();
    let _ = server.command(&["FLUSHALL"]);
    wait_until("the record to be written again", || (newest() == before).then_some(()));
    adopted(&one, &y, 20);
}

/// A replica that lagged has become the server: its record lacks the newest policy, and a bucket
/// is under it. That costs the bucket its tokens, and nobody an answer.
#[test]
fn a_lost_revision_stops_nobody() {
    let server = RedisServer::start(Flavor::Redis);
    let (y, prefix) = (slow("y", 10), prefix());
    let y2 = revised(&y, &slow("y", 20));
    let record = format!("{prefix}1p:{{y}}");
    let newest = || server.command(&["HGET", &record, "newest"]).text();
    let [one, other]: [RedisStore; 2] = block_on(nodes(&server, &prefix));
    let lost = block_on(async {
        granted(&one, &y, "k", 1).await;
        let before = newest();
        granted(&other, &y2, "k", 1).await;
        let lost = newest();
        let _ = server.command(&["HDEL", &record, &lost]);
        let _ = server.command(&["HSET", &record, "newest", &before]);
        assert!(!take(&one, &y, "k", 9).await.unwrap().is_allowed());
        assert!(left(&one, &y, "k").await <= 8);
        assert!(left(&other, &y2, "k").await <= 8);
        lost
    });
    wait_until("the policy to be written again", || (newest() == lost).then_some(()));
}

/// A hot key is given a new policy through a slow line. Whoever still spends under the old one
/// changes the bucket between any two steps of the conversion; it got through by luck, or not.
#[test]
fn a_hot_key_is_converted_under_load() {
    const BEFORE: u64 = 400_000;
    let server = RedisServer::start(Flavor::Redis);
    let proxy = Proxy::start(server.address());
    let (y, prefix) = (slow("y", BEFORE), prefix());
    let y2 = revised(&y, &slow("y", BEFORE + 1));
    let stop = Arc::new(AtomicBool::new(false));
    let spent = block_on(async {
        let one = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let url = server.url_at(proxy.address());
        let other = open(RedisStore::builder(&url).prefix(&*prefix)).await;
        proxy.set_delay(Duration::from_millis(2));
        granted(&one, &y, "k", 1).await;
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (store, limit, stop) = (one.clone(), y.clone(), stop.clone());
                runtime().spawn(async move {
                    let mut spent = 0;
                    while !stop.load(Ordering::Relaxed) {
                        granted(&store, &limit, "k", 1).await;
                        spent += 1;
                    }
                    spent
                })
            })
            .collect();
        for _ in 0..5 {
            granted(&other, &y2, "k", 1).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut spent = 6;
        for caller in callers {
            spent += caller.await.unwrap();
        }
        assert_eq!(capacity(&one, &y, "k").await, BEFORE + 1);
        assert_eq!(left(&one, &y, "k").await, left(&other, &y2, "k").await);
        spent + left(&one, &y, "k").await
    });
    // A conversion keeps whole tokens, so at most the begun one is lost.
    assert!((BEFORE - 1..=BEFORE).contains(&spent), "{spent}");
}

/// Two hundred callers meet a newer policy at once. One of them asks for it.
#[test]
fn a_newer_policy_is_read_once_for_all_who_meet_it() {
    let server = RedisServer::start(Flavor::Redis);
    let y = slow("y", 1_000);
    let y2 = revised(&y, &slow("y", 900));
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(&server, &prefix()).await;
        granted(&one, &y, "a", 1).await;
        granted(&other, &y2, "a", 1).await;
        let before = server.calls_of("hgetall");
        let crowd = Crowd::on(std::iter::repeat_n(&one, 200), &y, 1);
        assert_eq!(crowd.allowed().await, 200);
        assert_eq!(left(&other, &y2, "a").await, 699);
        let reads = server.calls_of("hgetall") - before;
        assert!(reads <= 2, "{reads} reads of the record");
    });
}

/// A limit remembers 256 revisions before the present one, and so does its record. Those who reconfigure more often
/// than that between two uses of a bucket are told the right policy; the bucket is what it was,
/// or empty if nobody remembers what it was under.
#[test]
fn hundreds_of_revisions_between_two_uses() {
    block_on(async {
        let [one]: [RedisStore; 1] = nodes(server(Flavor::Redis), &prefix()).await;
        for revisions in [254, 255, 256, 257, 300] {
            let mut limit = slow(&format!("y{revisions}"), 1_000);
            granted(&one, &limit, "k", 1).await;
            for number in 1..=revisions {
                limit = revised(&limit, &slow("y", 2_000 + number));
            }
            let decision = take(&one, &limit, "k", 1).await.unwrap();
            let outcome = decision.outcomes()[0];
            assert_eq!(outcome.capacity, 2_000 + revisions);
            let remembered = outcome.remaining == 998;
            let forgotten = outcome.remaining == 0 && !decision.is_allowed();
            assert!(remembered || (forgotten && revisions > 256), "{revisions}: {outcome:?}");
        }
    });
}

/// Nodes that are reconfigured one after the other bring the same revisions. The second makes no
/// newer ones of them, which would convert every bucket again.
#[test]
fn what_another_node_has_enrolled_is_not_enrolled_again() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let first = slow("y", 10);
    let second = revised(&first, &slow("y", 20));
    let third = revised(&second, &slow("y", 30));
    let back = revised(&third, &slow("y", 10));
    let record = format!("{prefix}1p:{{y}}");
    let enrolled = || server.command(&["HGETALL", &record]).array().len();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server, &prefix).await;
        granted(&one, &first, "a", 1).await;
        granted(&other, &first, "b", 1).await;
        for limit in [&second, &third] {
            granted(&one, limit, "a", 1).await;
        }
        // Three policies and the number of the newest, by name and value.
        assert_eq!(enrolled(), 8);
        granted(&other, &third, "b", 1).await;
        assert_eq!(enrolled(), 8);
        // A policy of before is a new revision all the same.
        granted(&other, &back, "b", 1).await;
        granted(&one, &back, "a", 1).await;
        assert_eq!(enrolled(), 10);
        assert_eq!([left(&one, &back, "a").await, left(&other, &back, "b").await], [6, 7]);
    });
}

/// What cannot be counted is refused before anybody hears of it: a record of it would be
/// everybody's.
#[test]
fn an_uncountable_policy_is_not_recorded() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let total = Limit::named("total", Policy::allowance(10).unwrap()).unwrap();
    let huge = total.revise(Policy::allowance(u64::MAX).unwrap(), Change::KeepTokens).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server, &prefix).await;
        granted(&one, &total, "k", 1).await;
        let record = || server.command(&["HGETALL", &format!("{prefix}1p:{{total}}")]);
        let before = record();
        let error = take(&other, &huge, "k", 1).await.unwrap_err();
        assert!(error.is_callers_fault(), "{}", story(&error));
        assert_eq!(record(), before);
        assert_eq!(granted(&one, &total, "k", 1).await.outcomes[0].remaining, 8);
    });
}
