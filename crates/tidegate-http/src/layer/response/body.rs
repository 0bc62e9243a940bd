//! Response body: that of the service, unchanged, or that of a refusal.
//!
//! Frames pass through as they come; nothing is buffered. Length, end and trailers are those of the
//! inner body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use super::pending_settlement::PendingSettlement;
use super::response_summary::ResponseEnd;

pin_project! {
    /// The response body of a [`LimitLayer`](crate::layer::LimitLayer).
    pub struct Body<B> {
        #[pin]
        kind: Kind<B>,
        settlement: Option<Box<PendingSettlement>>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<B> {
        /// The body of the inner service.
        Service { #[pin] body: B },
        /// The body of a refusal.
        Refusal { content: Option<Bytes> },
    }
}

impl<B> Body<B> {
    pub(crate) const fn refusal(content: Bytes) -> Self {
        Self { kind: Kind::Refusal { content: Some(content) }, settlement: None }
    }

    /// An empty body.
    #[cfg(feature = "tonic")]
    pub(crate) const fn empty() -> Self {
        Self { kind: Kind::Refusal { content: None }, settlement: None }
    }
}

#[cfg(feature = "axum")]
impl From<Body<axum::body::Body>> for axum::body::Body {
    /// Unwraps a body without a pending settlement, which saves another box.
    fn from(body: Body<Self>) -> Self {
        match body {
            Body { kind: Kind::Service { body }, settlement: None } => body,
            Body { kind: Kind::Refusal { content }, .. } => {
                content.map_or_else(Self::empty, Self::from)
            }
            body => Self::new(body),
        }
    }
}

impl<B: http_body::Body> Body<B> {
    /// Wraps the body of the service, with a settlement to run at its end.
    pub(crate) fn served(body: B, settlement: Option<Box<PendingSettlement>>) -> Self {
        let settlement = match settlement {
            // Servers do not poll a body that is known to be empty.
            Some(settlement) if body.is_end_stream() => {
                settlement.close(ResponseEnd::Complete);
                None
            }
            other => other,
        };
        Self { kind: Kind::Service { body }, settlement }
    }
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let mut body = match this.kind.project() {
            KindProjection::Service { body } => body,
            KindProjection::Refusal { content } => {
                return Poll::Ready(content.take().map(|content| Ok(Frame::data(content.into()))));
            }
        };
        let polled = ready!(body.as_mut().poll_frame(cx));
        if let Some(mut settlement) = this.settlement.take() {
            match &polled {
                Some(Ok(frame)) => {
                    settlement.record_sent(frame.data_ref().map_or(0, Buf::remaining));
                    if body.is_end_stream() {
                        settlement.close(ResponseEnd::Complete);
                    } else {
                        *this.settlement = Some(settlement);
                    }
                }
                Some(Err(_)) => settlement.close(ResponseEnd::Aborted),
                None => settlement.close(ResponseEnd::Complete),
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Service { body } => body.is_end_stream(),
            Kind::Refusal { content } => content.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Service { body } => body.size_hint(),
            Kind::Refusal { content } => {
                let length = content.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}

impl<B> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Service { .. } => "Body::Served",
            Kind::Refusal { .. } => "Body::Said",
        })
    }
}
