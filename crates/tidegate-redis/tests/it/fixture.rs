//! Servers that the tests of this program share, and stores on them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{
    Answer, Charge, Decision, Grant, Key, Limit, Operation, Policy, Store, StoreError,
};
use tidegate_redis::{RedisBuilder, RedisStore};
use tidegate_testkit::launch::{Flavor, RedisServer};
use tidegate_testkit::subject::{BoxFuture, Resolution, Subject, ask};
use tokio::runtime::Runtime;

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

/// A store whose clock the test sets, by a list in the server.
#[derive(Debug)]
pub(crate) struct Timed {
    store: RedisStore,
    server: &'static RedisServer,
    clock: String,
}

impl Timed {
    pub(crate) async fn new(flavor: Flavor) -> Self {
        let (server, prefix) = (server(flavor), prefix());
        let clock = format!("{prefix}clock");
        let _ = server.command(&["RPUSH", &clock, "1699920000", "0"]);
        let builder = RedisStore::builder(&server.url()).prefix(prefix);
        Self { store: open(builder.clock_in(clock.as_str())).await, server, clock }
    }
}

impl Subject for Timed {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn resolution(&self) -> Resolution {
        Resolution::Us
    }

    fn set_time(&self, nanos: u64) -> BoxFuture<'_, ()> {
        let micros = nanos / 1_000;
        let (seconds, rest) = ((micros / 1_000_000).to_string(), (micros % 1_000_000).to_string());
        let script =
            "redis.call('LSET', KEYS[1], 0, ARGV[1]) redis.call('LSET', KEYS[1], 1, ARGV[2])";
        let _ = self.server.command(&["EVAL", script, "1", &self.clock, &seconds, &rest]);
        Box::pin(std::future::ready(()))
    }
}

/// A named bucket of so many tokens per hour, which a test does not see refill.
pub(crate) fn slow(name: &str, capacity: u64) -> Limit {
    let hour = std::time::Duration::from_secs(3_600);
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

/// The text of an error with that of its sources.
pub(crate) fn story(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", story(source)));
    format!("{error}{}", source.unwrap_or_default())
}
