//! A fake provider that responds as its callers request and records calls, and the program in front
//! of it.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;
use ureq::http;

use crate::program::{Ended, Serving, serve};

/// Request headers: the status to respond with, and the name of the call.
pub(super) const STATUS: &str = "x-answer";
pub(super) const CALL: &str = "x-call";

/// A fake provider that responds with the status in the request, or 200.
#[derive(Clone)]
pub(super) struct Upstream {
    pub(super) url: String,
    shared: Arc<(Mutex<Seen>, Condvar)>,
}

/// Recorded calls.
#[derive(Default)]
pub(super) struct Seen {
    /// Attempts by call.
    pub(super) attempts: HashMap<String, usize>,
    /// Unanswered requests by call.
    pub(super) under_way: HashMap<String, usize>,
    /// Arrival times of all requests.
    pub(super) times: Vec<Instant>,
    /// Whether responses are held back.
    is_held: bool,
}

impl Upstream {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let upstream = Self { url, shared: Arc::default() };
        let served = upstream.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                thread::spawn(move || served.serve(&stream));
            }
        });
        upstream
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.0.lock().unwrap()
    }

    /// Holds back all responses, or sends them.
    pub(super) fn hold(&self, is_held: bool) {
        self.seen().is_held = is_held;
        self.shared.1.notify_all();
    }

    /// Returns the number of attempts of a call.
    pub(super) fn attempts(&self, call: &str) -> usize {
        self.seen().attempts.get(call).copied().unwrap_or(0)
    }

    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(headers) = read_request(&mut reader) {
            let field = |name: &str| headers.get(name).cloned().unwrap_or_default();
            let (call, status) = (field(CALL), field(STATUS));
            let mut seen = self.seen();
            *seen.attempts.entry(call.clone()).or_default() += 1;
            *seen.under_way.entry(call.clone()).or_default() += 1;
            seen.times.push(Instant::now());
            let mut seen = self.shared.1.wait_while(seen, |seen| seen.is_held).unwrap();
            *seen.under_way.get_mut(&call).unwrap() -= 1;
            drop(seen);
            let status = if status.is_empty() { "200" } else { &status };
            let body = match (status, field("x-error")) {
                ("200", _) => json!({ "choices": [] }),
                (_, error) => json!({ "error": { "message": "no", "type": error } }),
            };
            let body = body.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let mut stream = stream;
            if stream.write_all(format!("{head}{body}").as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Reads a request and returns its headers.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<HashMap<String, String>> {
    let mut headers = HashMap::new();
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    reader.read_exact(&mut vec![0; length]).ok()?;
    Some(headers)
}

/// A running program with a configuration file.
pub(super) struct Gateway {
    pub(super) serving: Serving,
    pub(super) caller: Caller,
    _folder: TempDir,
}

/// A client that can be used from any thread.
#[derive(Clone)]
pub(super) struct Caller {
    agent: ureq::Agent,
    url: String,
}

/// Result of a call.
#[derive(Debug)]
pub(super) struct CallResult {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) body: Value,
}

impl CallResult {
    pub(super) fn number(&self, name: &str) -> u64 {
        self.headers[name].to_str().unwrap().parse().unwrap()
    }
}

impl Gateway {
    pub(super) fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidegate.toml"), text).unwrap();
        let serving = Serving::start(&mut serve(folder.path(), &[]));
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let caller = Caller { agent: config.build().into(), url: serving.url.clone() };
        Self { serving, caller, _folder: folder }
    }

    pub(super) fn call(&self, path: &str, model: &str, headers: &[(&str, &str)]) -> CallResult {
        self.caller.call(path, model, headers)
    }

    /// Returns whether the metrics contain this line.
    pub(super) fn shows(&self, line: &str) -> bool {
        self.serving.ask("/metrics").1.lines().any(|it| it == line)
    }

    pub(super) fn change(&self, settings: &Value) {
        let (status, body) = self.serving.patch(settings);
        assert_eq!(status, 200, "{body}");
    }

    pub(super) fn stop(self) -> Ended {
        self.serving.stop("TERM")
    }
}

impl Caller {
    /// Posts a request for a model to a path, with these headers.
    pub(super) fn call(&self, path: &str, model: &str, headers: &[(&str, &str)]) -> CallResult {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = json!({ "model": model, "messages": [] }).to_string();
        let mut response = request.send(body).unwrap();
        let body = response.body_mut().read_to_string().unwrap();
        CallResult {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: serde_json::from_str(&body).unwrap_or(Value::String(body)),
        }
    }
}
