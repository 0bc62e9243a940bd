//! Concurrent callers, with an official client or plain HTTP.

use std::fmt;
use std::io::Read as _;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fixtures::{Gateway, KEY};

/// Timeout of official clients. The scripts are killed after two minutes.
const SDK_TIMEOUT: Duration = Duration::from_secs(110);

/// Timeout of plain callers, longer than any call should take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `work` on several threads concurrently.
pub(super) fn at_once<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Result of one call of an official client.
#[derive(Debug, Deserialize)]
pub(super) struct SdkCall {
    /// Status of the response, if any.
    pub(super) status: Option<u16>,
    /// Error raised by the client.
    pub(super) error: Option<String>,
    /// Time from the start of all calls to the end of this one.
    pub(super) seconds: f64,
}

/// Results of concurrent calls of an official client.
#[derive(Debug)]
pub(super) struct ConcurrentCalls {
    calls: Vec<SdkCall>,
}

impl ConcurrentCalls {
    /// Makes concurrent calls with an official client, without its retries.
    pub(super) fn run(gateway: &Gateway, callers: usize, max_tokens: u64) -> Self {
        let timeout = SDK_TIMEOUT.as_secs();
        let args = [callers as u64, max_tokens, timeout].map(|number| number.to_string());
        let calls =
            gateway.run("outbound/concurrent_calls.py", &args.each_ref().map(String::as_str));
        Self { calls: serde_json::from_value(calls).unwrap() }
    }

    pub(super) fn answered(&self) -> usize {
        self.calls.iter().filter(|call| call.status == Some(200)).count()
    }

    /// Returns the duration of the slowest call.
    pub(super) fn took(&self) -> Duration {
        let seconds = self.calls.iter().map(|call| call.seconds).fold(0.0, f64::max);
        Duration::from_secs_f64(seconds)
    }
}

impl fmt::Display for ConcurrentCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, took) = (self.calls.len(), self.took());
        write!(f, "{} of {all} answered within {took:.1?}", self.answered())?;
        for call in self.calls.iter().filter(|call| call.status != Some(200)) {
            let (status, error) = (call.status, call.error.as_deref().unwrap_or_default());
            write!(f, "\nafter {:.1} s: {status:?} {error}", call.seconds)?;
        }
        Ok(())
    }
}

/// A caller of the OpenAI API over plain HTTP.
pub(super) struct Caller {
    agent: ureq::Agent,
    url: String,
}

/// Result of a plain call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallResult {
    /// Status of the response, if any.
    pub(super) status: Option<u16>,
    /// The part of the body that was received.
    pub(super) body: String,
    /// Why the response is incomplete, if it is.
    pub(super) broken: Option<String>,
    /// Time until the headers.
    pub(super) head_after: Duration,
    /// Total time.
    pub(super) took: Duration,
    headers: http::HeaderMap,
}

/// Options of a plain call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallOptions {
    pub(super) is_streamed: bool,
    pub(super) max_tokens: Option<u64>,
    /// `x-tidegate-max-wait-ms`.
    pub(super) max_wait_ms: Option<u64>,
    /// `x-tidegate-tenant`.
    pub(super) tenant: Option<&'static str>,
}

impl Caller {
    pub(super) fn new(gateway: &Gateway) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(TIMEOUT)).build().into();
        Self { agent, url: format!("{}/chat/completions", gateway.base_url()) }
    }

    pub(super) fn call(&self, options: CallOptions) -> CallResult {
        let mut body = json!({
            "model": "tidal-1",
            "messages": [{ "role": "user", "content": "How is the tide?" }],
            "stream": options.is_streamed,
        });
        if let Some(max_tokens) = options.max_tokens {
            body["max_tokens"] = json!(max_tokens);
        }
        let request = self.agent.post(&self.url).header("authorization", format!("Bearer {KEY}"));
        let request = request.header("content-type", "application/json");
        let request = match options.max_wait_ms {
            Some(millis) => request.header("x-tidegate-max-wait-ms", millis.to_string()),
            None => request,
        };
        let request = match options.tenant {
            Some(tenant) => request.header("x-tidegate-tenant", tenant),
            None => request,
        };
        let start = Instant::now();
        let sent = request.send(body.to_string());
        let head_after = start.elapsed();
        let mut reply = CallResult { head_after, took: head_after, ..CallResult::default() };
        let (head, body) = match sent {
            Ok(response) => response.into_parts(),
            Err(error) => return CallResult { broken: Some(error.to_string()), ..reply },
        };
        let mut bytes = Vec::new();
        let broken = body.into_reader().read_to_end(&mut bytes).err();
        reply.took = start.elapsed();
        reply.status = Some(head.status.as_u16());
        reply.headers = head.headers;
        reply.body = String::from_utf8_lossy(&bytes).into_owned();
        reply.broken = broken.map(|error| error.to_string());
        reply
    }
}

impl CallResult {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Parses a header as a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    /// Returns the OpenAI error in the body.
    pub(super) fn error(&self) -> Value {
        let mut body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"].take()
    }

    /// Returns the error message, or why the response is incomplete.
    pub(super) fn message(&self) -> String {
        let error = self.error();
        let message = error["message"].as_str().or(self.broken.as_deref());
        message.unwrap_or_default().to_owned()
    }
}
