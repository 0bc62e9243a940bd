//! Reproducers of faults found while the tests were written.

use std::time::Duration;

use tidegate_core::{Change, Charge, Limit, Operation, Policy, Target};
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, Proxy, RedisServer, wait_until};
use tidegate_testkit::subject::{ask, block_on};

use crate::fixture::{
    Timed, capacity, granted, left, nodes, open, prefix, runtime, server, slow, story, take,
};

fn revised(limit: &Limit, like: &Limit) -> Limit {
    limit.revise(*like.policy(), Change::KeepTokens).unwrap()
}

fn allowance(amount: u64) -> Policy {
    Policy::allowance(amount).unwrap()
}

/// F1: a node that met a bucket under a lost number never adopts that policy.
#[test]
fn f1_a_policy_that_was_lost_for_a_while_is_adopted() {
    let server = RedisServer::start(Flavor::Redis);
    let (y, prefix) = (slow("y", 10), prefix());
    let y2 = revised(&y, &slow("y", 20));
    let [one, other]: [RedisStore; 2] = block_on(nodes(&server, &prefix));
    let newest = || server.command(&["HGET", &format!("{prefix}1p:{{y}}"), "newest"]);
    block_on(left(&one, &y, "other"));
    block_on(granted(&other, &y2, "k", 1));
    let before = newest();
    let _ = server.command(&["FLUSHALL"]);
    block_on(granted(&other, &y2, "k", 1));
    let _ = block_on(take(&one, &y, "k", 1)).unwrap();
    wait_until("the record", || (newest() == before).then_some(()));
    wait_until("the policy to be adopted", || {
        (block_on(capacity(&one, &y, "else")) == 20).then_some(())
    });
}

/// F2: a revision that was refused is enrolled with the next one, and the record is nonsense to
/// everybody from then on.
#[test]
fn f2_a_refused_revision_is_left_out() {
    let total = Limit::named("total", allowance(10)).unwrap();
    let huge = total.revise(allowance(u64::MAX), Change::KeepTokens).unwrap();
    let back = huge.revise(allowance(20), Change::KeepTokens).unwrap();
    block_on(async {
        let [one]: [RedisStore; 1] = nodes(server(Flavor::Redis), &prefix()).await;
        granted(&one, &total, "k", 1).await;
        assert!(take(&one, &huge, "k", 1).await.is_err());
        assert_eq!(granted(&one, &back, "k", 1).await.outcomes[0].remaining, 18);
    });
}

/// F2b: the same by a renewal, which does not look whether the policy can be counted.
#[test]
fn f2b_a_renewal_enrols_no_uncountable_policy() {
    let slots = |n| Policy::concurrency(n, Some(Duration::from_secs(60))).unwrap();
    let calls = Limit::named("calls", slots(5)).unwrap();
    let huge = calls.revise(slots(1 << 40), Change::KeepTokens).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Redis), &prefix()).await;
        let receipt = granted(&one, &calls, "k", 1).await.receipt;
        let targets = [Target::new(&huge, "k")];
        let _ = ask(&one, Operation::Renew { targets: &targets, receipt: &receipt }).await;
        assert_eq!(left(&other, &calls, "k").await, 4);
    });
}

/// F3: a record of policies of a wrong type fails whoever goes with the same call, and what they
/// had taken of slots stays taken.
#[test]
fn f3_a_strange_record_concerns_nobody_else() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let proxy = Proxy::start(server.address());
    let calls = Limit::named("calls", Policy::concurrency(50, None).unwrap()).unwrap();
    let bad = slow("bad", 5);
    let _ = server.command(&["SET", &format!("{prefix}1p:{{bad}}"), "whatever"]);
    block_on(async {
        let url = server.url_at(proxy.address());
        let store = open(RedisStore::builder(&url).prefix(&*prefix)).await;
        left(&store, &calls, "a").await;
        proxy.set_delay(Duration::from_millis(30));
        let crowd: Vec<_> = (0..12)
            .map(|n| {
                let (store, limit) =
                    (store.clone(), if n == 6 { bad.clone() } else { calls.clone() });
                runtime().spawn(async move { take(&store, &limit, "a", 1).await })
            })
            .collect();
        let mut fine = 0;
        for call in crowd {
            fine += u64::from(call.await.unwrap().is_ok());
        }
        assert_eq!((fine, left(&store, &calls, "a").await), (11, 39), "granted, left of 50");
    });
}

