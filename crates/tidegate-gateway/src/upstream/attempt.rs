//! One attempt: sends a call to a provider and waits for the beginning of its answer.
//!
//! Every failure becomes a `CallError` here, so that retry and fallback can act on it. A stream is an
//! answer once its first event has arrived; a stream that begins with an error is a failure.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BoxError;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use tidegate::clock::wall_now;
use tidegate_llm::client::{DEFAULT_CONNECT_TIMEOUT, set_connect_timeout};
use tidegate_llm::{Broken, CallError, ConnectionError, adapter};
use tidegate_providers::classify::Rules;
use tidegate_providers::{Dialect, Failure, Provider, ReportedLimits};
use tokio::time::{Instant, timeout_at};

use crate::call_observer::Outcome;
use crate::content_coding;
use crate::headers;
use crate::request::address;
use crate::request::body::RequestBody;
use crate::request::body_pace::STREAMED_PAUSE;
use crate::request::call::Call;
use crate::response::first_event::FirstEvent;
use crate::response::pending_call::PendingCall;
use crate::response::provider_body::ProviderBody;
use crate::response::upstream_response::UpstreamResponse;
use crate::response::usage_reader::{Form, UsageReader};
use crate::response::usage_stripper::UsageStripper;
use crate::state::call_context::{CallContext, OriginalError};
use crate::upstream::http_service::HttpService;
use crate::upstream::redaction::KeyRedactor;
use crate::upstream::settings::{Destination, Timeouts};

/// How long the beginning of a stream is held back, from its first byte.
const HOLD: Duration = Duration::from_secs(1);
/// How long the beginning of an answer is waited for at least if the body comes from the caller part
/// by part: a caller that is silent for that long has failed before.
const UPLOAD_WAIT: Duration = STREAMED_PAUSE.saturating_add(Duration::from_secs(1));

/// Sends requests to one upstream: its address, its key, the HTTP service.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    pub(crate) provider: Provider,
    /// The name of the provider as a header value.
    pub(crate) label: HeaderValue,
    pub(crate) dialect: Dialect,
    pub(crate) base: Destination,
    pub(crate) host: HeaderValue,
    /// Whether streams are asked for their usage where the caller does not ask.
    pub(crate) asks_for_usage: bool,
    /// The key that replaces the caller's.
    pub(crate) key: Option<(HeaderName, HeaderValue)>,
    /// Hides that key in what comes back.
    pub(crate) redactor: Option<Arc<KeyRedactor>>,
    /// What is retried.
    pub(crate) rules: Rules,
    pub(crate) http: HttpService,
}

/// A streamed body was sent already.
#[derive(Debug, thiserror::Error)]
#[error("the body was sent before")]
struct AlreadySent;

impl UpstreamClient {
    /// Whether this is the provider that the caller named.
    fn is_requested(&self, context: &CallContext) -> bool {
        *context.provider_state.provider() == self.provider
    }

    /// The headers of the requests to this provider: those of the caller, with the host, and with the
    /// configured key in place of the caller's if there is one.
    pub(crate) fn put_headers(&self, headers: &mut HeaderMap) {
        headers.insert(HOST, self.host.clone());
        if let Some((name, value)) = &self.key {
            headers::without_keys(headers);
            headers.insert(name.clone(), value.clone());
        }
    }

    /// The request of an attempt. A caller's key is sent only to the provider that it named, and not
    /// even there if a key is configured.
    fn request(
        &self,
        call: &Call,
        with_usage: Option<Vec<Bytes>>,
    ) -> Result<Request<RequestBody>, BoxError> {
        let sent = &call.request;
        let size = with_usage.as_ref().map(|pieces| pieces.iter().map(Bytes::len).sum::<usize>());
        let body = match with_usage {
            Some(pieces) => RequestBody::parts(pieces),
            None => sent.content.take().ok_or(AlreadySent)?,
        };
        let mut request = Request::new(body);
        *request.method_mut() = sent.method.clone();
        let (headers, uri) = if self.is_requested(&call.context) {
            let target = match &self.key {
                Some(_) => headers::query_without_key(&sent.target),
                None => Cow::Borrowed(&*sent.target),
            };
            (sent.headers.clone(), address::join(self.dialect, &self.base.address, &target)?)
        } else {
            let mut headers = headers::for_others(&sent.headers);
            self.put_headers(&mut headers);
            let target = headers::query_for_others(&sent.target);
            (headers, address::carry(self.dialect, &self.base.address, &target)?)
        };
        (*request.headers_mut(), *request.uri_mut()) = (headers, uri);
        if let Some(size) = size {
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
        }
        // The first-byte time-out includes making a connection, which is to be told as what it is.
        let Timeouts { connect, first_byte, .. } = self.base.timeouts;
        let connect = connect.min(first_byte);
        if connect != DEFAULT_CONNECT_TIMEOUT {
            set_connect_timeout(request.extensions_mut(), connect);
        }
        if let Some(roots) = &self.base.roots {
            request.extensions_mut().insert(roots.clone());
        }
        if let Some(proxy) = &self.base.proxy {
            request.extensions_mut().insert(proxy.clone());
        }
        Ok(request)
    }

