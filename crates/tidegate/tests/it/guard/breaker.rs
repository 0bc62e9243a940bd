//! When the store counts as down, and how it comes back.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::FailureRule::{Local, Open};
use tidegate::guard::GuardedStore;
use tidegate::{Engine, MemoryStore, Store, StoreError, StoreHandle};
use tidegate_core::{Charge, Operation, StoreResponse, StoreResponses};
use tidegate_testkit::faulty_store::{Behaviour, FaultyStore, Timing};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span;

use super::faulty::{
    FaultMode, MILLI, SECOND, TIMEOUT, bring_down, bring_up, execute, faulty, guard_of, guarded,
    limiter, named, per_second, take,
};

#[tokio::test(start_paused = true)]
async fn callers_pay_no_timeout_once_the_breaker_is_open() {
    for (mode, cost) in [(FaultMode::Hangs, TIMEOUT * 3), (FaultMode::Refuses, Duration::ZERO)] {
        let (store, guard, limiter) = guarded(per_second(1, 10));
        store.set(mode);
        let start = Instant::now();
        for number in 0..3 {
            assert!(guard.is_up(), "{mode:?} {number}");
            assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
        }
        assert_eq!((guard.is_up(), start.elapsed()), (false, cost));
        for _ in 0..1_000 {
            assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
        }
        assert_eq!(start.elapsed(), cost, "{mode:?} costs no time");
        assert_eq!(store.submissions(), 3, "{mode:?} is not called");
        assert_eq!((guard.stats().outages, guard.stats().local), (1, 1_003));
    }
}

/// Concurrent callers pay one timeout, not three.
#[tokio::test(start_paused = true)]
async fn concurrent_callers_pay_one_timeout() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    store.set(FaultMode::Hangs);
    let start = Instant::now();
    let crowd: Vec<_> = (0..500)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.take("k").await.unwrap() })
        })
        .collect();
    for caller in crowd {
        assert_eq!(caller.await.unwrap().degraded(), Some(Local));
    }
    assert_eq!(start.elapsed(), TIMEOUT);
    assert_eq!((guard.stats().outages, guard.stats().timed_out), (1, 500));
}

#[tokio::test(start_paused = true)]
async fn only_consecutive_failures_of_the_store_count() {
    let (store, guard, limiter) = guarded(per_second(1, 1_000));
    for _ in 0..10 {
        for mode in [FaultMode::Refuses, FaultMode::Silent, FaultMode::Answers] {
            store.set(mode);
            let _ = limiter.take("k").await.unwrap();
        }
    }
    assert_eq!((guard.is_up(), guard.stats().failed), (true, 20));
    for _ in 0..10 {
        let faulty = execute(&guard, Operation::Take(&[])).await;
        assert!(matches!(faulty, Err(StoreError::Charge(_))));
    }
    store.set(FaultMode::Full);
    for _ in 0..10 {
        assert!(matches!(limiter.take("k").await, Err(StoreError::Full)));
    }
    assert_eq!((guard.is_up(), guard.stats().degraded()), (true, 20));
}

#[tokio::test(start_paused = true)]
async fn recovery_is_automatic_and_exact() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    assert_eq!(limiter.take("k").cost(7).await.unwrap().remaining(), 3);
    store.set(FaultMode::Hangs);
    for _ in 0..5 {
        assert_eq!(limiter.take("k").await.unwrap().degraded(), Some(Local));
    }
    store.set(FaultMode::Answers);
    // No calls: the probe alone brings it back.
    tokio::time::sleep(MILLI * 101).await;
    assert_eq!((guard.is_up(), store.probes().len(), store.submissions()), (true, 1, 4));
    let decision = limiter.take("k").cost(3).await.unwrap();
    assert_eq!((decision.degraded(), decision.remaining()), (None, 0));
    assert!(!limiter.take("k").await.unwrap().is_allowed());
}

/// Without calls, an outage goes unnoticed until a check.
#[tokio::test(start_paused = true)]
async fn a_check_detects_an_outage_without_calls() {
    for (mode, cost) in [(FaultMode::Hangs, TIMEOUT * 3), (FaultMode::Refuses, Duration::ZERO)] {
        let (store, guard, _limiter) = guarded(per_second(1, 10));
        assert!(guard.check().await);
        store.set(mode);
        assert!(guard.check().await, "the cached result is reused");
        tokio::time::sleep(MILLI * 250).await;
        let start = Instant::now();
        let checks: Vec<_> = (0..100).map(|_| guard.clone()).collect();
        let checks =
            checks.into_iter().map(|guard| tokio::spawn(async move { guard.check().await }));
        for check in checks.collect::<Vec<_>>() {
            assert!(!check.await.unwrap(), "{mode:?}");
        }
        assert_eq!((start.elapsed(), store.probes().len()), (cost, 4), "{mode:?}");
        assert_eq!((store.submissions(), guard.stats().outages), (0, 1));
        store.set(FaultMode::Answers);
        tokio::time::sleep(MILLI * 250).await;
        assert!(guard.check().await, "the prober noticed");
    }
}

