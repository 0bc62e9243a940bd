//! Response future of the client.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use hyper::body::Incoming;
use hyper_util::client::legacy;

use crate::call::ConnectionError;

/// Future of a request that was sent, or failed before.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct ClientFuture(Result<legacy::ResponseFuture, Option<ConnectionError>>);

impl ClientFuture {
    pub(super) const fn sent(response: legacy::ResponseFuture) -> Self {
        Self(Ok(response))
    }

    pub(super) const fn failed(error: ConnectionError) -> Self {
        Self(Err(Some(error)))
    }
}

impl Future for ClientFuture {
    type Output = Result<Response<Incoming>, ConnectionError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(sent) => Pin::new(sent).poll(context).map_err(|error| {
                if error.is_connect() {
                    ConnectionError::NotSent(error.into())
                } else {
                    ConnectionError::NoResponse(error.into())
                }
            }),
            // Polled again after completion: stays pending.
            Err(failed) => failed.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}
