//! The contenders: servers, and how each is asked for a decision.
//!
//! All use the same policy: one token per second and a burst of a thousand million, so that every
//! decision is allowed and writes.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_core::{Charge, Limit, Operation, Policy, Store, StoreResponse, StoreResponses};
use tidegate_durable::DurableStore;
use tidegate_redis::RedisStore;
use tidegate_testkit::launch::{Flavor, RedisServer, Workerd};

use crate::closed_loop::Caller;
use crate::http_client::{Connection, post};
use crate::server_process::Tidegate;

const SECRET: &str = "a secret for the benchmark";
const KEY: &str = "user:1";

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// `POST /consume` of the Worker.
    Worker,
    /// The Rust client of the Worker.
    Client,
    /// `POST /v1/take` of the program, in process.
    Server,
    /// The Redis store.
    Redis,
}

impl Role {
    pub(super) const ALL: [Self; 4] = [Self::Worker, Self::Client, Self::Server, Self::Redis];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Worker => "Durable Object, `POST /consume`",
            Self::Client => "Durable Object, tidegate-durable",
            Self::Server => "tidegate serve, `POST /v1/take`",
            Self::Redis => "Redis, tidegate-redis",
        }
    }
}

/// The running servers, and the stores on them.
pub(super) struct Servers {
    workerd: Workerd,
    tidegate: Tidegate,
    redis: RedisServer,
}

impl Servers {
    pub(super) fn start(tidegate: &Path) -> Result<Self> {
        let workerd = Workerd::builder().secret(SECRET).binding("TIDEGATE_SHARDS", "1").start();
        let redis = RedisServer::builder(Flavor::Redis).start();
        Ok(Self { workerd, tidegate: Tidegate::start(tidegate, "")?, redis })
    }

    /// The process whose time is spent on the decisions of a contender.
    pub(super) fn process(&self, role: Role) -> u32 {
        match role {
            Role::Worker | Role::Client => self.workerd.pid(),
            Role::Server => self.tidegate.id(),
            Role::Redis => self.redis.pid(),
        }
    }

    /// Returns new callers of a contender. Those over HTTP have a connection each; those on a store
    /// share it.
    pub(super) async fn callers(&self, role: Role, count: usize) -> Result<Vec<DurableCaller>> {
        let store: Arc<dyn Store> = match role {
            Role::Worker => return self.posting(count, || self.consume()).await,
            Role::Server => return self.posting(count, || self.take()).await,
            Role::Client => {
                let address = format!("durable+http://{}", self.workerd.address());
                Arc::new(DurableStore::builder(&address).secret(SECRET).shards(1).build()?)
            }
            Role::Redis => {
                let store = RedisStore::builder(&self.redis.url()).open()?;
                store.connected().await?;
                Arc::new(store)
            }
        };
        let policy = Policy::per_second(1).capacity(1_000_000_000).build()?;
        let limit = Limit::named("client", policy)?;
        Ok((0..count).map(|_| DurableCaller::Store(store.clone(), limit.clone())).collect())
    }

    async fn posting(
        &self,
        count: usize,
        request: impl Fn() -> Post,
    ) -> Result<Vec<DurableCaller>> {
        let mut callers = Vec::new();
        for _ in 0..count {
            let (address, request) = request();
            let connection = Box::new(Connection::open(address).await?);
            callers.push(DurableCaller::Http { connection, request });
        }
        Ok(callers)
    }

    fn consume(&self) -> Post {
        let address = self.workerd.address();
        let headers = format!("authorization: Bearer {SECRET}\r\n");
        let body =
            format!(r#"{{"key":"{KEY}","cost":1,"capacity":1000000000,"tokensPerSecond":1}}"#);
        (address, post(address, "/consume", &headers, &body))
    }

    fn take(&self) -> Post {
        let address = self.tidegate.http;
        let policy = r#"{"capacity":1000000000,"tokens_per_second":1}"#;
        let body = format!(r#"{{"key":"{KEY}","policy":{policy}}}"#);
        (address, post(address, "/v1/take", "", &body))
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").finish_non_exhaustive()
    }
}

/// The start of every response that allows.
const ALLOWED: &[u8] = br#"{"allowed":true"#;

/// An address, and the bytes of a request to it.
type Post = (SocketAddr, Vec<u8>);

/// A caller of a contender.
pub(super) enum DurableCaller {
    Http { connection: Box<Connection>, request: Vec<u8> },
    Store(Arc<dyn Store>, Limit),
}

impl Caller for DurableCaller {
    async fn decide(&mut self) -> Result<bool> {
        match self {
            Self::Http { connection, request } => {
                connection.call(request).await?;
                let body = connection.body();
                let has_result = body.windows(ALLOWED.len()).any(|part| part == ALLOWED);
                ensure!(has_result, "not allowed: {}", String::from_utf8_lossy(body));
                Ok(true)
            }
            Self::Store(store, limit) => take(store.as_ref(), limit).await,
        }
    }
}

async fn take(store: &dyn Store, limit: &Limit) -> Result<bool> {
    let mut responses = StoreResponses::new();
    store.submit(&[Operation::Take(&[Charge::new(limit, KEY, 1)])], &mut responses).await;
    match responses.pop().context("the store returned no response")?? {
        StoreResponse::Decision(decision) => Ok(decision.is_allowed()),
        other => bail!("not a decision: {other:?}"),
    }
}
