//! The HTTP service underneath, of any kind, and what goes out through it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tidegate_llm::BoxError;
use tower_service::Service;

/// A body that comes in, from either side.
pub(crate) type Inbound = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a request to a provider: bytes that are all there, or others as they come.
#[derive(Debug)]
pub struct Outbound(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Option<Bytes>),
    Streamed(Inbound),
}

impl Outbound {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    pub(crate) const fn streamed(body: Inbound) -> Self {
        Self(Kind::Streamed(body))
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Streamed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Kind::Streamed(body) => body.size_hint(),
        }
    }
}

type Sending = Pin<Box<dyn Future<Output = Result<Response<Inbound>, BoxError>> + Send>>;

/// An HTTP service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Http(Arc<dyn Fn(Request<Outbound>) -> Sending + Send + Sync>);

impl Http {
    pub(crate) fn new<H, B>(service: H) -> Self
    where
        H: Service<Request<Outbound>, Response = Response<B>> + Clone + Send + Sync + 'static,
        H::Error: Into<BoxError>,
        H::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let send = move |request| -> Sending {
            let mut service = service.clone();
            Box::pin(async move {
                poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
                let response = service.call(request).await.map_err(Into::into)?;
                Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
            })
        };
        Self(Arc::new(send))
    }

    pub(crate) fn send(&self, request: Request<Outbound>) -> Sending {
        (self.0)(request)
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}
