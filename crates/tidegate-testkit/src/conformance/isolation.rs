//! Isolation between keys, limits, groups and inline parameters.

use tidegate_core::{Charge, Key, Limit, Policy, Target};

use super::test_store::{SECOND, TestStore, bucket};
use crate::subject::Subject;

/// R287, R292: use of one key does not affect another.
pub async fn keys_are_independent(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "user:1", 10).await.is_allowed());
    assert_eq!(store.take_from(&limit, "user:2", 1).await.remaining(), 9);
    assert!(!store.take_from(&limit, "user:1", 1).await.is_allowed());
}

/// R164-R166, R288, R289: two limits on one store never share a bucket, even for equal keys.
pub async fn limits_are_independent(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (cheap, expensive) = (bucket("cheap", 1, 10), bucket("expensive", 1, 5));
    store.at(0).await;
    assert!(store.take_from(&cheap, "user:1", 10).await.is_allowed());
    assert_eq!(store.take_from(&expensive, "user:1", 1).await.remaining(), 4);
    let equal = bucket("same-parameters-as-cheap", 1, 10);
    assert_eq!(store.take_from(&equal, "user:1", 1).await.remaining(), 9);
}

/// A limit name and a key that concatenate to the same text do not collide.
pub async fn limit_names_and_keys_do_not_collide(subject: &dyn Subject) {
    let store = TestStore(subject);
    let (short, long) = (bucket("a", 1, 10), bucket("ab", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&short, "bc", 10).await.is_allowed());
    assert_eq!(store.remaining(&long, "c").await, 10);
    assert_eq!(store.remaining(&short, Key::new("c").in_group("b")).await, 10);
    assert_eq!(store.remaining(&short, Key::new("b").in_group("c")).await, 10);
}

/// The group of a key is part of its identity.
pub async fn groups_are_part_of_the_identity(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let acme = Key::new("alice").in_group("acme");
    assert!(store.take(&[Charge::new(&limit, acme, 10)]).await.is_allowed());
    assert_eq!(store.remaining(&limit, acme).await, 0);
    assert_eq!(store.remaining(&limit, Key::new("alice").in_group("other")).await, 10);
    assert_eq!(store.remaining(&limit, "alice").await, 10);
}

/// Keys are compared byte by byte: without regard to a collation, a normal form or an escape.
pub async fn keys_are_compared_byte_by_byte(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    let keys = [
        "alice",
        "Alice",
        "alice ",
        " alice",
        "alic\u{e9}",
        "alice\u{301}",
        "alice\0",
        "alice\n",
        "'alice'",
        "\"alice\"",
        "alice%",
        "alice%20",
        "alic_",
        "\\alice",
        "alice;--",
        "\u{1f30a}",
    ];
    store.at(0).await;
    for key in keys {
        assert!(store.take_from(&limit, key, 10).await.is_allowed(), "{key:?} is new");
    }
    for key in keys {
        assert!(!store.take_from(&limit, key, 1).await.is_allowed(), "{key:?} is used up");
    }
}

/// Inline limits are identified by their parameters: equal ones share buckets, others do not.
pub async fn inline_limits_are_their_parameters(subject: &dyn Subject) {
    let store = TestStore(subject);
    let inline = |capacity| {
        let policy = Policy::per_second(1).capacity(capacity).build();
        Limit::inline(policy.expect("a valid policy"))
    };
    store.at(0).await;
    assert!(store.take_from(&inline(10), "a", 10).await.is_allowed());
    assert_eq!(store.remaining(&inline(10), "a").await, 0);
    assert_eq!(store.remaining(&inline(11), "a").await, 11);
    assert_eq!(store.remaining(&bucket("client", 1, 10), "a").await, 10);
}

/// A reset clears use and hold of one key, and of no other.
pub async fn a_reset_forgets_one_key(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    for key in ["a", "b"] {
        assert!(store.take_from(&limit, key, 10).await.is_allowed());
        store.hold(&limit, key, 60 * SECOND).await;
    }
    assert!(store.reset(Target::new(&limit, "a")).await, "there was something to forget");
    assert!(!store.reset(Target::new(&limit, "a")).await, "nothing is left to forget");
    assert!(!store.reset(Target::new(&limit, "never-seen")).await);
    assert_eq!(store.take_from(&limit, "a", 10).await.remaining(), 0);
    assert!(!store.take_from(&limit, "b", 1).await.is_allowed());
}
