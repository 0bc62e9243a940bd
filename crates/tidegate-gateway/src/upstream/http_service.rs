//! The HTTP service that sends requests to providers, type-erased.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use tower_service::Service;

use crate::request::body::{IncomingBody, RequestBody};

type Sending = Pin<Box<dyn Future<Output = Result<Response<IncomingBody>, BoxError>> + Send>>;

/// An HTTP service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpService(Arc<dyn Fn(Request<RequestBody>) -> Sending + Send + Sync>);

impl HttpService {
    pub(crate) fn new<H, B>(service: H) -> Self
    where
        H: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
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

    pub(crate) fn send(&self, request: Request<RequestBody>) -> Sending {
        (self.0)(request)
    }
}

impl fmt::Debug for HttpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpService").finish_non_exhaustive()
    }
}