/// F3b: a bucket's key of a wrong type is overwritten.
#[test]
fn f3b_what_is_not_the_stores_is_not_overwritten() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let key = format!("{prefix}1:{{a}}:client");
    let _ = server.command(&["RPUSH", &key, "whatever"]);
    block_on(async {
        let store = open(RedisStore::builder(&server.url()).prefix(&*prefix)).await;
        let answer = take(&store, &slow("client", 5), "a", 1).await;
        assert_eq!(server.command(&["TYPE", &key]).text(), "list", "{answer:?}");
        assert!(story(&answer.unwrap_err()).contains("not the store's"));
    });
}

/// F4: two nodes that both revise a limit to the policy that it has, with a reset: everybody
/// starts full twice.
#[test]
fn f4_a_reset_to_the_same_policy_counts_once() {
    let total = Limit::named("total", allowance(32)).unwrap();
    let again = total.revise(allowance(32), Change::Reset).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server(Flavor::Redis), &prefix()).await;
        granted(&one, &total, "a", 1).await;
        left(&other, &total, "a").await;
        granted(&one, &again, "c", 32).await;
        assert!(!take(&other, &again, "c", 1).await.unwrap().is_allowed());
    });
}

/// F5: there and back again between two uses, on one node: the reset is lost.
#[test]
fn f5_there_and_back_is_two_revisions() {
    let total = Limit::named("total", allowance(32)).unwrap();
    let there = total.revise(allowance(10), Change::KeepTokens).unwrap();
    let back = there.revise(allowance(32), Change::Reset).unwrap();
    block_on(async {
        let [one]: [RedisStore; 1] = nodes(server(Flavor::Redis), &prefix()).await;
        granted(&one, &total, "a", 30).await;
        assert_eq!(left(&one, &back, "a").await, 32);
    });
}

/// F6: a node that brings several revisions enrols those again that another node has enrolled,
/// unless the last of them is the newest: a reset in the middle is then made twice.
#[test]
fn f6_what_is_enrolled_is_not_enrolled_again() {
    let (server, prefix) = (server(Flavor::Redis), prefix());
    let first = Limit::named("total", allowance(30)).unwrap();
    let second = first.revise(allowance(31), Change::KeepTokens).unwrap();
    let third = second.revise(allowance(32), Change::Reset).unwrap();
    let fourth = third.revise(allowance(33), Change::KeepTokens).unwrap();
    block_on(async {
        let [one, other]: [RedisStore; 2] = nodes(server, &prefix).await;
        granted(&one, &first, "a", 1).await;
        left(&other, &first, "a").await;
        granted(&one, &third, "a", 32).await;
        let decision = take(&other, &fourth, "a", 20).await.unwrap();
        let record = server.command(&["HGETALL", &format!("{prefix}1p:{{total}}")]).array();
        assert!(!decision.is_allowed(), "{decision:?}");
        assert_eq!(record.len() / 2, 5, "four policies, and which is the newest");
    });
}

/// F7: a limit remembers 256 revisions before the present one, its record one less.
#[test]
fn f7_256_revisions_are_remembered() {
    let mut limit = slow("y", 1_000);
    block_on(async {
        let [one]: [RedisStore; 1] = nodes(server(Flavor::Redis), &prefix()).await;
        granted(&one, &limit, "k", 1).await;
        for number in 1..=256 {
            limit = revised(&limit, &slow("y", 2_000 + number));
        }
        assert_eq!(take(&one, &limit, "k", 1).await.unwrap().remaining(), 998);
    });
}

/// M1: a look at leases that have run out forgets them in the process and not in the server.
#[test]
fn m1_a_look_at_leases_before_a_clock_steps_back() {
    let policy = Policy::concurrency(5, Some(Duration::from_secs(1))).unwrap();
    let calls = Limit::named("calls", policy).unwrap();
    let timed = block_on(Timed::new(Flavor::Redis));
    let store = &timed.nodes()[0];
    block_on(granted(store, &calls, "a", 1));
    timed.set(Timed::ORIGIN + Duration::from_secs(60));
    let one = [Charge::new(&calls, "a", 1)];
    block_on(ask(store, Operation::Peek(&one))).unwrap();
    timed.set(Timed::ORIGIN);
    assert_eq!(block_on(left(store, &calls, "a")), 5, "as in the process");
}
