//! One bucket, one charge: the basic behaviour of every limiter.

use tidegate_core::{Charge, Policy, Retry};

use super::test_store::{SECOND, TestStore, bucket, millis, named};
use crate::subject::Subject;

/// R148, R154, R282: an unknown key is full; an allowed charge has no retry.
pub async fn an_unknown_key_is_full(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    let decision = store.take_from(&limit, "a", 1).await;
    assert!(decision.is_allowed());
    assert_eq!((decision.remaining(), decision.retry()), (9, None));
    let outcome = decision.outcomes()[0];
    assert_eq!((outcome.capacity, outcome.retry, outcome.reset), (10, None, Some(SECOND)));
}

/// R149, R283: the eleventh charge on ten tokens is denied, with a retry hint.
pub async fn the_eleventh_of_ten_is_denied(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    for call in 0..10 {
        assert!(store.take_from(&limit, "a", 1).await.is_allowed(), "call {call}");
    }
    let decision = store.take_from(&limit, "a", 1).await;
    assert_eq!(decision.retry(), Some(Retry::After(SECOND)));
    assert_eq!((decision.remaining(), decision.binding()), (0, 0));
}

/// R284: a charge may cost several tokens.
pub async fn a_charge_may_cost_several(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert_eq!(store.take_from(&limit, "a", 3).await.remaining(), 7);
}

/// R153: a clock that steps back grants nothing and forgets nothing.
pub async fn a_clock_that_steps_back_grants_nothing(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(10_000).await;
    assert_eq!(store.take_from(&limit, "a", 5).await.remaining(), 5);
    store.at(9_000).await;
    // No last-seen time is stored, so the token of the lost second is missing.
    assert_eq!(store.take_from(&limit, "a", 1).await.remaining(), 3);
    store.at(10_000).await;
    assert_eq!(store.remaining(&limit, "a").await, 4);
}

/// After a large step back the retry hint is at most capacity, debt and horizon away.
pub async fn the_wait_after_a_large_step_back_is_bounded(subject: &dyn Subject) {
    let store = TestStore(subject);
    let policy = Policy::per_second(1).capacity(10).max_horizon(SECOND).build();
    let limit = named("client", policy.expect("a valid policy"));
    store.at(100 * 86_400_000).await;
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    store.at(0).await;
    let retry = store.take_from(&limit, "a", 1).await.retry();
    assert_eq!(retry, Some(Retry::After(12 * SECOND)), "capacity + debt + horizon - 9 tokens");
    store.at(11_999).await;
    assert!(!store.take_from(&limit, "a", 1).await.is_allowed());
    store.at(12_000).await;
    assert!(store.take_from(&limit, "a", 1).await.is_allowed(), "the wait is bounded");
}

/// R155: refill is elapsed time multiplied by the rate, up to the capacity.
pub async fn refill_is_time_by_rate(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 2, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 6).await.is_allowed());
    store.at(2_000).await;
    assert_eq!(store.take_from(&limit, "a", 1).await.remaining(), 7);
    store.at(1_000_000).await;
    assert_eq!(store.remaining(&limit, "a").await, 10, "no more than the capacity");
}

/// R151, R169: a decision depends on the clock of the store and on no other.
pub async fn the_clock_of_the_store_decides(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    // While this clock stands still, any other clock goes on.
    for _ in 0..5 {
        assert_eq!(store.remaining(&limit, "a").await, 0);
    }
    for second in 1..=5 {
        store.at(second * 1_000).await;
        assert_eq!(store.remaining(&limit, "a").await, second, "after {second} s");
    }
}

/// R156: a denial spends nothing.
pub async fn a_denial_spends_nothing(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 7).await.is_allowed());
    for _ in 0..5 {
        assert_eq!(store.take_from(&limit, "a", 4).await.remaining(), 3);
    }
    assert!(store.take_from(&limit, "a", 3).await.is_allowed());
}

/// R157, R158: the retry hint is exact: a millisecond earlier is denied, at the hint it fits.
pub async fn the_hint_is_exact(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 2, 5));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 5).await.is_allowed());
    let retry = store.take_from(&limit, "a", 3).await.retry();
    assert_eq!(retry, Some(Retry::After(millis(1_500))));
    store.at(1_499).await;
    assert_eq!(store.take_from(&limit, "a", 3).await.retry(), Some(Retry::After(millis(1))));
    store.at(1_500).await;
    assert!(store.take_from(&limit, "a", 3).await.is_allowed());
}

/// R159: remaining is rounded down.
pub async fn remaining_is_whole(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    store.at(900).await;
    assert_eq!(store.remaining(&limit, "a").await, 0);
    store.at(1_000).await;
    assert_eq!(store.remaining(&limit, "a").await, 1);
}

