//! An HTTP client for tests: one connection per request.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use http::response::Parts;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_sim::{Account, Dialect, Limits, Simulator};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// All dialects.
pub(crate) const DIALECTS: [Dialect; 10] = [
    Dialect::OpenAi,
    Dialect::AzureOpenAi,
    Dialect::Anthropic,
    Dialect::Gemini,
    Dialect::Groq,
    Dialect::Mistral,
    Dialect::Together,
    Dialect::OpenRouter,
    Dialect::DeepSeek,
    Dialect::Ollama,
];

/// A received response.
#[derive(Debug)]
pub(crate) struct ReceivedResponse {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    /// Whether the body was complete.
    pub(crate) is_complete: bool,
}

impl ReceivedResponse {
    fn new(head: &Parts, body: Vec<u8>, is_complete: bool) -> Self {
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let headers =
            head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let body = String::from_utf8(body).unwrap();
        Self { status: head.status.as_u16(), headers, body, is_complete }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the headers that do not describe the body, as lines.
    pub(crate) fn limit_headers(&self) -> Vec<String> {
        let plain = ["content-type", "content-length", "transfer-encoding", "date"];
        let limit_headers = self.headers.iter().filter(|(name, _)| !plain.contains(&name.as_str()));
        limit_headers.map(|(name, value)| format!("{name}: {value}")).collect()
    }

    /// Returns the data of the events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// A request builder.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Call {
    /// Creates a chat of two tokens with the model `m` and the key `secret-key`.
    pub(crate) fn new(dialect: Dialect) -> Self {
        let messages = json!([{ "role": "user", "content": "12345678" }]);
        let (path, body) = match dialect {
            Dialect::AzureOpenAi => (
                "/openai/deployments/m/chat/completions?api-version=2024-10-21",
                json!({ "messages": messages }),
            ),
            Dialect::Anthropic => {
                ("/v1/messages", json!({ "model": "m", "messages": messages, "max_tokens": 50 }))
            }
            Dialect::Gemini => (
                "/v1beta/models/m:generateContent",
                json!({ "contents": [{ "parts": [{ "text": "12345678" }] }] }),
            ),
            Dialect::Ollama => {
                ("/api/chat", json!({ "model": "m", "messages": messages, "stream": false }))
            }
            compatible => {
                let path = match compatible {
                    Dialect::Groq => "/openai/v1/chat/completions",
                    Dialect::OpenRouter => "/api/v1/chat/completions",
                    Dialect::DeepSeek => "/chat/completions",
                    _ => "/v1/chat/completions",
                };
                (path, json!({ "model": "m", "messages": messages }))
            }
        };
        let call = Self { path: path.to_owned(), headers: Vec::new(), body };
        match dialect {
            Dialect::AzureOpenAi => call.header("api-key", "secret-key"),
            Dialect::Anthropic => {
                call.header("x-api-key", "secret-key").header("anthropic-version", "2023-06-01")
            }
            Dialect::Gemini => call.header("x-goog-api-key", "secret-key"),
            Dialect::Ollama => call,
            _ => call.header("authorization", "Bearer secret-key"),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body[name] = value.into();
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub(crate) fn model(self, model: &str) -> Self {
        self.field("model", model)
    }

    /// Sets the length of the response.
    pub(crate) fn output(self, tokens: u64) -> Self {
        self.header("x-sim-output-tokens", &tokens.to_string())
    }

    /// Sends the request over an in-process connection.
    pub(crate) async fn send(&self, simulator: &Simulator) -> ReceivedResponse {
        self.send_on(simulator.connect().unwrap()).await.unwrap()
    }

    /// Sends the request over a connection.
    pub(crate) async fn send_on(
        &self,
        connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<ReceivedResponse, hyper::Error> {
        self.send_bytes(connection, self.body.to_string()).await
    }

    pub(crate) async fn send_bytes(
        &self,
        connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: String,
    ) -> Result<ReceivedResponse, hyper::Error> {
        let (head, mut frames) = self.begin(connection, body).await?;
        let mut body = Vec::new();
        while let Some(frame) = frames.frame().await {
            match frame {
                Ok(frame) => body.extend_from_slice(frame.data_ref().unwrap()),
                Err(_) => return Ok(ReceivedResponse::new(&head, body, false)),
            }
        }
        Ok(ReceivedResponse::new(&head, body, true))
    }

    /// Sends the request and disconnects after an idle time. `None` if no headers arrived.
    pub(crate) async fn send_until_idle(
        &self,
        connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        patience: Duration,
    ) -> Option<ReceivedResponse> {
        let begun = timeout(patience, self.begin(connection, self.body.to_string())).await;
        let (head, mut frames) = begun.ok()?.unwrap();
        let mut body = Vec::new();
        while let Ok(frame) = timeout(patience, frames.frame()).await {
            let Some(frame) = frame else { return Some(ReceivedResponse::new(&head, body, true)) };
            body.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        Some(ReceivedResponse::new(&head, body, false))
    }

    /// Sends the request and returns the response headers and body. Dropping the body closes the
    /// connection.
    async fn begin(
        &self,
        connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: String,
    ) -> Result<(Parts, Incoming), hyper::Error> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(connection)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::post(&self.path).header("host", "sim");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = sender.send_request(request).await;
        if response.is_err() {
            driver.abort();
        }
        Ok(response?.into_parts())
    }
}

/// Creates a simulator with one account `main` that has one model `m`.
pub(crate) fn simulator(dialect: Dialect, limits: Limits) -> Simulator {
    with(account(dialect, limits))
}

pub(crate) fn account(dialect: Dialect, limits: Limits) -> Account {
    Account::new(dialect, "main", "secret-key").model("m", limits)
}

pub(crate) fn with(account: Account) -> Simulator {
    Simulator::builder().account(account).build().unwrap()
}