#[tokio::test(start_paused = true)]
async fn probes_back_off_and_are_never_two_at_a_time() {
    for (mode, taken) in [(FaultMode::Hangs, TIMEOUT), (FaultMode::Refuses, Duration::ZERO)] {
        let (store, guard, limiter) = guarded(per_second(1, 10));
        store.set(mode);
        for _ in 0..3 {
            let _ = limiter.take("k").await.unwrap();
        }
        let mut last = Instant::now();
        for _ in 0..600 {
            let _ = limiter.take("k").await.unwrap();
            tokio::time::sleep(MILLI * 100).await;
        }
        let mut pauses =
            [100, 200, 400, 800, 1_600, 3_200].into_iter().chain(std::iter::repeat(5_000));
        let probes = store.probes();
        assert!((15..=22).contains(&probes.len()), "{} probes in a minute", probes.len());
        let (mut before, mut early) = (Duration::ZERO, 0);
        for at in probes {
            let (full, pause) = (MILLI * pauses.next().unwrap(), at - last - before);
            // Timers have a resolution of a millisecond.
            assert!(
                pause + MILLI >= full * 3 / 4 && pause <= full + MILLI,
                "{pause:?} of {full:?}"
            );
            early += u32::from(pause + MILLI * 2 < full);
            (last, before) = (at, taken);
        }
        assert!(early > 5, "jitter spreads the probes of many nodes");
        assert_eq!((guard.is_up(), store.submissions()), (false, 3));
        store.set(FaultMode::Answers);
        tokio::time::sleep(SECOND * 5 + TIMEOUT).await;
        assert!(guard.is_up());
    }
}

/// Three requests that a working store could not execute used to open all limits with rule open,
/// for all callers.
#[tokio::test(start_paused = true)]
async fn a_store_that_rejects_one_operation_is_up() {
    let store = faulty();
    let guard = guard_of(&store).default_rule(Open).build().unwrap();
    let login = limiter(&guard, per_second(1, 5));
    store.set(FaultMode::Picky);
    let mut admitted = 0;
    for _ in 0..60 {
        for _ in 0..10 {
            let _ = login.take("odd").await.unwrap();
        }
        for _ in 0..10 {
            admitted += u64::from(login.take("victim").await.unwrap().is_allowed());
        }
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(admitted, 5 + 59);
    let stats = guard.stats();
    assert_eq!((guard.is_up(), stats.outages, stats.failed), (true, 0, 0));
    assert_eq!((stats.rejected, stats.open, stats.local), (600, 0, 600));
}

/// A batch of which half was answered in time used to count as an outage.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_part_of_a_batch_is_up() {
    let (store, guard, _limiter) = guarded(per_second(1, 1));
    store.set(FaultMode::OneByOne(MILLI * 20));
    let limit = named("a", 1, 100);
    let charges = [Charge::new(&limit, "k", 1)];
    let degraded_rule = |answer: &Result<StoreResponse, StoreError>| match answer {
        Ok(StoreResponse::Decision(decision)) => decision.degraded(),
        other => panic!("{other:?}"),
    };
    for _ in 0..10 {
        let mut answers = StoreResponses::new();
        guard.submit(&[Operation::Take(&charges); 4], &mut answers).await;
        let degraded: Vec<_> = answers.iter().map(degraded_rule).collect();
        assert_eq!(degraded, [None, None, Some(Local), Some(Local)]);
    }
    assert_eq!((guard.is_up(), guard.stats().timed_out), (true, 10));
}

/// A probe that panics ends its task, but not the probing.
#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_is_followed_by_another() {
    let explosive = Behaviour::from(Timing::AtOnce).with_max_answers(0).probing(|number| {
        assert!(number >= 2, "this probe is meant to panic");
        Ok(())
    });
    let store = FaultyStore::new(MemoryStore::new(), explosive);
    let guard = GuardedStore::builder(store).build().unwrap();
    let limit = named("a", 1, 10);
    for _ in 0..5 {
        let _ = take(&guard, &[Charge::new(&limit, "k", 1)]).await;
    }
    assert!(!guard.is_up());
    for _ in 0..3 {
        assert!(!guard.is_up());
        let _ = take(&guard, &[Charge::new(&limit, "k", 1)]).await;
        tokio::time::sleep(MILLI * 200).await;
    }
    assert!(guard.is_up());
}

