//! Eviction order, tested with connections that only report their state.

use std::sync::Mutex;

use tokio::task::JoinSet;

use super::super::eviction::Wait;
use super::*;

/// A connection whose state is set by the test.
#[derive(Debug, Default)]
struct Fake {
    wait: Mutex<Option<Wait>>,
    is_evicted: Mutex<bool>,
}

impl Fake {
    fn is_evicted(&self) -> bool {
        *self.is_evicted.lock().unwrap()
    }
}

impl Evict for Fake {
    fn waits(&self) -> Option<Wait> {
        *self.wait.lock().unwrap()
    }

    fn evict(&self, wait: Wait) -> bool {
        let is_same = self.waits() == Some(wait);
        *self.is_evicted.lock().unwrap() |= is_same;
        is_same
    }
}

struct Stage {
    connections: Connections,
    tasks: JoinSet<()>,
    now: Instant,
}

impl Stage {
    fn new(total: usize, per_network: usize) -> Self {
        let trusted = "10.9.9.9".parse().unwrap();
        let connections = Connections::new(Capacity { total, per_network, trusted });
        Self { connections, tasks: JoinSet::new(), now: Instant::now() }
    }

    /// Opens a connection from `from`, if it is admitted.
    fn join(&mut self, from: &str, wait: Option<Wait>) -> Result<(Id, Arc<Fake>), Admission> {
        let peer = from.parse().unwrap();
        match self.connections.admit(peer, self.now) {
            Admission::Admitted => {}
            refused => return Err(refused),
        }
        let fake = Arc::new(Fake::default());
        *fake.wait.lock().unwrap() = wait;
        let id = self.tasks.spawn(std::future::pending()).id();
        self.connections.joined(id, peer, fake.clone());
        Ok((id, fake))
    }

    fn idle(&mut self, from: &str, since: u64) -> (Id, Arc<Fake>) {
        let since = self.now + Duration::from_millis(since);
        self.join(from, Some(Wait::Request { since })).unwrap()
    }

    fn busy(&mut self, from: &str) -> Result<(Id, Arc<Fake>), Admission> {
        self.join(from, None)
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }
}

#[tokio::test]
async fn the_network_with_the_most_connections_makes_room_from_its_oldest_on() {
    let mut stage = Stage::new(6, 4);
    let small = stage.idle("10.0.0.1", 0).1;
    let large = [3, 1, 2].map(|since| stage.idle("10.0.0.2", since).1);
    stage.busy("10.0.0.2").unwrap();
    let proxy = stage.idle("10.9.9.9", 0).1;
    for (evicted, from) in [(1, "10.0.0.3"), (2, "10.0.0.4"), (0, "10.0.0.5")] {
        stage.busy(from).unwrap();
        assert!(large[evicted].is_evicted(), "{evicted}");
    }
    assert!(!small.is_evicted() && !proxy.is_evicted());
    stage.busy("10.0.0.6").unwrap();
    assert!(small.is_evicted() && !proxy.is_evicted(), "proxies stand for many callers");
}

#[tokio::test]
async fn a_network_at_its_bound_makes_room_by_itself() {
    let mut stage = Stage::new(100, 2);
    let other = stage.idle("2001:db8:0:1::7", 0).1;
    let own = stage.idle("2001:db8::1", 5).1;
    stage.busy("2001:db8::2").unwrap();
    stage.busy("2001:db8::3").unwrap();
    assert!(own.is_evicted() && !other.is_evicted(), "a network is the first 64 bits");
    assert_eq!(stage.busy("2001:db8::4").unwrap_err(), Admission::Refused);
    stage.busy("2001:db8:0:1::8").unwrap();
    for _ in 0..10 {
        stage.busy("10.9.9.9").unwrap();
    }
}

#[tokio::test]
async fn while_all_are_busy_nothing_is_closed_and_nobody_looks_all_the_time() {
    let mut stage = Stage::new(2, 2);
    let (id, first) = stage.busy("10.0.0.1").unwrap();
    stage.busy("10.0.0.2").unwrap();
    assert_eq!(stage.busy("10.0.0.3").unwrap_err(), Admission::Full);
    *first.wait.lock().unwrap() = Some(Wait::Request { since: stage.now });
    assert_eq!(stage.busy("10.0.0.3").unwrap_err(), Admission::Full, "just looked");
    stage.pass(100);
    stage.busy("10.0.0.3").unwrap();
    assert!(first.is_evicted());
    stage.pass(100);
    assert_eq!(stage.busy("10.0.0.4").unwrap_err(), Admission::Full, "one is leaving, none waits");
    stage.connections.left(id);
    assert_eq!(stage.busy("10.0.0.4").unwrap_err(), Admission::Full, "its place is taken");
}

#[tokio::test]
async fn one_that_is_busy_again_stays() {
    let mut stage = Stage::new(3, 3);
    let [first, second] = [1, 2].map(|since| stage.idle("10.0.0.1", since).1);
    stage.busy("10.0.0.1").unwrap();
    stage.connections.admit("10.0.0.2".parse().unwrap(), stage.now);
    assert!(first.is_evicted());
    *second.wait.lock().unwrap() = None;
    // It was found by the same scan as the first.
    assert_eq!(
        stage.connections.admit("10.0.0.2".parse().unwrap(), stage.now),
        Admission::Admitted
    );
    assert!(!second.is_evicted());
}

#[tokio::test]
async fn heads_go_when_they_are_slow_and_nothing_is_idle() {
    let mut stage = Stage::new(2, 2);
    let since = stage.now;
    let slow = stage.join("10.0.0.1", Some(Wait::Head { since })).unwrap().1;
    let idle = stage.idle("10.0.0.2", 0).1;
    stage.busy("10.0.0.3").unwrap();
    assert!(idle.is_evicted() && !slow.is_evicted());
    stage.pass(999);
    assert_eq!(stage.busy("10.0.0.4").unwrap_err(), Admission::Full);
    stage.pass(100);
    stage.busy("10.0.0.4").unwrap();
    assert!(slow.is_evicted());
}

#[tokio::test]
async fn when_files_run_out_a_part_is_closed_and_the_rest_does_not_grow() {
    let mut stage = Stage::new(1_000, 1_000);
    let crowd: Vec<_> = (0..160).map(|since| stage.idle("10.0.0.1", since).1).collect();
    stage.connections.relieve(stage.now);
    let closed = |crowd: &[Arc<Fake>]| crowd.iter().filter(|one| one.is_evicted()).count();
    assert_eq!(closed(&crowd), 10);
    stage.busy("10.0.0.2").unwrap();
    assert_eq!(closed(&crowd), 11);
    stage.now += FILES_SHORT;
    stage.busy("10.0.0.2").unwrap();
    assert_eq!((closed(&crowd), stage.connections.take_evicted()), (11, 11));
}
