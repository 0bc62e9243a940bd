//! The body of a response: keep-alives while queued, then token by token, until its end or a fault.
//!
//! Instants are computed from the first one, so that timer errors do not add up.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use tokio::time::{Instant, sleep, sleep_until};

use crate::account::Delay;
use crate::dialect::{Codec, ResponseContent};
use crate::fault::Fault;
use crate::ledger::CallEnding;
use crate::limits::pool::QueueEntry;
use crate::random::Random;
use crate::server::call::Call;
use crate::server::connection::ConnectionControl;
use crate::text;

/// A response body.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Interval of keep-alives while queued.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum time in the queue before the connection is closed.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(600);

/// Delays of the tokens of a response.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) first: Duration,
    pub(crate) per_token: Delay,
    pub(crate) random: Random,
}

impl Timing {
    /// Returns the time of a complete response.
    pub(crate) fn total(&self, tokens: u64) -> Duration {
        let mut random = self.random.clone();
        let remaining = (1..tokens).map(|_| self.per_token.draw(&mut random)).sum::<Duration>();
        self.first + remaining
    }
}

/// A response that is sent incrementally.
pub(crate) struct ResponseStream {
    pub(crate) call: Call,
    pub(crate) codec: &'static dyn Codec,
    pub(crate) content: ResponseContent,
    pub(crate) streams: bool,
    pub(crate) timing: Timing,
    pub(crate) fault: Option<Fault>,
    pub(crate) control: Arc<ConnectionControl>,
    pub(crate) queue_entry: Option<QueueEntry>,
    /// When the next token is due.
    pub(crate) due: Instant,
    pub(crate) state: StreamState,
}

/// What is sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    Queue { since: Instant },
    Begin,
    Tokens,
    Cut,
    Stall,
    Done,
}

impl ResponseStream {
    /// Converts the stream into a body.
    pub(crate) fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut stream| async move {
            let bytes = stream.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), stream))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let sent = match self.state {
                StreamState::Queue { since } => self.queue(since).await,
                StreamState::Begin if self.streams => {
                    wait_until(self.due).await;
                    self.state = StreamState::Tokens;
                    self.codec.stream_start(&self.content)
                }
                StreamState::Begin => self.complete_body().await,
                StreamState::Tokens => self.next_token().await,
                StreamState::Cut => {
                    self.call.end(CallEnding::Cut);
                    self.control.cut();
                    return pending().await;
                }
                StreamState::Stall => {
                    self.call.stall();
                    return pending().await;
                }
                StreamState::Done => return None,
            };
            if !sent.is_empty() {
                return Some(sent.into());
            }
        }
    }

    async fn queue(&mut self, since: Instant) -> String {
        let Some(queue_entry) = &mut self.queue_entry else {
            self.state = StreamState::Begin;
            return String::new();
        };
        tokio::select! {
            biased;
            permit = queue_entry.granted() => {
                self.call.permit = permit;
                self.queue_entry = None;
                self.due = Instant::now() + self.timing.first;
                self.state = StreamState::Begin;
                String::new()
            }
            () = sleep_until(since + MAX_QUEUE_TIME) => {
                self.state = StreamState::Cut;
                String::new()
            }
            () = sleep(KEEP_ALIVE) => {
                self.codec.keep_alive(self.streams).unwrap_or_default().to_owned()
            }
        }
    }

    async fn next_token(&mut self) -> String {
        let sent = self.call.sent;
        match self.fault {
            Some(Fault::Cut { after }) if sent >= after.min(self.content.output) => {
                self.state = StreamState::Cut;
                return String::new();
            }
            Some(Fault::Stall { after }) if sent >= after.min(self.content.output) => {
                self.state = StreamState::Stall;
                return String::new();
            }
            Some(Fault::StreamError { after }) if sent >= after.min(self.content.output) => {
                self.state = StreamState::Done;
                self.call.end(CallEnding::Broken);
                return self.codec.stream_error(&self.content);
            }
            _ => {}
        }
        if sent == self.content.output {
            self.state = StreamState::Done;
            self.call.end(CallEnding::Complete);
            return self.codec.stream_end(&self.content);
        }
        if sent > 0 {
            self.due += self.timing.per_token.draw(&mut self.timing.random);
        }
        wait_until(self.due).await;
        self.call.sent += 1;
        let token = self.codec.stream_token(&self.content, sent, text::word(sent));
        if sent == 0 && self.fault == Some(Fault::Malformed) {
            return format!("{}\n\n", first_half(&token));
        }
        token
    }

    /// Returns a response that is not streamed, after the queue.
    async fn complete_body(&mut self) -> String {
        let remaining = self.timing.total(self.content.output).saturating_sub(self.timing.first);
        wait_until(self.due + remaining).await;
        let text = self.codec.response_body(&self.content).to_string();
        self.call.sent = self.content.output;
        match self.fault {
            Some(Fault::Cut { .. }) => {
                self.state = StreamState::Cut;
                first_half(&text).to_owned()
            }
            Some(Fault::Stall { .. }) => {
                self.state = StreamState::Stall;
                first_half(&text).to_owned()
            }
            fault => {
                self.state = StreamState::Done;
                self.call.end(CallEnding::Complete);
                let malformed = fault == Some(Fault::Malformed);
                if malformed { first_half(&text).to_owned() } else { text }
            }
        }
    }
}

/// Waits until an instant. Does not sleep if it has passed, because a timer would round up.
pub(crate) async fn wait_until(instant: Instant) {
    if instant > Instant::now() {
        sleep_until(instant).await;
    }
}

/// Creates a body that sends `text`, then ends the call and closes the connection.
pub(crate) fn cut_after(text: String, mut call: Call, control: Arc<ConnectionControl>) -> Body {
    open_ended(text, move || {
        call.end(CallEnding::Cut);
        control.cut();
    })
}

/// Creates a body that sends `text` and then stalls. The call ends when the caller disconnects.
pub(crate) fn stall_after(text: String, mut call: Call) -> Body {
    open_ended(text, move || call.stall())
}

/// Creates a body that never ends: it sends `text`, then calls the function.
fn open_ended(text: String, mut sent: impl FnMut() + Send + 'static) -> Body {
    let mut text = Some(text);
    let frames = stream::poll_fn(move |_| match text.take() {
        Some(text) => Poll::Ready(Some(Ok::<_, Infallible>(Frame::data(Bytes::from(text))))),
        None => {
            sent();
            Poll::Pending
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Returns the first half of a text, which is not valid JSON anymore.
pub(crate) fn first_half(text: &str) -> &str {
    let mut end = text.len() / 2;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_half_ends_at_a_character_boundary() {
        assert_eq!(first_half("abcd"), "ab");
        assert_eq!(first_half("äöü"), "ä");
        assert_eq!(first_half(""), "");
    }

    #[test]
    fn total_time_is_the_sum_of_token_times() {
        let second = Duration::from_secs(1);
        let timing = Timing {
            first: second * 3,
            per_token: Delay::fixed(second),
            random: Random::new(0, 0),
        };
        assert_eq!(timing.total(0), second * 3);
        assert_eq!(timing.total(1), second * 3);
        assert_eq!(timing.total(5), second * 7);
    }
}
