//! A call: the request to send, and what the layers of the stack need to know of it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tidegate_llm::{Outgoing, Terms};
use tidegate_providers::{Dialect, RequestSummary};
use tokio::time::Instant;

use crate::request::body::{IncomingBody, RequestBody};
use crate::request::body_reader::UploadStatus;
use crate::request::buffer_budget::BufferPermit;
use crate::state::call_context::CallContext;

/// The model of a request whose model is not known.
pub(crate) const UNKNOWN: &str = "unknown";

/// A call. Cheap to clone: every attempt takes a clone.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) sent: Arc<OutgoingRequest>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) terms: Terms,
}

/// The request that is sent.
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    /// The path and query below the name of the provider.
    pub(crate) target: String,
    /// Without hop-by-hop headers and those of Tidegate.
    pub(crate) headers: HeaderMap,
    pub(crate) content: Content,
    pub(crate) asked: RequestSummary,
    /// The dialect that the caller speaks.
    pub(crate) dialect: Dialect,
}

/// The body of a call.
pub(crate) enum Content {
    /// Buffered; it can be sent any number of times.
    Whole { bytes: Bytes, _permit: BufferPermit },
    /// Streamed; it can be sent once. `None` after that.
    Once(Mutex<Option<IncomingBody>>, UploadStatus),
}

impl Content {
    pub(crate) const fn whole(bytes: Bytes, permit: BufferPermit) -> Self {
        Self::Whole { bytes, _permit: permit }
    }

    pub(crate) const fn once(body: IncomingBody, upload: UploadStatus) -> Self {
        Self::Once(Mutex::new(Some(body)), upload)
    }

    /// When a part of a streamed body was last sent.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        match self {
            Self::Whole { .. } => None,
            Self::Once(_, upload) => upload.last_sent(),
        }
    }

    /// The body of the next attempt, if it can still be sent.
    pub(crate) fn take(&self) -> Option<RequestBody> {
        match self {
            Self::Whole { bytes, .. } => Some(RequestBody::whole(bytes.clone())),
            Self::Once(body, _) => {
                let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
                body.map(RequestBody::streamed)
            }
        }
    }

    /// Whether it can be sent again.
    pub(crate) const fn is_repeatable(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }
}

impl Call {
    /// The model, as far as it is known.
    pub(crate) fn model_name(&self) -> &str {
        self.sent.asked.model.as_deref().unwrap_or(UNKNOWN)
    }
}

impl Outgoing for Call {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn terms_mut(&mut self) -> &mut Terms {
        &mut self.terms
    }

    fn model(&self) -> Option<&str> {
        Some(self.model_name())
    }

    fn input_tokens(&self) -> u64 {
        self.sent.asked.input_tokens
    }

    fn max_output(&self) -> Option<u64> {
        self.sent.asked.max_output
    }
}
