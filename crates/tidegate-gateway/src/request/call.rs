//! A call on its way: what is sent, and what the modules need to know of it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tidegate_llm::{Outgoing, Terms};
use tidegate_providers::{Dialect, RequestSummary};
use tokio::time::Instant;

use crate::request::body::{Inbound, Outbound};
use crate::request::body_reader::Upload;
use crate::request::buffer_budget::Share;
use crate::state::call_context::Tab;

/// The name of a model that nobody could read.
pub(crate) const UNKNOWN: &str = "unknown";

/// A call. Cheap to clone, as every attempt needs one.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) sent: Arc<Sent>,
    pub(crate) tab: Arc<Tab>,
    pub(crate) terms: Terms,
}

/// What is sent.
pub(crate) struct Sent {
    pub(crate) method: Method,
    /// The path and the query, below the name of the provider.
    pub(crate) target: String,
    /// Without what is not for providers.
    pub(crate) fields: HeaderMap,
    pub(crate) content: Content,
    pub(crate) asked: RequestSummary,
    /// Whose words the answer is in.
    pub(crate) dialect: Dialect,
}

/// The body of a call.
pub(crate) enum Content {
    /// All of it, to be sent as often as needed.
    Whole { bytes: Bytes, _share: Share },
    /// What can be sent once. `None`: it was.
    Once(Mutex<Option<Inbound>>, Upload),
}

impl Content {
    pub(crate) const fn whole(bytes: Bytes, share: Share) -> Self {
        Self::Whole { bytes, _share: share }
    }

    pub(crate) const fn once(body: Inbound, upload: Upload) -> Self {
        Self::Once(Mutex::new(Some(body)), upload)
    }

    /// When something was last sent of a body that streams.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        match self {
            Self::Whole { .. } => None,
            Self::Once(_, upload) => upload.last_sent(),
        }
    }

    /// The body of an attempt, if there is one left.
    pub(crate) fn take(&self) -> Option<Outbound> {
        match self {
            Self::Whole { bytes, .. } => Some(Outbound::whole(bytes.clone())),
            Self::Once(body, _) => {
                let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
                body.map(Outbound::streamed)
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
