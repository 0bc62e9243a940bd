//! The provider: a server that answers every call immediately with the same response.
//!
//! A streaming request gets its first event immediately and the others at intervals; any other
//! request gets a response of about a kilobyte.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::child;

/// Number of events after the first.
pub(super) const MORE_EVENTS: usize = 20;

/// Interval between them.
pub(super) const PER_EVENT: Duration = Duration::from_millis(1);

const EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\
    \"created\":1767225600,\"model\":\"gpt-4o-mini\",\"choices\":[{\"index\":0,\"delta\":\
    {\"content\":\"tide \"},\"finish_reason\":null}]}\n\n";

const LAST_EVENT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\
    \"created\":1767225600,\"model\":\"gpt-4o-mini\",\"choices\":[{\"index\":0,\"delta\":{},\
    \"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":38,\"completion_tokens\":21,\
    \"total_tokens\":59}}\n\ndata: [DONE]\n\n";

type Answer = Response<Either<Full<Bytes>, Events>>;

/// Prints its address and serves until standard input is closed.
pub(crate) fn serve_alone() -> Result<()> {
    child::serve_alone(serve)
}

async fn serve(listener: TcpListener) -> Result<()> {
    let whole = Bytes::from(whole());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let whole = whole.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, whole.clone()));
            // A caller may disconnect at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(request: Request<Incoming>, whole: Bytes) -> Result<Answer, hyper::Error> {
    let asked = request.into_body().collect().await?.to_bytes();
    let streams = asked.windows(STREAM.len()).any(|part| part == STREAM);
    let (kind, body) = if streams {
        ("text/event-stream", Either::Right(Events::new()))
    } else {
        ("application/json", Either::Left(Full::new(whole)))
    };
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(answer)
}

const STREAM: &[u8] = b"\"stream\":true";

/// A response of about a kilobyte.
fn whole() -> String {
    let text = "The tide turns at the harbour at half past nine and stands four metres high. ";
    format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1767225600,\
         \"model\":\"gpt-4o-mini\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\
         \"content\":\"{}\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":38,\
         \"completion_tokens\":180,\"total_tokens\":218}}}}",
        text.repeat(10)
    )
}

/// Sends the first event immediately, and the others at intervals.
struct Events {
    sent: usize,
    clock: Interval,
}

impl Events {
    fn new() -> Self {
        let mut clock = interval_at(Instant::now() + PER_EVENT, PER_EVENT);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { sent: 0, clock }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent > MORE_EVENTS {
            return Poll::Ready(None);
        }
        // Even an expired timer takes a millisecond, so the first event uses none.
        if self.sent > 0 {
            ready!(self.clock.poll_tick(context));
        }
        let event = if self.sent == MORE_EVENTS { LAST_EVENT } else { EVENT };
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(event.as_bytes())))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_about_a_kilobyte() {
        assert!((900..1_200).contains(&whole().len()), "{}", whole().len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_has_its_events_and_its_end() {
        let begun = Instant::now();
        let mut events = Events::new();
        let first = events.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.as_ref(), begun.elapsed()), (EVENT.as_bytes(), Duration::ZERO));
        let rest = events.collect().await.unwrap().to_bytes();
        assert_eq!(rest.len(), EVENT.len() * (MORE_EVENTS - 1) + LAST_EVENT.len());
        assert!(rest.ends_with(b"data: [DONE]\n\n"));
    }
}
