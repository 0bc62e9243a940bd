//! Eviction order, tested with connections that only report their state.

use std::sync::Mutex;

use tokio::task::JoinSet;

use super::super::eviction::Wait;
use super::*;

/// A connection whose state is set by the test.
#[derive(Debug, Default)]
struct FakeConnection {
    wait: Mutex<Option<Wait>>,
    is_evicted: Mutex<bool>,
}

impl FakeConnection {
    fn is_evicted(&self) -> bool {
        *self.is_evicted.lock().unwrap()
    }
}

impl Evict for FakeConnection {
    fn current_wait(&self) -> Option<Wait> {
        *self.wait.lock().unwrap()
    }

    fn evict(&self, wait: Wait) -> bool {
        let is_same = self.current_wait() == Some(wait);
        *self.is_evicted.lock().unwrap() |= is_same;
        is_same
    }
}

struct Fixture {
    connections: Connections,
    tasks: JoinSet<()>,
    now: Instant,
}

impl Fixture {
    fn new(total: usize, per_network: usize) -> Self {
        let trusted = "10.9.9.9".parse().unwrap();
        let connections = Connections::new(Capacity { total, per_network, trusted });
        Self { connections, tasks: JoinSet::new(), now: Instant::now() }
    }

    /// Opens a connection from `from`, if it is admitted.
    fn connect(
        &mut self,
        from: &str,
        wait: Option<Wait>,
    ) -> Result<(Id, Arc<FakeConnection>), Admission> {
        let peer = from.parse().unwrap();
        match self.connections.admit(peer, self.now) {
            Admission::Admitted => {}
            refused => return Err(refused),
        }
        let fake = Arc::new(FakeConnection::default());
        *fake.wait.lock().unwrap() = wait;
        let id = self.tasks.spawn(std::future::pending()).id();
        self.connections.insert(id, peer, fake.clone());
        Ok((id, fake))
    }

    fn idle(&mut self, from: &str, since: u64) -> (Id, Arc<FakeConnection>) {
        let since = self.now + Duration::from_millis(since);
        self.connect(from, Some(Wait::Request { since })).unwrap()
    }

    fn busy(&mut self, from: &str) -> Result<(Id, Arc<FakeConnection>), Admission> {
        self.connect(from, None)
    }

    fn advance(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }
}

#[tokio::test]
async fn the_longest_idle_connection_of_the_largest_network_is_evicted() {
    let mut fixture = Fixture::new(6, 4);
    let small = fixture.idle("10.0.0.1", 0).1;
    let large = [3, 1, 2].map(|since| fixture.idle("10.0.0.2", since).1);
    fixture.busy("10.0.0.2").unwrap();
    let proxy = fixture.idle("10.9.9.9", 0).1;
    for (evicted, from) in [(1, "10.0.0.3"), (2, "10.0.0.4"), (0, "10.0.0.5")] {
        fixture.busy(from).unwrap();
        assert!(large[evicted].is_evicted(), "{evicted}");
    }
    assert!(!small.is_evicted() && !proxy.is_evicted());
    fixture.busy("10.0.0.6").unwrap();
    assert!(small.is_evicted() && !proxy.is_evicted(), "proxies stand for many callers");
}

#[tokio::test]
async fn a_network_at_its_limit_evicts_its_own_connections() {
    let mut fixture = Fixture::new(100, 2);
    let other = fixture.idle("2001:db8:0:1::7", 0).1;
    let own = fixture.idle("2001:db8::1", 5).1;
    fixture.busy("2001:db8::2").unwrap();
    fixture.busy("2001:db8::3").unwrap();
    assert!(own.is_evicted() && !other.is_evicted(), "a network is the first 64 bits");
    assert_eq!(fixture.busy("2001:db8::4").unwrap_err(), Admission::Refused);
    fixture.busy("2001:db8:0:1::8").unwrap();
    for _ in 0..10 {
        fixture.busy("10.9.9.9").unwrap();
    }
}

#[tokio::test]
async fn busy_connections_are_not_evicted_and_scans_are_rate_limited() {
    let mut fixture = Fixture::new(2, 2);
    let (id, first) = fixture.busy("10.0.0.1").unwrap();
    fixture.busy("10.0.0.2").unwrap();
    assert_eq!(fixture.busy("10.0.0.3").unwrap_err(), Admission::Full);
    *first.wait.lock().unwrap() = Some(Wait::Request { since: fixture.now });
    assert_eq!(fixture.busy("10.0.0.3").unwrap_err(), Admission::Full, "scanned just now");
    fixture.advance(100);
    fixture.busy("10.0.0.3").unwrap();
    assert!(first.is_evicted());
    fixture.advance(100);
    assert_eq!(
        fixture.busy("10.0.0.4").unwrap_err(),
        Admission::Full,
        "one is closing, none is idle"
    );
    fixture.connections.remove(id);
    assert_eq!(fixture.busy("10.0.0.4").unwrap_err(), Admission::Full, "the freed slot is taken");
}

#[tokio::test]
async fn a_connection_that_became_busy_is_not_evicted() {
    let mut fixture = Fixture::new(3, 3);
    let [first, second] = [1, 2].map(|since| fixture.idle("10.0.0.1", since).1);
    fixture.busy("10.0.0.1").unwrap();
    fixture.connections.admit("10.0.0.2".parse().unwrap(), fixture.now);
    assert!(first.is_evicted());
    *second.wait.lock().unwrap() = None;
    // It was found by the same scan as the first.
    assert_eq!(
        fixture.connections.admit("10.0.0.2".parse().unwrap(), fixture.now),
        Admission::Admitted
    );
    assert!(!second.is_evicted());
}

#[tokio::test]
async fn slow_heads_are_evicted_if_no_connection_is_idle() {
    let mut fixture = Fixture::new(2, 2);
    let since = fixture.now;
    let slow = fixture.connect("10.0.0.1", Some(Wait::Head { since })).unwrap().1;
    let idle = fixture.idle("10.0.0.2", 0).1;
    fixture.busy("10.0.0.3").unwrap();
    assert!(idle.is_evicted() && !slow.is_evicted());
    fixture.advance(999);
    assert_eq!(fixture.busy("10.0.0.4").unwrap_err(), Admission::Full);
    fixture.advance(100);
    fixture.busy("10.0.0.4").unwrap();
    assert!(slow.is_evicted());
}

#[tokio::test]
async fn file_exhaustion_evicts_a_fraction_and_caps_the_rest() {
    let mut fixture = Fixture::new(1_000, 1_000);
    let crowd: Vec<_> = (0..160).map(|since| fixture.idle("10.0.0.1", since).1).collect();
    fixture.connections.free_files(fixture.now);
    let closed =
        |crowd: &[Arc<FakeConnection>]| crowd.iter().filter(|one| one.is_evicted()).count();
    assert_eq!(closed(&crowd), 10);
    fixture.busy("10.0.0.2").unwrap();
    assert_eq!(closed(&crowd), 11);
    fixture.now += FILE_SHORTAGE_PERIOD;
    fixture.busy("10.0.0.2").unwrap();
    assert_eq!((closed(&crowd), fixture.connections.take_evicted()), (11, 11));
}
