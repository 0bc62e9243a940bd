//! The server from the outside: real doors on a free port, real HTTP, and a clock that the tests
//! move, so that every answer is exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod decisions;
mod degraded;
mod doors;
mod errors;
mod guards;
mod lists;
mod reservations;
mod shared;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::ManualClock;
use tidegate::{MemoryStore, WallTime};
use tidegate_config::{Key, Loader};
use tidegate_server::{Running, Server};
use tokio::runtime::Runtime;
use wire::Reply;

const LIMITS: &str = r#"
[listen]
allowed_hosts = ["gate.example.org"]
[limits.client]
capacity = 10
rate = "1/s"
[limits.organization]
capacity = 15
rate = "10/s"
[limits.daily]
quota = 3
every = "day"
[limits.messages]
allowance = 2
"#;

/// A server with its doors open.
struct Gate {
    clock: ManualClock,
    agent: ureq::Agent,
    running: Option<Running>,
    runtime: Runtime,
}

impl Gate {
    fn open() -> Self {
        Self::configured(LIMITS)
    }

    fn configured(text: &str) -> Self {
        Self::with_memory(text, 64 << 20)
    }

    fn with_memory(text: &str, bytes: usize) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        // An hour before midnight, UTC.
        clock.set_wall(WallTime::from_secs(20_000 * 86_400 - 3_600));
        let store = MemoryStore::builder().max_memory(bytes).clock(clock.clone()).build().unwrap();
        let plan = Loader::default().flag(Key::ListenHttp, "127.0.0.1:0").text("test", text);
        Self::serving(Server::with_store(&plan.unwrap(), Arc::new(store)), clock)
    }

    fn serving(server: Server, clock: ManualClock) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let running = runtime.block_on(server.open()).unwrap();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        Self { clock, agent, running: Some(running), runtime }
    }

    fn address(&self) -> std::net::SocketAddr {
        self.running.as_ref().unwrap().http()
    }

    /// Posts JSON to a path.
    fn post(&self, path: &str, body: &str) -> Reply {
        let url = format!("http://{}{path}", self.address());
        let request = self.agent.post(url).header("content-type", "application/json");
        Reply::of(request.send(body).unwrap())
    }

    fn get(&self, path: &str) -> Reply {
        Reply::of(self.agent.get(format!("http://{}{path}", self.address())).call().unwrap())
    }

    /// Puts JSON to a path.
    fn put(&self, path: &str, body: &str) -> Reply {
        let url = format!("http://{}{path}", self.address());
        let request = self.agent.put(url).header("content-type", "application/json");
        Reply::of(request.send(body).unwrap())
    }

    /// Posts JSON that must be answered with this status and exactly this body.
    #[track_caller]
    fn expect(&self, path: &str, body: &str, status: u16, answer: &str) {
        let reply = self.post(path, body);
        assert_eq!((reply.status, reply.body.as_str()), (status, answer), "{path} {body}");
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}