    /// Forwards a request that is free: any answer of the provider is passed on.
    pub(crate) async fn forward(
        self: &Arc<Self>,
        call: Call,
    ) -> Result<UpstreamResponse, CallError> {
        call.context.attempt_started(&self.provider, None);
        let (response, _) = self.send(&call, None).await?;
        let (mut head, mut rest) = response.into_parts();
        let is_error = head.status.as_u16() >= 400;
        let mut first = None;
        if is_error && self.redactor.is_some() && call.request.method != Method::HEAD {
            let body = adapter::error_body(std::mem::take(&mut rest)).await;
            let body = self.redact_error(&call, &mut head, body);
            headers::true_length(&mut head.headers, body.len());
            first = Some(body);
        }
        let outcome = if is_error { Outcome::Failed } else { Outcome::Answered };
        let usage_reader = UsageReader::disabled(self.dialect);
        let call = self.pending(call.context, usage_reader, outcome, &head.headers);
        let told = ReportedLimits::nothing();
        Ok(UpstreamResponse { head, told, first, rest, stripper: None, call })
    }

    /// Makes one attempt.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        call: Call,
    ) -> Result<UpstreamResponse, CallError> {
        let input = call.request.asked.input_tokens;
        let input = call.expected_answer().uses_tokens.then_some(input);
        call.context.attempt_started(&self.provider, input);
        let response = self.answer(&call).await;
        if response.is_err() {
            call.context.attempt_failed();
        }
        response
    }

    /// Sends the request and waits for the head of the answer, which is without the configured key.
    /// Also returns until when a stream has to begin.
    async fn send(
        &self,
        call: &Call,
        with_usage: Option<Vec<Bytes>>,
    ) -> Result<(Response<ProviderBody>, Instant), CallError> {
        let request = self
            .request(call, with_usage)
            .map_err(|source| CallError::Request { provider: self.provider.clone(), source })?;
        let mut sending = self.http.send(request);
        let (first_byte, start) = (self.base.timeouts.first_byte, Instant::now());
        let content = &call.request.content;
        let wait = if content.is_repeatable() { first_byte } else { first_byte.max(UPLOAD_WAIT) };
        let mut end = start + wait;
        loop {
            match timeout_at(end, &mut sending).await {
                Ok(Ok(response)) => {
                    let sent = content.last_sent().unwrap_or(start);
                    return Ok((self.received(response)?, sent + first_byte));
                }
                Ok(Err(error)) => return Err(self.broken(adapter::broken(&*error), Some(error))),
                Err(_) => {}
            }
            // The time-out starts when the last part of the body was sent.
            match content.last_sent().map(|last| last + wait) {
                Some(later) if later > end => end = later,
                _ => return Err(self.no_first_byte()),
            }
        }
    }

    async fn answer(self: &Arc<Self>, call: &Call) -> Result<UpstreamResponse, CallError> {
        let with_usage = match self.asks_for_usage {
            true => call.request.with_usage(),
            false => None,
        };
        let asks_for_usage = with_usage.is_some();
        let (response, end) = self.send(call, with_usage).await?;
        let (mut head, mut body) = response.into_parts();
        call.context.provider_answered(head.status);
        if self.is_requested(&call.context) {
            call.context.credential_checked(head.status);
        }
        if head.status.as_u16() >= 400 {
            return Err(self.failed(call, head, body).await);
        }
        let form = Form::of(&head.headers);
        let expected = call.expected_answer();
        let mut usage_reader =
            UsageReader::new(call.request.dialect, form, &head.headers, expected);
        let told = ReportedLimits::read(self.dialect, &head.headers, wall_now());
        let mut first_event = FirstEvent::default();
        if form == Form::Stream
            && let Err(error) =
                self.begin(&mut body, end, &mut first_event, &mut usage_reader).await
        {
            if matches!(error, CallError::Provider(_)) {
                let held = first_event.into_bytes().unwrap_or_default();
                let rest = adapter::error_body(body).await;
                let whole = self.redact_error(call, &mut head, [held, rest].concat().into());
                self.keep(call, head, whole);
            }
            return Err(error);
        }
        let first = first_event.into_bytes();
        let is_stripped = asks_for_usage && form == Form::Stream && !usage_reader.is_coded();
        let stripper = is_stripped.then(UsageStripper::default);
        if is_stripped {
            head.headers.remove(CONTENT_LENGTH);
        }
        let context = call.context.clone();
        let pending = self.pending(context, usage_reader, Outcome::Answered, &head.headers);
        Ok(UpstreamResponse { head, told, first, rest: body, stripper, call: pending })
    }

    fn pending(
        self: &Arc<Self>,
        context: Arc<CallContext>,
        usage_reader: UsageReader,
        outcome: Outcome,
        headers: &HeaderMap,
    ) -> PendingCall {
        let upstream_id = headers::upstream_request_id(headers);
        PendingCall::new(usage_reader, self.clone(), context, outcome, upstream_id)
    }

    /// Waits for the first event of a stream. Fails if the provider reports an error in it, the
    /// connection breaks before, or nothing has come at `end`.
    async fn begin(
        &self,
        body: &mut ProviderBody,
        mut end: Instant,
        first_event: &mut FirstEvent,
        usage_reader: &mut UsageReader,
    ) -> Result<(), CallError> {
        // In a content coding only what was read tells that an event is complete.
        while !(first_event.is_whole() || usage_reader.is_coded() && usage_reader.has_begun()) {
            let data = match timeout_at(end, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => return Err(self.broken(Broken::Cut, Some(error))),
                Err(_) if first_event.is_empty() => return Err(self.no_first_byte()),
                // The stream is complete, or was held back long enough.
                Ok(None) | Err(_) => break,
            };
            if data.is_empty() {
                continue;
            }
            if first_event.is_empty() {
                end = Instant::now() + HOLD;
            }
            if usage_reader.is_coded() {
                first_event.hold(&data);
            } else {
                first_event.push(&data);
            }
            usage_reader.read(&data, &self.provider)?;
            if !usage_reader.is_reading() {
                // An error in it would not be recognised either.
                break;
            }
        }
        Ok(())
    }

    /// Classifies an error response.
    async fn failed(&self, call: &Call, mut head: Parts, body: ProviderBody) -> CallError {
        let body = adapter::error_body(body).await;
        let body = self.redact_error(call, &mut head, body);
        let (dialect, provider, rules) = (self.dialect, &self.provider, &self.rules);
        let decoded = content_coding::decode_whole(&head.headers, &body);
        let text = decoded.as_deref().unwrap_or(&body);
        let failure = Failure::of_response(dialect, provider, &head, text, rules, wall_now());
        self.keep(call, head, body);
        CallError::Provider(Box::new(failure))
    }

    /// Keeps the error for the caller, in case no later attempt succeeds.
    fn keep(&self, call: &Call, mut head: Parts, body: Bytes) {
        if self.is_requested(&call.context) {
            // The kept body may be shorter than announced.
            headers::true_length(&mut head.headers, body.len());
            let original = OriginalError { status: head.status, headers: head.headers, body };
            call.context.keep_original_error(original);
        }
    }

    fn no_first_byte(&self) -> CallError {
        let error = ConnectionError::FirstByte(self.base.timeouts.first_byte);
        self.broken(Broken::TimedOut, Some(error.into()))
    }

    fn broken(&self, broken: Broken, source: Option<BoxError>) -> CallError {
        CallError::Connection { provider: self.provider.clone(), broken, source }
    }
}
