//! A store that takes only, in an engine: it decides takes and peeks, and refuses the rest by name,
//! when a limit is created or changed if that is early enough to know.

use std::collections::HashMap;
use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::admission::{Admission, Caller, Rules};
use tidegate::guard::GuardedStore;
use tidegate::pacer::AcquireError;
use tidegate::{Engine, LimitError, Policy, PolicyChange, PolicyError, Receipt, Retry, StoreError};
use tidegate_core::{ExactTime, TakeFuture, TakeOnly, TakeStore, Time, TokenBucket, Unsupported};

const SECOND: Duration = Duration::from_secs(1);

/// Buckets whose clock stands still, unless they are down.
#[derive(Debug, Default)]
struct Buckets {
    is_down: AtomicBool,
    tats: Mutex<HashMap<String, ExactTime>>,
}

impl TakeStore for Buckets {
    fn take<'a>(&'a self, bucket: &'a str, cost: u64, policy: &'a TokenBucket) -> TakeFuture<'a> {
        if self.is_down.load(Ordering::SeqCst) {
            return Box::pin(ready(Err(StoreError::Unavailable("no connection".into()))));
        }
        let mut tats = self.tats.lock().unwrap();
        let tat = tats.get(bucket).copied().unwrap_or_default();
        let (tat, outcome) = policy.take(tat, cost, Time::from_nanos(1));
        tats.insert(bucket.to_owned(), tat);
        Box::pin(ready(Ok(outcome)))
    }
}

fn engine() -> Engine {
    Engine::shared(TakeOnly(Buckets::default())).unwrap()
}

fn per_second(burst: u64) -> Policy {
    Policy::per_second(1).burst(burst).build().unwrap()
}

