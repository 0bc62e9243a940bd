//! Legitimate callers: several addresses with one key each, at a steady rate.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::wire::{self, ask, loopback};
use crate::stopwatch::Stopwatch;

/// Number of callers, each with its own address and key.
const CALLERS: u8 = 8;
/// Time between the calls of a caller.
const PACE: Duration = Duration::from_millis(100);
/// Calls per connection. A new connection then shows whether the listener still accepts any.
const PER_CONNECTION: usize = 10;
/// A call that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Results of one phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    /// Duration of each successful chat call, in nanoseconds.
    pub(super) chats: Vec<u64>,
    /// Duration of each decision, in nanoseconds.
    pub(super) takes: Vec<u64>,
    pub(super) failures: u64,
    /// Error of the first failed call.
    pub(super) first_failure: Option<String>,
}

impl Calls {
    /// Number of all calls.
    pub(super) fn count(&self) -> u64 {
        (self.chats.len() + self.takes.len()) as u64 + self.failures
    }
}

const fn is_take(turn: usize) -> bool {
    matches!(turn % 10, 1 | 2)
}

/// Runs all callers for `length`.
pub(super) async fn call(http: SocketAddr, length: Duration) -> Calls {
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        callers.spawn(Caller { http, number, stream: None }.keep_calling(length));
    }
    let mut all = Calls::default();
    while let Some(Ok(calls)) = callers.join_next().await {
        all.chats.extend(calls.chats);
        all.takes.extend(calls.takes);
        all.failures += calls.failures;
        all.first_failure = all.first_failure.or(calls.first_failure);
    }
    all
}

struct Caller {
    http: SocketAddr,
    number: u8,
    /// Kept between calls.
    stream: Option<TcpStream>,
}

impl Caller {
    async fn keep_calling(mut self, length: Duration) -> Calls {
        let (clock, mut calls) = (Stopwatch::start(), Calls::default());
        let mut pace = interval(PACE);
        // A delayed caller does not catch up in a burst.
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut turn = usize::from(self.number);
        while clock.elapsed() < length {
            pace.tick().await;
            turn += 1;
            if turn.is_multiple_of(PER_CONNECTION) {
                self.stream = None;
            }
            let request = self.request(turn);
            let stopwatch = Stopwatch::start();
            let called = timeout(TIMEOUT, self.call(&request)).await;
            match called.unwrap_or_else(|_| Err(anyhow::anyhow!("timed out"))) {
                Ok(()) if is_take(turn) => calls.takes.push(stopwatch.nanos()),
                Ok(()) => calls.chats.push(stopwatch.nanos()),
                Err(error) => {
                    self.stream = None;
                    calls.failures += 1;
                    calls.first_failure.get_or_insert_with(|| format!("{error:#}"));
                }
            }
        }
        calls
    }

    /// Of ten calls seven are chats, one is a stream and two are decisions.
    fn request(&self, turn: usize) -> Vec<u8> {
        let key = format!("sk-caller-{}", self.number);
        match turn % 10 {
            0 => wire::chat(&key, "", "gpt-4o-mini", true),
            _ if is_take(turn) => wire::take(&key),
            _ => wire::chat(&key, "", "gpt-4o-mini", false),
        }
    }

    async fn call(&mut self, request: &[u8]) -> Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let from = loopback(101 + self.number);
                self.stream.insert(wire::connect(from, self.http).await?)
            }
        };
        let status = ask(stream, request).await?;
        ensure!(status == 200, "status {status}");
        Ok(())
    }
}
