//! The server over real sockets, with a clock that the tests control, so that every response is
//! exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod configuration;
mod database;
mod degraded;
mod gateway;
mod grpc;
mod http_api;
mod listeners;
mod shared;
mod snapshot;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate::MemoryStore;
use tidegate::clock::ManualClock;
use tidegate_config::{Key, Layers, Loader};
use tidegate_core::WallTime;
use tidegate_server::{Running, Server};
use tokio::runtime::Runtime;
use wire::Response;

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

/// Returns a configuration whose listeners use free ports, without anything on disk.
fn layers(text: &str) -> Layers {
    layers_on(Loader::default(), text)
}

/// Returns such a configuration on top of the settings of a loader.
fn layers_on(loader: Loader, text: &str) -> Layers {
    on_free_ports(loader).flag(Key::DatabaseUrl, "none").text_layers("test", text)
}

/// Sets a loader's listeners to free ports.
fn on_free_ports(loader: Loader) -> Loader {
    let listeners = [Key::ListenHttp, Key::ListenAdmin, Key::ListenGrpc].into_iter();
    listeners.fold(loader, |loader, listener| loader.flag(listener, "127.0.0.1:0"))
}

fn one_worker() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A running server.
struct TestServer {
    clock: ManualClock,
    agent: ureq::Agent,
    http: SocketAddr,
    admin: SocketAddr,
    running: Option<Running>,
    runtime: Runtime,
}

impl TestServer {
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
        Self::serving(Server::with_store(layers(text), Arc::new(store)).unwrap(), clock)
    }

    fn serving(server: Server, clock: ManualClock) -> Self {
        tidegate_providers::tokens::prepare();
        let runtime = one_worker();
        let running = runtime.block_on(server.open()).unwrap();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let (http, admin) = (running.http(), running.admin());
        Self { clock, agent, http, admin, running: Some(running), runtime }
    }

    fn address(&self) -> SocketAddr {
        self.http
    }

    /// Posts JSON to a path.
    fn post(&self, path: &str, body: &str) -> Response {
        let url = format!("http://{}{path}", self.address());
        let request = self.agent.post(url).header("content-type", "application/json");
        Response::of(request.send(body).unwrap())
    }

    fn get(&self, path: &str) -> Response {
        Response::of(self.agent.get(format!("http://{}{path}", self.address())).call().unwrap())
    }

    /// Puts JSON to a path.
    fn put(&self, path: &str, body: &str) -> Response {
        let url = format!("http://{}{path}", self.address());
        let request = self.agent.put(url).header("content-type", "application/json");
        Response::of(request.send(body).unwrap())
    }

    /// Posts JSON and asserts the status and the exact body.
    #[track_caller]
    fn expect(&self, path: &str, body: &str, status: u16, answer: &str) {
        let response = self.post(path, body);
        assert_eq!((response.status, response.body.as_str()), (status, answer), "{path} {body}");
    }

    fn admin(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// Sends a GET request to the admin API.
    fn admin_get(&self, path: &str) -> Response {
        Response::of(self.agent.get(format!("{}{path}", self.admin())).call().unwrap())
    }

    /// Changes settings through the admin API.
    fn patch(&self, body: &serde_json::Value) -> Response {
        patch(&self.agent, &self.admin(), "*", body)
    }

    /// Returns the value of a setting, read from the admin API.
    fn setting(&self, key: &str) -> serde_json::Value {
        let settings = self.admin_get(&format!("/admin/config?key={key}")).member("settings");
        settings[0]["value"].clone()
    }

    fn advance(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }
}

/// Changes settings if their revision matches.
fn patch(agent: &ureq::Agent, admin: &str, tag: &str, body: &serde_json::Value) -> Response {
    let request = agent.patch(format!("{admin}/admin/config")).header("if-match", tag);
    let request = request.header("content-type", "application/json");
    Response::of(request.send(body.to_string()).unwrap())
}
