//! Servers that the tests of this program share, and stores on them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use redis::{Client, Connection};
use tidegate_core::{
    Answer, Charge, Decision, Grant, Key, Limit, Operation, Policy, Store, StoreError,
};
use tidegate_redis::{RedisBuilder, RedisStore};
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject, ask};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The runtime that runs the connections: cases come and go with runtimes of their own.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    })
}

/// A server that all tests share.
pub(crate) fn server(flavor: Flavor) -> &'static RedisServer {
    static REDIS: OnceLock<RedisServer> = OnceLock::new();
    static VALKEY: OnceLock<RedisServer> = OnceLock::new();
    let server = match flavor {
        Flavor::Redis => &REDIS,
        Flavor::Valkey => &VALKEY,
    };
    server.get_or_init(|| RedisServer::start(flavor))
}

/// A prefix that no other test has.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Opens a store and waits for its connection.
pub(crate) async fn open(builder: RedisBuilder) -> RedisStore {
    let store = {
        let _inside = runtime().enter();
        builder.open().unwrap()
    };
    store.connected().await.unwrap();
    store
}

/// A store of its own under the server's clock.
pub(crate) async fn store(server: &RedisServer) -> RedisStore {
    open(RedisStore::builder(&server.url()).prefix(prefix())).await
}

/// Stores that share a prefix, as nodes do.
pub(crate) async fn nodes<const N: usize>(server: &RedisServer, prefix: &str) -> [RedisStore; N] {
    let mut stores = Vec::new();
    for _ in 0..N {
        stores.push(open(RedisStore::builder(&server.url()).prefix(prefix)).await);
    }
    stores.try_into().unwrap()
}

/// Stores whose clock the test sets, by a list in the server. They are nodes that share a prefix;
/// what is asked of the subject goes to one after the other.
#[derive(Debug)]
pub(crate) struct Timed {
    nodes: Vec<RedisStore>,
    turn: AtomicUsize,
    prefix: String,
    clock: Mutex<Clock>,
}

/// A connection of its own: the clock is set before almost everything that is asked.
struct Clock {
    connection: Connection,
    time: Duration,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.time)
    }
}

impl Timed {
    /// When the clock starts, from the Unix epoch on.
    pub(crate) const ORIGIN: Duration = Duration::from_secs(1_699_920_000);

    pub(crate) async fn new(flavor: Flavor) -> Self {
        Self::with_nodes(flavor, 1).await
    }

    pub(crate) async fn with_nodes(flavor: Flavor, count: usize) -> Self {
        let (server, prefix) = (server(flavor), prefix());
        let list = format!("{prefix}clock");
        let _ = server.command(&["RPUSH", &list, &Self::ORIGIN.as_secs().to_string(), "0"]);
        let mut nodes = Vec::new();
        for _ in 0..count {
            let builder = RedisStore::builder(&server.url()).prefix(&*prefix);
            nodes.push(open(builder.clock_in(list.as_str())).await);
        }
        let connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        let clock = Mutex::new(Clock { connection, time: Self::ORIGIN });
        Self { nodes, turn: AtomicUsize::new(0), prefix, clock }
    }

    /// The nodes that have not been ended.
    pub(crate) fn nodes(&self) -> &[RedisStore] {
        &self.nodes
    }

    /// Ends the last node.
    pub(crate) fn end_one(&mut self) {
        drop(self.nodes.pop());
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sets the clock, from the Unix epoch on.
    pub(crate) fn set(&self, time: Duration) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if clock.time == time {
            return;
        }
        clock.time = time;
        let list = format!("{}clock", self.prefix);
        let mut both = redis::pipe();
        both.atomic();
        for (index, value) in [(0, time.as_secs()), (1, time.subsec_micros().into())] {
            both.cmd("LSET").arg(&list).arg(index).arg(value).ignore();
        }
        both.exec(&mut clock.connection).unwrap();
    }
}

impl Subject for Timed {
    fn store(&self) -> &dyn Store {
        &self.nodes[self.turn.fetch_add(1, Ordering::Relaxed) % self.nodes.len()]
    }

    fn resolution(&self) -> Resolution {
        Resolution::Us
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.set(Duration::from_nanos(nanos));
        Box::pin(std::future::ready(()))
    }
}

