//! Permits over HTTP: `/v1/acquire`, `/v1/release`, `/v1/renew`, `/v1/settle`, and `/v1/admit` with
//! `hold`.

mod ending;
mod holding;
mod pool;
mod waiting;

use std::fs;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_testkit::launch::wait_until;

use crate::program::{Serving, serve};

const LIMITS: &str = "[limits.gpu]\nconcurrency = 1\n\
                      [limits.tokens]\ncapacity = 10\nrate = \"1/day\"\n\
                      [limits.user]\ncapacity = 1\nrate = \"1/day\"\n\
                      [admission]\nbackpressure_threshold = 1\n";

/// A running server with these limits.
struct Fixture {
    serving: Serving,
    /// A client for other threads.
    caller: Caller,
    _folder: TempDir,
}

/// A client of the HTTP API.
struct Caller {
    url: String,
    agent: ureq::Agent,
}

impl Caller {
    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.agent.post(format!("{}{path}", self.url));
        let request = request.header("content-type", "application/json");
        let mut reply = request.send(body.to_string()).unwrap();
        let body = reply.body_mut().read_to_string().unwrap();
        (reply.status().as_u16(), serde_json::from_str(&body).unwrap())
    }

    fn acquire(&self, body: &Value) -> (u16, Value) {
        self.post("/v1/acquire", body)
    }
}

impl Fixture {
    fn open() -> Self {
        Self::with(LIMITS, &[])
    }

    fn with(text: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), text).unwrap();
        let serving = Serving::start(&mut serve(folder.path(), flags));
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let caller = Caller { url: serving.url.clone(), agent };
        Self { serving, caller, _folder: folder }
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.caller.post(path, body)
    }

    /// Acquires a permit, which must be granted, and returns its id.
    #[track_caller]
    fn acquire(&self, body: &Value) -> String {
        let (status, answer) = self.post("/v1/acquire", body);
        assert_eq!((status, &answer["allowed"]), (200, &Value::Bool(true)), "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    /// Returns what remains of the limit `tokens` for the key `acme`.
    fn tokens(&self) -> u64 {
        let peek = serde_json::json!({"limit": "tokens", "key": "acme", "cost": 0});
        self.post("/v1/peek", &peek).1["remaining"].as_u64().unwrap()
    }

    fn pending(&self) -> u64 {
        let mut reply =
            self.caller.agent.get(format!("{}/v1/pending", self.caller.url)).call().unwrap();
        let body: Value =
            serde_json::from_str(&reply.body_mut().read_to_string().unwrap()).unwrap();
        body["pending"].as_u64().unwrap()
    }

    /// Returns the value of a metric; `name` includes the labels, if any.
    fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.serving.ask("/metrics");
        let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        row.unwrap_or_else(|| panic!("{name} is not in:\n{text}")).parse().unwrap()
    }

    fn wait_for_waiters(&self, waiters: u64) {
        let what = format!("{waiters} to wait");
        wait_until(&what, || (self.metric("tidegate_permit_waiters") == waiters).then_some(()));
    }
}
