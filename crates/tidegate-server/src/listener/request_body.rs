//! The body of a request. It reports to its connection when a handler drops it before its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::timeouts::Timeouts;

/// A body as received, with the connection that it arrives on.
#[derive(Debug)]
pub(crate) struct RequestBody {
    incoming: Incoming,
    timeouts: Arc<Timeouts>,
    has_ended: bool,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, timeouts: Arc<Timeouts>) -> Self {
        Self { incoming, timeouts, has_ended: false }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.timeouts.body_unread(self.incoming.size_hint().lower());
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        // After an error the connection is broken and there is nothing to wait for.
        if let Poll::Ready(None | Some(Err(_))) = frame {
            self.has_ended = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