/// R149, R160, R286: a cost above the capacity never fits.
pub async fn a_cost_above_capacity_never_fits(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    for cost in [11, 15, u64::MAX] {
        let decision = store.take_from(&limit, "a", cost).await;
        assert_eq!((decision.retry(), decision.remaining()), (Some(Retry::Never), 10), "{cost}");
    }
}

/// A cost of zero reports and never denies.
pub async fn a_cost_of_zero_reports(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    assert_eq!(store.take_from(&limit, "a", 0).await.remaining(), 10);
    assert!(store.take_from(&limit, "a", 10).await.is_allowed());
    let decision = store.take_from(&limit, "a", 0).await;
    assert!(decision.is_allowed());
    assert_eq!(decision.remaining(), 0);
}

/// A peek returns what a take would return, and spends nothing.
pub async fn a_peek_spends_nothing(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    store.at(0).await;
    for (key, cost) in [("a", 4), ("b", 10), ("c", 11)] {
        let charges = [Charge::new(&limit, key, cost)];
        let peeked = store.peek(&charges).await;
        assert_eq!(store.peek(&charges).await.outcomes(), peeked.outcomes(), "cost {cost}");
        let taken = store.take(&charges).await;
        assert_eq!(taken.is_allowed(), peeked.is_allowed(), "cost {cost}");
        assert_eq!(taken.outcomes(), peeked.outcomes(), "cost {cost}");
    }
}

/// R293: a day of polling neither loses nor gains a token.
pub async fn a_day_brings_no_drift(subject: &dyn Subject) {
    let store = TestStore(subject);
    let policy = Policy::per_minute(7).capacity(7).build().expect("a valid policy");
    let limit = named("client", policy);
    let mut admitted = 0;
    for minute in 0..=1_440_u64 {
        store.at(minute * 60_000).await;
        while store.take_from(&limit, "a", 1).await.is_allowed() {
            admitted += 1;
        }
    }
    assert_eq!(admitted, 7 + 7 * 1_440);
}

/// R171, R172, R411: no fraction is lost at any polling rate.
pub async fn no_fraction_is_lost_by_polling(subject: &dyn Subject) {
    let store = TestStore(subject);
    let runs = [
        ("one-100", "1/s", 10, 100, 100, 110),
        ("one-700", "1/s", 10, 700, 700, 710),
        ("one-900", "1/s", 10, 900, 900, 910),
        ("one-and-a-half", "1.5/s", 100, 10, 100, 250),
        ("seven-tenths", "0.7/s", 100, 10, 100, 170),
        ("almost-two", "1.999/s", 100, 10, 100, 299),
    ];
    for (name, rate, capacity, step, seconds, exact) in runs {
        let rate = rate.parse().expect("a valid rate");
        let policy = Policy::rate(rate).capacity(capacity).build().expect("a valid policy");
        let limit = named(name, policy);
        let mut admitted: u64 = 0;
        // The burst is spent first, so that the bucket is never full while it is polled.
        let (mut now, end) = (0, seconds * 1_000);
        store.at(0).await;
        while store.take_from(&limit, "a", 1).await.is_allowed() {
            admitted += 1;
        }
        while now < end {
            now += step;
            store.at(now).await;
            admitted += u64::from(store.take_from(&limit, "a", 1).await.is_allowed());
        }
        assert_eq!(admitted, exact, "{name}");
    }
}

/// R295: ten tenths of a second refill one whole token, which sums of floating-point numbers miss.
pub async fn tenths_of_a_second_add_up(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    for call in 0..15 {
        store.at(call * 100).await;
        let expected = (call > 10).then(|| Retry::After(millis(2_000 - call * 100)));
        assert_eq!(store.take_from(&limit, "a", 1).await.retry(), expected, "call {call}");
    }
}

/// A key is remembered until its bucket is full again, however long that takes.
pub async fn a_key_is_remembered_until_it_is_full(subject: &dyn Subject) {
    let store = TestStore(subject);
    let policy = Policy::per_day(1).capacity(40).build().expect("a valid policy");
    let (limit, day) = (named("client", policy), 86_400_000);
    store.at(0).await;
    assert!(store.take_from(&limit, "a", 40).await.is_allowed());
    for days in [1, 2, 8, 31] {
        store.at(days * day).await;
        assert_eq!(store.remaining(&limit, "a").await, days, "after {days} days");
    }
    store.at(40 * day - 1).await;
    assert_eq!(store.remaining(&limit, "a").await, 39);
}

/// No key is forgotten because of other keys.
pub async fn many_keys_are_remembered(subject: &dyn Subject) {
    let (store, limit) = (TestStore(subject), bucket("client", 1, 10));
    let keys: Vec<String> = (0..300).map(|number| format!("user:{number}")).collect();
    store.at(0).await;
    for key in &keys {
        assert!(store.take_from(&limit, key, 10).await.is_allowed(), "{key}");
    }
    for key in &keys {
        assert!(!store.take_from(&limit, key, 1).await.is_allowed(), "{key}");
    }
}
