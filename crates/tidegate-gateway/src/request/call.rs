//! A call: the request to send and what the layers of the stack need to know about it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tidegate_llm::{CallOptions, OutgoingCall};
use tidegate_providers::{Dialect, Endpoint, RequestSummary};
use tokio::time::Instant;

use crate::request::body::{RequestBody, StreamedBody, UploadProgress};
use crate::request::body_reader::BodyError;
use crate::request::buffer_budget::BufferPermit;
use crate::request::edits::{self, Edit, EditSpans};
use crate::request::token_estimate::TokenEstimate;
use crate::response::usage_reader::ExpectedResponse;
use crate::state::call_context::CallContext;

/// Model name of requests whose model is unknown.
const UNKNOWN_MODEL: &str = "unknown";
/// Endpoint whose responses are text.
const CHAT: &str = "chat";
/// Endpoint of unknown paths.
const OTHER: &str = "other";
/// Endpoints whose calls use no tokens, or use them later.
const WITHOUT_TOKENS: [&str; 4] = ["token_counting", "moderations", "batches", "files"];

/// A call. Cheap to clone; every attempt takes a clone.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) request: Arc<OutgoingRequest>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) options: CallOptions,
}

/// The request to send.
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    /// The path and query below the name of the provider.
    pub(crate) target: Arc<str>,
    /// Headers for the provider that the caller named.
    pub(crate) headers: HeaderMap,
    pub(crate) content: Content,
    pub(crate) summary: RequestSummary,
    /// The caller's dialect.
    pub(crate) dialect: Dialect,
    /// Endpoint of the path, regardless of the endpoint that is declared for it.
    pub(crate) path_endpoint: Endpoint,
    /// Whether it is a stream that reports usage only if `stream_options` request it.
    pub(crate) supports_usage_option: bool,
    /// How the tokens were estimated; `None` if they were counted.
    pub(crate) estimate: Option<TokenEstimate>,
    pub(crate) resend_policy: ResendPolicy,
}

/// When a request with a replayable body is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResendPolicy {
    /// After every retryable failure, and to fallbacks: the request asks a model for a response.
    AnyFailure,
    /// Only if the provider certainly did not process it: it could not be reached or responded with
    /// 429. The effect of sending it twice is unknown.
    IfNotProcessed,
}

/// The body of a call.
pub(crate) enum Content {
    /// Can be sent any number of times.
    Buffered(BufferedContent),
    /// Another request's buffered body with edits. Can be sent any number of times.
    Edited { edits: Vec<Edit>, base: Arc<OutgoingRequest> },
    /// Can be sent once; `None` afterwards.
    Streamed(Mutex<Option<Box<StreamedBody>>>, UploadProgress),
}

/// A buffered body with its budget permit.
pub(crate) struct BufferedContent {
    pub(crate) bytes: Bytes,
    pub(crate) edit_spans: EditSpans,
    _permit: BufferPermit,
}

impl BufferedContent {
    pub(crate) const fn new(bytes: Bytes, permit: BufferPermit) -> Self {
        Self { bytes, edit_spans: EditSpans::new(), _permit: permit }
    }
}

impl Content {
    pub(crate) const fn empty() -> Self {
        Self::Buffered(BufferedContent::new(Bytes::new(), BufferPermit::none()))
    }

    /// Returns the buffered body before any edits.
    pub(crate) fn original(&self) -> Option<&BufferedContent> {
        match self {
            Self::Buffered(content) => Some(content),
            Self::Edited { base, .. } => base.content.original(),
            Self::Streamed(..) => None,
        }
    }

    pub(crate) fn streamed(body: StreamedBody) -> Self {
        let upload = body.upload();
        Self::Streamed(Mutex::new(Some(Box::new(body))), upload)
    }

