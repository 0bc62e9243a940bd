//! The door from the outside: real sockets, on a configuration in memory.

mod access;
mod changing;
mod showing;
mod watching;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use super::*;
use crate::listener::accept;
use crate::listener::drain::Drain;
use crate::tokens::{Minted, Role, mint};

/// A configuration in memory: a flat table of values.
#[derive(Default)]
struct Book {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    revision: u64,
    values: BTreeMap<String, Value>,
    history: Vec<Audit>,
    /// What the next change fails with.
    failure: Option<UpdateError>,
}

impl Book {
    fn new() -> Arc<Self> {
        let values = [
            ("limits.client.capacity", json!(100)),
            ("limits.client.rate", json!("50/s")),
            ("limits.clients.rate", json!("1/s")),
            ("listen.admin", json!("127.0.0.1:6070")),
            ("providers.openai.base_url", json!("https://api.openai.com")),
            ("providers.openai.endpoints.embeddings.max_concurrent_requests", json!(16)),
            ("providers.openai.max_concurrent_requests", json!(8)),
            ("providers.openai.max_retries", json!(8)),
            ("store.url", json!("redis://127.0.0.1:6379")),
        ];
        let book = Self::default();
        let mut state = book.state.lock().unwrap();
        state.revision = 1;
        state.values = values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        drop(state);
        Arc::new(book)
    }

    fn fail(&self, error: UpdateError) {
        self.state.lock().unwrap().failure = Some(error);
    }
}

impl State {
    fn shown(&self) -> Shown {
        let setting = |(key, value): (&String, &Value)| Setting {
            key: key.clone(),
            value: value.clone(),
            source: "file".to_owned(),
            shadowed: vec![Shadowed { source: "default".to_owned(), value: json!(1) }],
            configured: None,
        };
        let settings = self.values.iter().map(setting).collect();
        Shown { revision: self.revision, settings, warnings: Vec::new() }
    }

    /// Sets every key of a flat patch.
    fn apply(
        &mut self,
        patch: &[u8],
        expected: Option<u64>,
        by: &By,
    ) -> Result<Shown, UpdateError> {
        let now = self.revision;
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if expected.is_some_and(|expected| expected != now) {
            return Err(UpdateError::Conflict { now });
        }
        self.revision += 1;
        let patch: BTreeMap<String, Value> = serde_json::from_slice(patch).unwrap();
        for (key, new) in patch {
            let old = self.values.insert(key.clone(), new.clone());
            self.history.insert(
                0,
                Audit {
                    revision: self.revision,
                    at_ms: 0,
                    door: by.door.to_owned(),
                    who: by.who.clone(),
                    key,
                    old,
                    new: Some(new),
                },
            );
        }
        Ok(self.shown())
    }
}

impl Control for Book {
    fn shown(&self) -> Shown {
        self.state.lock().unwrap().shown()
    }

    fn update(&self, patch: Bytes, expected: Option<u64>, by: By) -> ControlFuture<'_, Shown> {
        Box::pin(async move { self.state.lock().unwrap().apply(&patch, expected, &by) })
    }

    fn history(&self, most: usize) -> ControlFuture<'_, Vec<Audit>> {
        let history = self.state.lock().unwrap().history.iter().take(most).cloned().collect();
        Box::pin(std::future::ready(Ok(history)))
    }
}

/// A door that is open.
struct Gate {
    address: SocketAddr,
    book: Arc<Book>,
    tokens: Arc<Tokens>,
    events: Events,
    metrics: Metrics,
    /// Limits that cannot decide for want of a store.
    undecided: Arc<AtomicUsize>,
    agent: ureq::Agent,
    /// What the other doors are stopped by.
    others: Option<Drain>,
    own: Option<Drain>,
    runtime: Runtime,
}

impl Gate {
    fn open() -> Self {
        Self::bounded(Bounds::default())
    }

    fn bounded(bounds: Bounds) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, address) = runtime.block_on(accept::bind(any)).unwrap();
        let (others, mut own) = (Drain::new(), Drain::new());
        let (book, undecided) = (Book::new(), Arc::new(AtomicUsize::new(0)));
        let counted = undecided.clone();
        let health = Health::new(others.signal(), move || counted.load(Ordering::Relaxed));
        let door = AdminApi {
            control: book.clone(),
            tokens: Arc::default(),
            host_check: HostCheck::new(address, Vec::new()),
            bounds,
            metrics: Metrics::default(),
            events: Events::default(),
            health,
        };
        let (tokens, events, metrics) =
            (door.tokens.clone(), door.events.clone(), door.metrics.clone());
        let stop = own.signal();
        runtime.block_on(async { own.watch(door.serve(listener, stop)) });
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let (others, own) = (Some(others), Some(own));
        Self { address, book, tokens, events, metrics, undecided, agent, others, own, runtime }
    }

    /// A door with a token that may look and one that may change.
    fn guarded() -> (Self, Minted, Minted) {
        let (gate, reader, writer) = (Self::open(), mint().unwrap(), mint().unwrap());
        gate.tokens.replace([(reader.digest, Role::Read), (writer.digest, Role::Write)]);
        (gate, reader, writer)
    }

    /// Asks, with these header fields.
    fn ask(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Reply {
        let mut request = http::Request::builder().method(method);
        request = request.uri(format!("http://{}{path}", self.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_owned()).unwrap();
        let request =
            self.agent.configure_request(request).allow_non_standard_methods(true).build();
        Reply::of(self.agent.run(request).unwrap())
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "")
    }

    fn patch(&self, fields: &[(&str, &str)], body: &str) -> Reply {
        let fields = [fields, &[("content-type", "application/json")]].concat();
        self.ask("PATCH", "/admin/config", &fields, body)
    }
}

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Reply {
    fn of(response: http::Response<ureq::Body>) -> Self {
        let (head, mut body) = response.into_parts();
        let body = body.read_to_string().unwrap();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// It must be this problem.
    #[track_caller]
    fn refused(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.json()["type"], format!("urn:tidegate:problem:{kind}"));
    }
}

fn bearer(minted: &Minted) -> String {
    format!("Bearer {}", minted.token)
}
