//! What a check costs: allocations, locks and threads.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, mpsc};
use std::time::Duration;

use allocation_counter::measure;
use tidegate::admission::{Admission, AdmittedRequest, Rules, Tier};
use tidegate::clock::{Clock, ManualClock};
use tidegate::{Engine, MemoryStore};
use tidegate_core::{Time, WallTime};
use tidegate_testkit::launch::{Peer, wait_until};

use super::{Fixture, caller_of};

/// A clock whose readers wait while its gate is locked. The store reads it under the locks of its
/// buckets.
#[derive(Clone, Debug, Default)]
struct GatedClock {
    gate: Arc<RwLock<()>>,
    readers: Arc<AtomicUsize>,
}

impl Clock for GatedClock {
    fn now(&self) -> Time {
        self.readers.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.read().unwrap_or_else(PoisonError::into_inner));
        self.readers.fetch_sub(1, Ordering::SeqCst);
        Time::ZERO
    }

    fn wall(&self) -> WallTime {
        WallTime::default()
    }
}

/// R36, R403, R422: neither a switched-off admission nor back-pressure allocates.
#[test]
fn checks_that_need_no_bucket_allocate_nothing() {
    let fixture = Fixture::with(Rules::default().jitter_percent(20));
    let alice = caller_of("acme", "alice");
    let allocations = |checks: fn(&Fixture)| measure(|| checks(&fixture)).count_total;
    let checked = |fixture: &Fixture| assert!(fixture.admits(caller_of("acme", "alice")));
    checked(&fixture);
    fixture.admission.set_pending(500, Duration::from_secs(1));
    let rejected = |fixture: &Fixture| {
        let tier = fixture.rejecting_tier(caller_of("acme", "alice"));
        assert_eq!(tier, Some(Tier::Backpressure));
    };
    assert_eq!(allocations(rejected), 0, "rejected by back-pressure");
    assert_eq!(fixture.remaining(Tier::Client, alice), 99);
    fixture.admission.disable();
    assert_eq!(allocations(checked), 0, "switched off");
    let counted = measure(|| drop(std::hint::black_box(vec![1_u8])));
    assert_eq!(counted.count_total, 1, "allocations are counted");
}

/// R36, R403: both pass while other threads hold every lock that a check could want: those of the
/// caller's buckets, and that of the reported number.
#[test]
fn checks_that_need_no_bucket_take_no_lock() {
    let clock = GatedClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
    let admission = Admission::new(&Engine::on(store), Rules::default().backpressure(1)).unwrap();
    let alice = caller_of("acme", "alice");
    let closed = clock.gate.write().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(admission.admit(alice).now().unwrap()));
        wait_until("a check that holds its buckets", || {
            (clock.readers.load(Ordering::SeqCst) == 1).then_some(())
        });
        scope.spawn(|| admission.set_pending(7, Duration::from_secs(1)));
        wait_until("a report that holds its lock", || {
            (clock.readers.load(Ordering::SeqCst) == 2).then_some(())
        });
        let _pending = [admission.track_request(), admission.track_request()];
        let (sender, results) = mpsc::channel();
        let other = admission.clone();
        scope.spawn(move || {
            let rejection = other.admit(alice).now().unwrap().rejected();
            sender.send(rejection.map(|rejection| rejection.tier)).unwrap();
            other.disable();
            let admitted = other.admit(alice).now().unwrap().admitted();
            sender
                .send(admitted.filter(AdmittedRequest::is_checked).map(|_| Tier::Client))
                .unwrap();
        });
        let within = Duration::from_secs(20);
        let tiers = [(); 2].map(|()| results.recv_timeout(within));
        // Before any assertion, or a failure would leave the threads waiting.
        drop(closed);
        assert_eq!(tiers, [Ok(Some(Tier::Backpressure)), Ok(None)]);
    });
}

/// R421: buckets refill when they are used. A million of them need no thread and, without a
/// runtime, no timer either. Runs in a process of its own, whose threads can be counted.
#[test]
fn a_million_buckets_need_no_thread() {
    let test = "admission::cost::a_million_buckets_need_no_thread";
    let Some(_) = Peer::env_var("TIDEGATE_TEST_BUCKETS") else {
        let mut peer = Peer::spawn(test, &[("TIDEGATE_TEST_BUCKETS", "1000000")]);
        let counts = [peer.line(), peer.line()];
        assert_eq!(peer.finish(), [""; 0]);
        assert_eq!(counts[0], counts[1], "threads before and after");
        return;
    };
    let threads = || fs::read_dir("/proc/self/task").unwrap().count().to_string();
    let before = threads();
    let clock = ManualClock::new();
    let store = MemoryStore::builder().max_memory(256 << 20).clock(clock.clone()).build().unwrap();
    let engine = Engine::on(store);
    let admission = Admission::new(&engine, Rules::default().organization(None)).unwrap();
    let admit = |number: u32, cost| {
        let name = number.to_string();
        admission.admit(caller_of("acme", &name).cost(cost)).now().unwrap().is_admitted()
    };
    assert!((0..1_000_000).all(|number| admit(number, 100)));
    assert_eq!(engine.store().local().unwrap().len(), 1_000_000);
    assert!(!admit(7, 1));
    clock.advance(Duration::from_secs(1));
    assert!(admit(7, 50) && !admit(7, 1), "refilled by half a bucket");
    Peer::report(&before);
    Peer::report(&threads());
}