#[tokio::test]
async fn takes_and_peeks_are_decided() {
    let engine = engine();
    let limiter = engine.limiter("api", per_second(10)).unwrap();
    assert_eq!(limiter.peek("alice").cost(3).await.unwrap().remaining(), 7);
    assert_eq!(limiter.take("alice").cost(3).await.unwrap().remaining(), 7);
    let denied = limiter.take("alice").cost(9).await.unwrap();
    assert_eq!((denied.remaining(), denied.retry()), (7, Some(Retry::After(2 * SECOND))));
    assert_eq!(limiter.peek("alice").cost(9).await.unwrap().retry(), denied.retry());
    assert_eq!(limiter.peek("alice").cost(11).await.unwrap().retry(), Some(Retry::Never));
    // A list is fine as long as it is on one bucket.
    let list = engine.take([limiter.charge("alice", 1), limiter.charge("alice", 2)]);
    assert_eq!(list.await.unwrap().remaining(), 4);
    // Also one that a caller has described without a name.
    let inline = engine.inline(per_second(10)).unwrap();
    assert_eq!(inline.take("alice").await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn other_operations_are_refused_and_the_store_stays_up() {
    let guard = GuardedStore::builder(Arc::new(TakeOnly(Buckets::default()))).build().unwrap();
    let engine = Engine::on(guard.clone());
    let limiter = engine.limiter("api", per_second(10)).unwrap();
    let other = engine.limiter("other", per_second(10)).unwrap();
    let refused = |error: StoreError| match error {
        StoreError::Unsupported(unsupported) => unsupported,
        other => panic!("{other:?}"),
    };
    let receipt = Receipt::default();
    for _ in 0..3 {
        let found = [
            refused(limiter.reserve("a", SECOND).await.unwrap_err()),
            refused(limiter.settle("a", -1, None).await.unwrap_err()),
            refused(limiter.hold("a", SECOND).await.unwrap_err()),
            refused(limiter.reset("a").await.unwrap_err()),
            refused(limiter.release("a", &receipt).await.unwrap_err()),
            refused(limiter.renew("a", &receipt).await.unwrap_err()),
            refused(engine.take([limiter.charge("a", 1), other.charge("a", 1)]).await.unwrap_err()),
        ];
        let expected = [
            Unsupported::Reserve,
            Unsupported::Settle,
            Unsupported::Hold,
            Unsupported::Reset,
            Unsupported::Release,
            Unsupported::Renew,
            Unsupported::List,
        ];
        assert_eq!(found, expected);
    }
    let waiting = limiter.wait("a").await.unwrap_err();
    let AcquireError::Store(error) = waiting else { panic!("{waiting:?}") };
    assert_eq!(refused(error), Unsupported::Reserve);
    assert!(guard.is_up(), "refusing is an answer");
    assert_eq!(limiter.take("a").await.unwrap().remaining(), 9, "nothing was spent");
}

#[tokio::test]
async fn policies_that_cannot_be_decided_are_refused_when_the_limit_is_created() {
    let engine = engine();
    for policy in [Policy::allowance(5).unwrap(), Policy::concurrency(5, None).unwrap()] {
        let expected = LimitError::Unsupported(Unsupported::Policy);
        assert_eq!(engine.limiter("api", policy).unwrap_err(), expected);
        assert_eq!(engine.inline(policy).unwrap_err(), expected);
    }
    let daily = tidegate::Schedule::daily("UTC").unwrap();
    assert!(engine.calendar("daily", 5, daily.clone()).is_err());
    assert!(engine.inline_calendar("day:UTC", 5, daily).is_err());
    assert!(engine.find("api").is_none(), "the name is still free");
    let strict = Policy::strict_window(5, SECOND, 2).unwrap();
    assert!(engine.limiter("api", strict).is_ok(), "a strict window is a token bucket");
}

#[tokio::test]
async fn a_changed_policy_starts_with_full_buckets_or_is_refused() {
    let engine = engine();
    let limiter = engine.limiter("api", per_second(10)).unwrap();
    assert!(limiter.take("a").cost(10).await.unwrap().is_allowed());
    let refused = LimitError::Unsupported(Unsupported::PolicyChange);
    for change in [PolicyChange::KeepTokens, PolicyChange::Proportional] {
        assert_eq!(limiter.reconfigure(per_second(20), change).unwrap_err(), refused);
    }
    assert!(!limiter.take("a").await.unwrap().is_allowed(), "the old policy stays in force");
    limiter.reconfigure(per_second(20), PolicyChange::Reset).unwrap();
    assert_eq!(limiter.take("a").await.unwrap().remaining(), 19);
    // A name that comes back with another policy would keep its tokens.
    assert!(engine.retire("api"));
    assert_eq!(engine.limiter("api", per_second(30)).unwrap_err(), refused);
    assert!(engine.limiter("api", per_second(20)).is_ok());
}

#[tokio::test]
async fn admission_by_client_works_and_its_changes_are_checked() {
    let rules = || Rules::none().client(per_second(2));
    let admission = Admission::new(&engine(), rules()).unwrap();
    let caller = Caller::new().organization("acme").client("alice");
    assert!(admission.admit(caller).await.unwrap().is_admitted());
    admission.reconfigure(rules().backpressure(5), PolicyChange::KeepTokens).unwrap();
    let changed = || rules().client(per_second(3));
    assert!(admission.reconfigure(changed(), PolicyChange::KeepTokens).is_err());
    assert_eq!(admission.rules().client_policy(), Some(&per_second(2)));
    admission.reconfigure(changed(), PolicyChange::Reset).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_fails_its_probe() {
    let buckets = Arc::new(Buckets::default());
    let guard = GuardedStore::builder(Arc::new(TakeOnly(buckets.clone()))).build().unwrap();
    let limiter = Engine::on(guard.clone()).limiter("api", per_second(10)).unwrap();
    buckets.is_down.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let decision = limiter.take("a").await.unwrap();
        assert!(decision.degraded().is_some(), "the failure rule decides");
    }
    assert!(!guard.is_up());
    tokio::time::sleep(60 * SECOND).await;
    assert!(!guard.is_up(), "the probe fails as well");
    buckets.is_down.store(false, Ordering::SeqCst);
    while !guard.check().await {
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(limiter.take("a").await.unwrap().degraded(), None);
}

#[test]
fn errors_say_what_to_do() {
    let text = StoreError::from(Unsupported::List).to_string();
    assert_eq!(
        text,
        "the store implements TakeStore only and cannot decide several buckets together; use one \
         that implements Store"
    );
    assert!(StoreError::from(Unsupported::List).is_caller_error());
    assert_ne!(text, PolicyError::NotABucket.to_string());
}
