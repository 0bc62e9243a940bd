//! The admin API over real sockets.

mod access;
mod changes;
mod event_streams;
mod reads;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::problem::AdminProblem;
use super::*;
use crate::configuration;
use crate::database::{ChangeOrigin, Database, SettingUpdate, StoredSettings};
use crate::events::Events;
use crate::listener::accept;
use crate::listener::drain::Drain;
use crate::listener::files::OpenFiles;
use crate::metrics::Metrics;
use crate::tokens::{NewToken, Role, Tokens, create_token};

/// The configuration that the tests show and change.
const TEXT: &str = r#"
[limits.client]
capacity = 100
rate = "50/s"
[limits.clients]
rate = "1/s"
[providers.openai]
base_url = "https://api.openai.com"
max_concurrent_requests = 8
max_retries = 8
[providers.openai.endpoints.embeddings]
max_concurrent_requests = 16
[store]
url = "redis://127.0.0.1:6379"
"#;

/// Creates a configuration at revision 1, without a database.
fn config(text: &str) -> Arc<ActiveConfig> {
    configuration::from_text(
        text,
        StoredSettings { revision: 1, ..StoredSettings::default() },
        None,
    )
}

/// A running admin API.
struct TestServer {
    address: SocketAddr,
    config: Arc<ActiveConfig>,
    tokens: Arc<Tokens>,
    events: Events,
    metrics: Metrics,
    /// Number of limits that deny because the store is down.
    denying_limits: Arc<AtomicUsize>,
    agent: ureq::Agent,
    /// Stops the other listeners.
    others: Option<Drain>,
    own: Option<Drain>,
    runtime: Runtime,
    /// The directory of the database, if there is one.
    _folder: Option<TempDir>,
}

impl TestServer {
    fn open() -> Self {
        Self::with_bounds(Bounds::default())
    }

    fn with_bounds(bounds: Bounds) -> Self {
        Self::serving(config(TEXT), bounds)
    }

    /// Starts a server with a database, at revision 1.
    fn with_database(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::sqlite(folder.path().join("tidegate.db"));
        let runtime = Runtime::new().unwrap();
        let (first, note) = (
            SettingUpdate::set("limits.clients.rate", "\"1/s\""),
            ChangeOrigin { door: "cli", who: None },
        );
        let stored = runtime.block_on(database.write(&[first], &note, None)).unwrap();
        let server = Self::serving(
            configuration::from_text(text, stored, Some(database)),
            Bounds::default(),
        );
        Self { _folder: Some(folder), ..server }
    }

    fn serving(config: Arc<ActiveConfig>, bounds: Bounds) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let (listener, address) = runtime.block_on(accept::bind(any)).unwrap();
        let (others, mut own) = (Drain::new(), Drain::new());
        let denying_limits = Arc::new(AtomicUsize::new(0));
        let counted = denying_limits.clone();
        let health = Health::new(others.signal(), move || counted.load(Ordering::Relaxed));
        let host_check = HostCheck::new(address, Vec::new());
        let info = ServerInfo::new([("admin", address)]);
        let api = AdminApi { config: config.clone(), host_check, bounds, health, info };
        let Parts { tokens, events, metrics, .. } = config.parts().clone();
        let stop = own.signal();
        runtime.block_on(async { own.spawn(api.serve(listener, OpenFiles::default(), stop)) });
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let (others, own) = (Some(others), Some(own));
        Self {
            address,
            config,
            tokens,
            events,
            metrics,
            denying_limits,
            agent,
            others,
            own,
            runtime,
            _folder: None,
        }
    }

    /// Returns the current revision.
    fn revision(&self) -> u64 {
        self.config.current().revision
    }

    /// Starts a server with a read token and a write token.
    fn with_tokens() -> (Self, NewToken, NewToken) {
        let (reader, writer) = (create_token().unwrap(), create_token().unwrap());
        let tokens = format!(
            "[admin]\nread_tokens = [\"{}\"]\nwrite_tokens = [\"{}\"]\n",
            reader.digest, writer.digest
        );
        (Self::with_database(&format!("{TEXT}{tokens}")), reader, writer)
    }

    /// Sends a request with these headers.
    fn request(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Response {
        let mut request = Request::builder().method(method);
        request = request.uri(format!("http://{}{path}", self.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(body.to_owned()).unwrap();
        let request =
            self.agent.configure_request(request).allow_non_standard_methods(true).build();
        Response::of(self.agent.run(request).unwrap())
    }

    fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[], "")
    }

    fn patch(&self, fields: &[(&str, &str)], body: &str) -> Response {
        let fields = [fields, &[("content-type", "application/json")]].concat();
        self.request("PATCH", "/admin/config", &fields, body)
    }
}

/// A response.
#[derive(Debug)]
struct Response {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Response {
    /// Renders a problem.
    fn rendered(problem: AdminProblem) -> Self {
        let (head, body) = problem.into_response().into_parts();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = runtime.block_on(axum::body::to_bytes(body, usize::MAX)).unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

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

    /// Asserts that the response is this problem.
    #[track_caller]
    fn assert_problem(&self, status: u16, kind: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.json()["type"], format!("urn:tidegate:problem:{kind}"));
    }
}

fn bearer(minted: &NewToken) -> String {
    format!("Bearer {}", minted.token)
}