/// A named bucket of so many tokens per hour, which a test does not see refill.
pub(crate) fn slow(name: &str, capacity: u64) -> Limit {
    let hour = Duration::from_secs(3_600);
    Limit::named(name, Policy::per(1, hour).capacity(capacity).build().unwrap()).unwrap()
}

/// Takes tokens of one bucket.
pub(crate) async fn take<'k>(
    store: &RedisStore,
    limit: &'k Limit,
    key: impl Into<Key<'k>>,
    cost: u64,
) -> Result<Decision, StoreError> {
    let charges = [Charge::new(limit, key, cost)];
    match ask(store, Operation::Take(&charges)).await? {
        Answer::Decision(decision) => Ok(decision),
        other => panic!("{other:?} is not a decision"),
    }
}

/// Takes what must be granted.
pub(crate) async fn granted(store: &RedisStore, limit: &Limit, key: &str, cost: u64) -> Grant {
    match take(store, limit, key, cost).await.unwrap() {
        Decision::Allowed(grant) => grant,
        other => panic!("{other:?} instead of a grant"),
    }
}

/// Whole tokens left.
pub(crate) async fn left(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    take(store, limit, key, 0).await.unwrap().remaining()
}

/// What the policy that decides allows, as this node knows it.
pub(crate) async fn capacity(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    take(store, limit, key, 0).await.unwrap().outcomes()[0].capacity
}

/// Callers that take one token of the key `a` at a time, all at once.
#[derive(Debug)]
pub(crate) struct Crowd(Vec<JoinHandle<u64>>);

impl Crowd {
    /// One caller for each of these stores, who takes so many times.
    pub(crate) fn on<'s>(
        stores: impl IntoIterator<Item = &'s RedisStore>,
        limit: &Limit,
        times: usize,
    ) -> Self {
        let caller = |store: &RedisStore| {
            let (store, limit) = (store.clone(), limit.clone());
            runtime().spawn(async move {
                let mut allowed = 0;
                for _ in 0..times {
                    allowed += u64::from(take(&store, &limit, "a", 1).await.unwrap().is_allowed());
                }
                allowed
            })
        };
        Self(stores.into_iter().map(caller).collect())
    }

    /// How many tokens they got, when all are done. Nobody may have got an error.
    pub(crate) async fn allowed(self) -> u64 {
        let mut allowed = 0;
        for caller in self.0 {
            allowed += caller.await.unwrap();
        }
        allowed
    }
}

/// How often the server has answered with an error of this code.
pub(crate) fn errors_of(server: &RedisServer, code: &str) -> u64 {
    let statistics = server.info("errorstats");
    let count =
        statistics.get(&format!("errorstat_{code}")).and_then(|count| count.strip_prefix("count="));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Waits for the end of a heartbeat of the only store on a server of its own, which knows a named
/// limit. The next one begins two seconds later.
pub(crate) fn after_a_beat(server: &RedisServer) {
    let confirmed = || server.calls_of("hget");
    let before = confirmed();
    wait_until("a heartbeat", || (confirmed() > before).then_some(()));
}

/// The server's time in microseconds.
pub(crate) fn micros(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).array();
    let mut words = time.into_iter().map(|word| word.text().parse::<u64>().unwrap());
    words.next().unwrap() * 1_000_000 + words.next().unwrap()
}

/// Waits for the server's clock. Unlike `wait_until` it may take longer than a test is patient.
pub(crate) fn wait_until_late(server: &RedisServer, end: u64) {
    while micros(server) < end {
        let second = (micros(server) + 1_000_000).min(end);
        wait_until("a second to pass", || (micros(server) >= second).then_some(()));
    }
}

/// With one listener alone, a place that logs for the first time goes by whether its own thread
/// listens, and remembers that: a test beside could silence it.
static SECOND_LISTENER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(io::sink).finish().into()
});

/// What was logged by the work, as far as it was done on this thread.
pub(crate) fn logged(work: impl FnOnce()) -> String {
    LazyLock::force(&SECOND_LISTENER);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where logs go in a test.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The text of an error with that of its sources.
pub(crate) fn story(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", story(source)));
    format!("{error}{}", source.unwrap_or_default())
}