    /// Returns when a part of a streamed body was last sent.
    pub(crate) fn last_sent(&self) -> Option<Instant> {
        match self {
            Self::Buffered(_) | Self::Edited { .. } => None,
            Self::Streamed(_, upload) => upload.last_sent(),
        }
    }

    /// Returns why a streamed body was aborted, if it was.
    pub(crate) fn error(&self) -> Option<BodyError> {
        match self {
            Self::Buffered(_) | Self::Edited { .. } => None,
            Self::Streamed(_, upload) => upload.error(),
        }
    }

    /// Returns the number of bytes of a streamed body that were sent.
    pub(crate) fn sent_size(&self) -> u64 {
        match self {
            Self::Buffered(_) | Self::Edited { .. } => 0,
            Self::Streamed(_, upload) => upload.size(),
        }
    }

    /// Returns the body for the next attempt, if it can still be sent.
    pub(crate) fn take(&self) -> Option<RequestBody> {
        match self {
            Self::Buffered(content) => Some(RequestBody::buffered(content.bytes.clone())),
            Self::Edited { edits, .. } => {
                let original = self.original()?;
                Some(RequestBody::parts(edits::apply(&original.bytes, edits)))
            }
            Self::Streamed(body, _) => {
                let body = body.lock().unwrap_or_else(PoisonError::into_inner).take();
                body.map(RequestBody::streamed)
            }
        }
    }

    /// Whether the body can be sent more than once.
    pub(crate) const fn is_replayable(&self) -> bool {
        matches!(self, Self::Buffered(_) | Self::Edited { .. })
    }
}

impl Call {
    /// Returns what the request tells about its response.
    pub(crate) fn expected_response(&self) -> ExpectedResponse {
        let endpoint = self.request.path_endpoint.as_str();
        // On unknown paths, a prompt to a model is answered with text.
        let is_prompt = self.request.summary.max_output != Some(0);
        ExpectedResponse {
            is_text: endpoint == CHAT || endpoint == OTHER && is_prompt,
            uses_tokens: !WITHOUT_TOKENS.contains(&endpoint),
            max_output: self.request.summary.max_output,
        }
    }
}

impl OutgoingRequest {
    /// Returns the parts of the body with the usage option added, if that changes the body.
    pub(crate) fn parts_with_usage(&self) -> Option<Vec<Bytes>> {
        let original = self.content.original().filter(|_| self.supports_usage_option)?;
        let option = original.edit_spans.usage_option(&original.bytes)?;
        let others = match &self.content {
            Content::Edited { edits, .. } => edits.as_slice(),
            Content::Buffered(_) | Content::Streamed(..) => &[],
        };
        Some(edits::apply(&original.bytes, others.iter().chain([option])))
    }

    /// Returns the tokens sent beyond those that were reserved.
    fn extra_input(&self) -> u64 {
        self.estimate.map_or(0, |estimate| estimate.extra(self.content.sent_size()))
    }

    /// Returns the model, or `unknown`.
    pub(crate) fn model_name(&self) -> &str {
        self.summary.model.as_deref().unwrap_or(UNKNOWN_MODEL)
    }
}

impl OutgoingCall for Call {
    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn options_mut(&mut self) -> &mut CallOptions {
        &mut self.options
    }

    fn model(&self) -> Option<&str> {
        Some(self.request.model_name())
    }

    fn input_tokens(&self) -> u64 {
        self.request.summary.input_tokens
    }

    fn has_estimated_input(&self) -> bool {
        self.request.estimate.is_some() || self.request.summary.is_input_provisional
    }

    fn max_output(&self) -> Option<u64> {
        self.request.summary.max_output
    }

    fn extra_input(&self) -> Option<Box<dyn Fn() -> u64 + Send + Sync>> {
        let OutgoingRequest { estimate, content, .. } = &*self.request;
        let is_final = estimate.is_none() || content.is_replayable();
        let request = (!is_final).then(|| self.request.clone())?;
        Some(Box::new(move || request.extra_input()))
    }
}
