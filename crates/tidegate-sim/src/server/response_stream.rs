//! The body of an answer, as it comes out: kept awake in a queue, token by token, to its end or to
//! where a fault ends it.
//!
//! Instants are counted from the first one on, so that small delays do not add up to large ones.

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
use crate::dialect::{Reply, Voice};
use crate::fault::Fault;
use crate::ledger::Ending;
use crate::limits::pool::Turn;
use crate::random::Random;
use crate::server::call::Call;
use crate::server::wire::Link;
use crate::text;

/// A body of any kind.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How often a caller in the queue is kept awake.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long a caller that is kept awake may wait before its connection is closed.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the tokens of an answer take.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) first: Duration,
    pub(crate) per_token: Delay,
    pub(crate) random: Random,
}

impl Pace {
    /// How long a whole answer takes.
    pub(crate) fn total(&self, tokens: u64) -> Duration {
        let mut random = self.random.clone();
        let further = (1..tokens).map(|_| self.per_token.draw(&mut random)).sum::<Duration>();
        self.first + further
    }
}

/// An answer that comes out bit by bit.
pub(crate) struct ResponseStream {
    pub(crate) call: Call,
    pub(crate) voice: &'static dyn Voice,
    pub(crate) reply: Reply,
    pub(crate) streams: bool,
    pub(crate) pace: Pace,
    pub(crate) fault: Option<Fault>,
    pub(crate) link: Arc<Link>,
    pub(crate) turn: Option<Turn>,
    /// When the next token is due.
    pub(crate) due: Instant,
    pub(crate) stage: Stage,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Queue { since: Instant },
    Open,
    Speak,
    Cut,
    Stall,
    Done,
}

impl ResponseStream {
    /// The body that this makes.
    pub(crate) fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut stream| async move {
            let bytes = stream.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), stream))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let said = match self.stage {
                Stage::Queue { since } => self.queue(since).await,
                Stage::Open if self.streams => {
                    rest_until(self.due).await;
                    self.stage = Stage::Speak;
                    self.voice.opening(&self.reply)
                }
                Stage::Open => self.whole().await,
                Stage::Speak => self.speak().await,
                Stage::Cut => {
                    self.call.end(Ending::Cut);
                    self.link.cut();
                    return pending().await;
                }
                Stage::Stall => {
                    self.call.stall();
                    return pending().await;
                }
                Stage::Done => return None,
            };
            if !said.is_empty() {
                return Some(said.into());
            }
        }
    }

    async fn queue(&mut self, since: Instant) -> String {
        let Some(turn) = &mut self.turn else {
            self.stage = Stage::Open;
            return String::new();
        };
        tokio::select! {
            biased;
            permit = turn.come() => {
                self.call.permit = permit;
                self.turn = None;
                self.due = Instant::now() + self.pace.first;
                self.stage = Stage::Open;
                String::new()
            }
            () = sleep_until(since + PATIENCE) => {
                self.stage = Stage::Cut;
                String::new()
            }
            () = sleep(KEEP_ALIVE) => {
                self.voice.keep_alive(self.streams).unwrap_or_default().to_owned()
            }
        }
    }

    async fn speak(&mut self) -> String {
        let said = self.call.sent;
        match self.fault {
            Some(Fault::Cut { after }) if said >= after.min(self.reply.output) => {
                self.stage = Stage::Cut;
                return String::new();
            }
            Some(Fault::Stall { after }) if said >= after.min(self.reply.output) => {
                self.stage = Stage::Stall;
                return String::new();
            }
            Some(Fault::StreamError { after }) if said >= after.min(self.reply.output) => {
                self.stage = Stage::Done;
                self.call.end(Ending::Broken);
                return self.voice.breaking(&self.reply);
            }
            _ => {}
        }
        if said == self.reply.output {
            self.stage = Stage::Done;
            self.call.end(Ending::Complete);
            return self.voice.closing(&self.reply);
        }
        if said > 0 {
            self.due += self.pace.per_token.draw(&mut self.pace.random);
        }
        rest_until(self.due).await;
        self.call.sent += 1;
        let token = self.voice.token(&self.reply, said, text::word(said));
        if said == 0 && self.fault == Some(Fault::Malformed) {
            return format!("{}\n\n", first_half(&token));
        }
        token
    }

    /// All of an answer at once, after a queue.
    async fn whole(&mut self) -> String {
        let further = self.pace.total(self.reply.output).saturating_sub(self.pace.first);
        rest_until(self.due + further).await;
        let text = self.voice.whole(&self.reply).to_string();
        self.call.sent = self.reply.output;
        match self.fault {
            Some(Fault::Cut { .. }) => {
                self.stage = Stage::Cut;
                first_half(&text).to_owned()
            }
            Some(Fault::Stall { .. }) => {
                self.stage = Stage::Stall;
                first_half(&text).to_owned()
            }
            fault => {
                self.stage = Stage::Done;
                self.call.end(Ending::Complete);
                let malformed = fault == Some(Fault::Malformed);
                if malformed { first_half(&text).to_owned() } else { text }
            }
        }
    }
}

/// Waits for an instant. One that is over is not waited for: a timer would round it up.
pub(crate) async fn rest_until(instant: Instant) {
    if instant > Instant::now() {
        sleep_until(instant).await;
    }
}

/// A body that says something and then ends its connection. The call ends with it.
pub(crate) fn cut_after(text: String, mut call: Call, link: Arc<Link>) -> Body {
    unfinished(text, move || {
        call.end(Ending::Cut);
        link.cut();
    })
}

/// A body that says something and then nothing more. The call ends when its caller leaves.
pub(crate) fn stall_after(text: String, mut call: Call) -> Body {
    unfinished(text, move || call.stall())
}

/// A body that never ends: a text, and what happens once it is said.
fn unfinished(text: String, mut said: impl FnMut() + Send + 'static) -> Body {
    let mut text = Some(text);
    let frames = stream::poll_fn(move |_| match text.take() {
        Some(text) => Poll::Ready(Some(Ok::<_, Infallible>(Frame::data(Bytes::from(text))))),
        None => {
            said();
            Poll::Pending
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The first half of a text, which is JSON no longer.
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
    fn half_of_a_text_ends_between_characters() {
        assert_eq!(first_half("abcd"), "ab");
        assert_eq!(first_half("äöü"), "ä");
        assert_eq!(first_half(""), "");
    }

    #[test]
    fn a_whole_answer_takes_as_long_as_its_tokens() {
        let second = Duration::from_secs(1);
        let pace =
            Pace { first: second * 3, per_token: Delay::fixed(second), random: Random::new(0, 0) };
        assert_eq!(pace.total(0), second * 3);
        assert_eq!(pace.total(1), second * 3);
        assert_eq!(pace.total(5), second * 7);
    }
}
