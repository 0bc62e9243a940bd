//! Servers shared by the tests, and stores on them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use redis::{Client, Connection};
use tidegate_core::{
    Charge, Decision, Grant, Key, Limit, Operation, Policy, Store, StoreError, StoreResponse,
};
use tidegate_redis::{RedisBuilder, RedisStore};
use tidegate_testkit::launch::{Flavor, RedisServer, wait_until};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject, execute};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// The runtime of all connections: conformance cases run on short-lived runtimes of their own.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    })
}

/// A server shared by all tests.
pub(crate) fn server(flavor: Flavor) -> &'static RedisServer {
    static REDIS: OnceLock<RedisServer> = OnceLock::new();
    static VALKEY: OnceLock<RedisServer> = OnceLock::new();
    let server = match flavor {
        Flavor::Redis => &REDIS,
        Flavor::Valkey => &VALKEY,
    };
    server.get_or_init(|| RedisServer::start(flavor))
}

/// A prefix unique to a test.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("test{}:", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Opens a store and waits for its connection.
pub(crate) async fn open(builder: RedisBuilder) -> RedisStore {
    let store = {
        let _runtime_guard = runtime().enter();
        builder.open().unwrap()
    };
    store.connected().await.unwrap();
    store
}

/// A store with a unique prefix and the server's clock.
pub(crate) async fn store(server: &RedisServer) -> RedisStore {
    open(RedisStore::builder(&server.url()).prefix(prefix())).await
}

/// Stores that share a prefix, like nodes.
pub(crate) async fn nodes<const N: usize>(server: &RedisServer, prefix: &str) -> [RedisStore; N] {
    let mut stores = Vec::new();
    for _ in 0..N {
        stores.push(open(RedisStore::builder(&server.url()).prefix(prefix)).await);
    }
    stores.try_into().unwrap()
}

/// Stores with a manual clock in a list on the server. They are nodes that share a prefix;
/// operations of the conformance suite go to each in turn.
#[derive(Debug)]
pub(crate) struct TimedStores {
    nodes: Vec<RedisStore>,
    next_node: AtomicUsize,
    prefix: String,
    clock: Mutex<Clock>,
}

/// The manual clock, with a connection of its own because it is set before almost every operation.
struct Clock {
    connection: Connection,
    time: Duration,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({:?})", self.time)
    }
}

impl TimedStores {
    /// Start of the clock, since the Unix epoch.
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
            nodes.push(open(builder.manual_clock(list.as_str())).await);
        }
        let connection = Client::open(server.url()).unwrap().get_connection().unwrap();
        let clock = Mutex::new(Clock { connection, time: Self::ORIGIN });
        Self { nodes, next_node: AtomicUsize::new(0), prefix, clock }
    }

    /// The nodes that have not been dropped.
    pub(crate) fn nodes(&self) -> &[RedisStore] {
        &self.nodes
    }

    /// Drops the last node.
    pub(crate) fn drop_last(&mut self) {
        drop(self.nodes.pop());
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Sets the clock, since the Unix epoch.
    pub(crate) fn set(&self, time: Duration) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if clock.time == time {
            return;
        }
        clock.time = time;
        let list = format!("{}clock", self.prefix);
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for (index, value) in [(0, time.as_secs()), (1, time.subsec_micros().into())] {
            pipeline.cmd("LSET").arg(&list).arg(index).arg(value).ignore();
        }
        pipeline.exec(&mut clock.connection).unwrap();
    }
}

impl Subject for TimedStores {
    fn store(&self) -> &dyn Store {
        &self.nodes[self.next_node.fetch_add(1, Ordering::Relaxed) % self.nodes.len()]
    }

    fn resolution(&self) -> Resolution {
        Resolution::Us
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        self.set(Duration::from_nanos(nanos));
        Box::pin(std::future::ready(()))
    }
}

/// A named bucket with one token per hour, which does not refill during a test.
pub(crate) fn slow_bucket(name: &str, capacity: u64) -> Limit {
    let hour = Duration::from_secs(3_600);
    Limit::named(name, Policy::per(1, hour).capacity(capacity).build().unwrap()).unwrap()
}

/// Takes tokens from one bucket.
pub(crate) async fn take<'k>(
    store: &RedisStore,
    limit: &'k Limit,
    key: impl Into<Key<'k>>,
    cost: u64,
) -> Result<Decision, StoreError> {
    let charges = [Charge::new(limit, key, cost)];
    match execute(store, Operation::Take(&charges)).await? {
        StoreResponse::Decision(decision) => Ok(decision),
        other => panic!("{other:?} is not a decision"),
    }
}

/// Takes tokens; the take must be granted.
pub(crate) async fn granted(store: &RedisStore, limit: &Limit, key: &str, cost: u64) -> Grant {
    match take(store, limit, key, cost).await.unwrap() {
        Decision::Allowed(grant) => grant,
        other => panic!("{other:?} instead of a grant"),
    }
}

/// Returns the whole tokens left.
pub(crate) async fn remaining(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    take(store, limit, key, 0).await.unwrap().remaining()
}

/// Returns the capacity of the current policy, as known to this node.
pub(crate) async fn capacity(store: &RedisStore, limit: &Limit, key: &str) -> u64 {
    take(store, limit, key, 0).await.unwrap().outcomes()[0].capacity
}

/// Concurrent callers that take one token of the key `a` at a time.
#[derive(Debug)]
pub(crate) struct ConcurrentCallers(Vec<JoinHandle<u64>>);

impl ConcurrentCallers {
    /// Starts one caller per store, each of which takes this many times.
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

    /// Waits for all callers and returns how many takes were allowed. None may fail.
    pub(crate) async fn allowed(self) -> u64 {
        let mut allowed = 0;
        for caller in self.0 {
            allowed += caller.await.unwrap();
        }
        allowed
    }
}

/// How often the server has replied with an error of this code.
pub(crate) fn errors_of(server: &RedisServer, code: &str) -> u64 {
    let statistics = server.info("errorstats");
    let count =
        statistics.get(&format!("errorstat_{code}")).and_then(|count| count.strip_prefix("count="));
    count.map_or(0, |count| count.parse().unwrap())
}

/// Waits for the end of a heartbeat of the only store on a server. The store must know a named
/// limit. The next heartbeat is two seconds later.
pub(crate) fn wait_for_heartbeat(server: &RedisServer) {
    let confirmed = || server.command_calls("hget");
    let before = confirmed();
    wait_until("a heartbeat", || (confirmed() > before).then_some(()));
}

/// The server's time in microseconds.
pub(crate) fn server_micros(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).array();
    let mut words = time.into_iter().map(|word| word.text().parse::<u64>().unwrap());
    words.next().unwrap() * 1_000_000 + words.next().unwrap()
}

/// Waits for the server's clock. Unlike `wait_until`, without a timeout.
pub(crate) fn wait_until_server_time(server: &RedisServer, end: u64) {
    while server_micros(server) < end {
        let second = (server_micros(server) + 1_000_000).min(end);
        wait_until("a second to pass", || (server_micros(server) >= second).then_some(()));
    }
}

/// With a single subscriber, `tracing` caches the interest of a callsite by the thread that reaches
/// it first, so a concurrent test without a subscriber could silence it.
static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    everything.with_writer(io::sink).finish().into()
});

/// Returns what `work` logged on this thread.
pub(crate) fn logged(work: impl FnOnce()) -> String {
    LazyLock::force(&SECOND_SUBSCRIBER);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = log.0.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Buffer for log lines.
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

/// The text of an error and its sources.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", error_chain(source)));
    format!("{error}{}", source.unwrap_or_default())
}
