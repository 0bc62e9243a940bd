//! Where calls go: a socket on this machine, or a connection in memory.
//!
//! Each request has a connection of its own, which costs little on loopback.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use tidegate_server::InProcess;
use tidegate_sim::Simulator;
use tokio::net::{TcpListener, TcpStream};

use super::scenario::KEY;
use crate::http_client::exchange;

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("the request is malformed: {0}")]
    Request(#[from] http::Error),
}

/// Where calls go. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    Socket(SocketAddr),
    Simulator(Simulator),
    Gateway(InProcess),
}

/// The part of a response that decides about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// What `retry-after-ms` or `retry-after` ask for.
    pub(super) retry_after: Option<Duration>,
    /// What `x-should-retry` says.
    pub(super) should_retry: Option<bool>,
}

impl Endpoint {
    /// Serves a provider on a free port of the loopback address.
    pub(super) async fn serve(simulator: &Simulator) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let simulator = simulator.clone();
        tokio::spawn(async move { simulator.serve(listener).await });
        Ok(Self::Socket(address))
    }

    /// The base URL. Connections in memory have no address, and their name is never resolved.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Socket(address) => format!("http://{address}"),
            Self::Simulator(_) | Self::Gateway(_) => "http://localhost:8080".to_owned(),
        }
    }

    /// Posts JSON and reads the response to its end.
    pub(super) async fn post(&self, path: &str, body: String) -> Result<Answer, SendError> {
        let host = self.url();
        let request = Request::post(path)
            .header(HOST, host.trim_start_matches("http://"))
            .header(AUTHORIZATION, format!("Bearer {KEY}"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body))?;
        let response = match self {
            Self::Socket(address) => exchange(TcpStream::connect(address).await?, request).await,
            Self::Simulator(simulator) => exchange(simulator.connect()?, request).await,
            Self::Gateway(gateway) => exchange(gateway.connect(), request).await,
        };
        Ok(Answer::of(&response?))
    }
}

impl Answer {
    fn of(response: &Response<Bytes>) -> Self {
        let headers = response.headers();
        let should_retry = text(headers, "x-should-retry").and_then(|text| text.parse().ok());
        Self { status: response.status(), retry_after: retry_after(headers), should_retry }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| text(headers, name)?.parse::<f64>().ok();
    let millis = number("retry-after-ms").map(|millis| millis / 1_000.0);
    let seconds = millis.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_come_before_seconds() {
        let wait = |pairs: &[(&str, &str)]| {
            let header = |(name, value): &(&str, &str)| {
                (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
            };
            retry_after(&pairs.iter().map(header).collect())
        };
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("retry-after", "2")]), Some(Duration::from_secs(2)));
        let both = [("retry-after", "2"), ("retry-after-ms", "1500")];
        assert_eq!(wait(&both), Some(Duration::from_millis(1_500)));
        assert_eq!(wait(&[("retry-after", "-1")]), None);
    }
}
