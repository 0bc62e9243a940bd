//! Bodies of answers, which pass as they come.
//!
//! Behind an answer hang its reservation and the context of its call. Both are settled at its end, when
//! it breaks off, and when it is dropped because the caller has gone.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tidegate_llm::rate_limit::Reservation;
use tidegate_llm::{BoxError, Broken, CallError};
use tidegate_providers::Provider;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::call_observer::Outcome;
use crate::request::body::IncomingBody;
use crate::response::usage_reader::UsageReader;
use crate::state::call_context::CallContext;

/// How long a provider may be silent, before the head of its answer and between two pieces: as long
/// as its SDKs wait, since models that reason are slow.
pub(crate) const SILENCE: Duration = Duration::from_secs(600);

/// The body of an answer.
pub struct ResponseBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Passing(Box<Passing>),
}

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseBodyError {
    /// The provider broke the connection.
    #[error("the provider broke off its answer")]
    Cut(#[source] BoxError),
    /// The provider was silent for ten minutes.
    #[error("the provider was silent for too long")]
    Silent,
}

/// An answer that passes.
pub(crate) struct Passing {
    body: IncomingBody,
    /// What came already.
    first: Option<Bytes>,
    patience: Option<Pin<Box<Sleep>>>,
    heard: Instant,
    hold: Option<Hold>,
}

/// What hangs behind an answer.
pub(crate) struct Hold {
    pub(crate) usage_reader: UsageReader,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) provider: Provider,
    pub(crate) context: Arc<CallContext>,
    /// What becomes of the call if the answer comes to its end.
    pub(crate) outcome: Outcome,
}

impl ResponseBody {
    pub(crate) const fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes)))
    }

    pub(crate) fn passing(body: IncomingBody, first: Option<Bytes>, hold: Hold) -> Self {
        let mut passing =
            Passing { body, first, patience: None, heard: Instant::now(), hold: Some(hold) };
        if passing.first.is_none() && http_body::Body::is_end_stream(&passing.body) {
            // Nobody asks a body that has ended for its end.
            passing.end();
        }
        Self(Kind::Passing(Box::new(passing)))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Passing(passing) => passing.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Passing(passing) => passing.hold.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Option<Bytes>| {
            u64::try_from(bytes.as_ref().map_or(0, Bytes::len)).unwrap_or(u64::MAX)
        };
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(length(bytes)),
            Kind::Passing(passing) => {
                let (first, rest) = (length(&passing.first), passing.body.size_hint());
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(first));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(first)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}

impl Passing {
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.hold.is_none() {
            return Poll::Ready(None);
        }
        match http_body::Body::poll_frame(Pin::new(&mut self.body), context) {
            Poll::Pending => self.poll_patience(context),
            Poll::Ready(Some(Ok(frame))) => {
                self.heard = Instant::now();
                if let (Some(data), Some(hold)) = (frame.data_ref(), &mut self.hold) {
                    hold.passes(data);
                }
                if http_body::Body::is_end_stream(&self.body) {
                    // Whoever writes it on may not ask again.
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.breaks(Broken::Cut);
                Poll::Ready(Some(Err(ResponseBodyError::Cut(error))))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    /// The timer is looked at only while nothing comes, and set anew only when it runs out.
    fn poll_patience(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let end = self.heard + SILENCE;
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep_until(end)));
        while patience.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                self.breaks(Broken::TimedOut);
                return Poll::Ready(Some(Err(ResponseBodyError::Silent)));
            }
            patience.as_mut().reset(end);
        }
        Poll::Pending
    }

    fn end(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.end();
        }
    }

    fn breaks(&mut self, broken: Broken) {
        if let Some(hold) = self.hold.take() {
            hold.breaks(broken);
        }
    }
}

impl Hold {
    /// A piece passes.
    pub(crate) fn passes(&mut self, data: &Bytes) {
        let read = self.usage_reader.read(data, &self.provider);
        self.note();
        match read {
            Ok(()) if self.usage_reader.is_over() => {
                // Callers hang up when they have heard the end, which is sooner than ours.
                if let Some(reservation) = self.reservation.take() {
                    reservation.complete(self.usage_reader.usage());
                }
                self.context.set_outcome(self.outcome);
            }
            Ok(()) => {}
            Err(error) => {
                if let Some(reservation) = self.reservation.take() {
                    reservation.broke_off(&error, self.usage_reader.usage());
                }
                self.outcome = Outcome::Broken;
            }
        }
    }

    fn note(&mut self) {
        self.usage_reader.report_to(self.reservation.as_mut());
        if let Some(usage) = self.usage_reader.usage() {
            self.context.set_usage(usage);
        }
    }

    fn end(mut self) {
        self.usage_reader.end(self.reservation.as_mut());
        if let Some(usage) = self.usage_reader.usage() {
            self.context.set_usage(usage);
        }
        if let Some(reservation) = self.reservation.take() {
            reservation.complete(self.usage_reader.usage());
        }
        self.context.set_outcome(self.outcome);
    }

    fn breaks(self, broken: Broken) {
        self.context.set_outcome(Outcome::Broken);
        if let Some(reservation) = self.reservation {
            let error = CallError::Connection { provider: self.provider, broken, source: None };
            reservation.broke_off(&error, self.usage_reader.usage());
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("size", &http_body::Body::size_hint(self)).finish()
    }
}