/// A store that answers probes but fails calls gets three calls each time, at growing intervals.
#[tokio::test(start_paused = true)]
async fn a_store_that_only_answers_probes_is_retried_at_growing_intervals() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    for _ in 0..6_000 {
        let is_probed = !guard.is_up();
        store.set(if is_probed { FaultMode::Answers } else { FaultMode::Refuses });
        let _ = limiter.take("k").await.unwrap();
        tokio::time::sleep(MILLI * 10).await;
    }
    assert!(store.submissions() <= 3 * 22, "{} calls in a minute", store.submissions());
}

#[tokio::test(start_paused = true)]
async fn an_unused_guard_is_freed() {
    let (store, guard, limiter) = guarded(per_second(1, 10));
    bring_down(&store, &guard).await;
    store.set(FaultMode::Hangs);
    tokio::time::sleep(SECOND).await;
    let probed = store.probes().len();
    assert!(probed > 1);
    drop((guard, limiter));
    tokio::time::sleep(TIMEOUT + MILLI).await;
    assert_eq!(Arc::strong_count(&store), 1, "the guard no longer holds the store");
    let probed = store.probes().len();
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(store.probes().len(), probed);
}

#[tokio::test(start_paused = true)]
async fn other_methods_are_forwarded_to_the_store() {
    let (store, guard, _limiter) = guarded(per_second(1, 10));
    assert_eq!(guard.nodes(), None);
    store.set_nodes(7);
    assert_eq!(guard.nodes().map(Into::into), Some(7));
    assert_eq!(guard.wall_time(), store.wall_time());
    assert!(guard.probe().await.is_ok());
    store.set(FaultMode::Refuses);
    assert!(matches!(guard.probe().await, Err(StoreError::Unavailable(_))));
    assert_eq!(store.probes().len(), 2);
    let dynamic: Arc<dyn Store> = Arc::new(guard);
    let limiter =
        Engine::on(StoreHandle::shared(dynamic)).limiter("calls", per_second(1, 1)).unwrap();
    assert!(limiter.take("k").await.unwrap().is_allowed());
}

/// Captured log lines: level and text.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct LineVisitor<'a>(&'a mut String);

impl Visit for LineVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        let chain =
            std::iter::successors(Some(error), |&error: &&(dyn Error + 'static)| error.source());
        let chain: Vec<_> = chain.map(ToString::to_string).collect();
        self.record_debug(field, &chain);
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("tidegate::guard") {
            let mut line = event.metadata().level().to_string();
            event.record(&mut LineVisitor(&mut line));
            self.0.lock().unwrap().push(line);
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn each_transition_is_logged_once_and_calls_never() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let (store, _guard, limiter) = guarded(per_second(1, 10));
    for outage in 1..=3 {
        store.set(FaultMode::Refuses);
        for _ in 0..100 {
            let _ = limiter.take("a-secret-key").await.unwrap();
        }
        assert_eq!(log.0.lock().unwrap().len(), 2 * outage - 1);
        store.set(FaultMode::Answers);
        tokio::time::sleep(SECOND * 20).await;
        assert!(limiter.take("a-secret-key").await.is_ok());
        assert_eq!(log.0.lock().unwrap().len(), 2 * outage);
    }
    let lines = log.0.lock().unwrap();
    assert!(lines[0].starts_with("WARN") && lines[0].contains("store is down"), "{lines:?}");
    assert!(lines[0].contains("connection refused"), "includes the error: {lines:?}");
    assert!(
        lines[1].starts_with("INFO") && lines[1].contains("degraded_decisions=98"),
        "{lines:?}"
    );
    assert!(lines[1].contains("down_for="), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("secret-key")));
}

/// A failure rule decides what the store rejects, so a rejection would go unnoticed: it is logged,
/// but not each time.
#[tokio::test(start_paused = true)]
async fn a_rejection_is_logged_once_per_up_time() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let (store, guard, limiter) = guarded(per_second(1, 10));
    for outage in 0..2 {
        store.set(FaultMode::Picky);
        for _ in 0..10 {
            assert!(limiter.peek("odd").await.unwrap().is_allowed());
        }
        let lines = log.0.lock().unwrap().clone();
        assert_eq!(lines.len(), 3 * outage + 1);
        let last = &lines[3 * outage];
        assert!(last.starts_with("WARN") && last.contains("not of this store"), "{last}");
        bring_down(&store, &guard).await;
        bring_up(&store, &guard).await;
    }
}
