//! One attempt: sends a call to a provider and waits for the start of its response.
//!
//! Every failure becomes a `CallError` here, so that retry and fallback can act on it. A stream
//! counts as a response once its first event has arrived; a stream that starts with an error is a
//! failure.

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
use tidegate_llm::{CallError, ConnectionError, ConnectionFailure, adapter};
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Dialect, Failure, Provider, ReportedLimits};
use tokio::time::{Instant, timeout_at};

use crate::call_observer::Outcome;
use crate::content_coding;
use crate::headers;
use crate::request::body::RequestBody;
use crate::request::body_timeout::STREAMED_IDLE;
use crate::request::call::Call;
use crate::request::uri_path;
use crate::response::first_event::FirstEvent;
use crate::response::pending_call::PendingCall;
use crate::response::provider_body::ProviderBody;
use crate::response::upstream_response::UpstreamResponse;
use crate::response::usage_reader::{ResponseForm, UsageReader};
use crate::response::usage_stripper::UsageStripper;
use crate::state::call_context::{CallContext, OriginalError};
use crate::upstream::http_service::HttpService;
use crate::upstream::redaction::KeyRedactor;
use crate::upstream::settings::{Destination, Timeouts};

/// How long the start of a stream is held back, from its first byte.
const FIRST_EVENT_HOLD: Duration = Duration::from_secs(1);
/// Minimum time to wait for a response if the body is streamed from the caller. A caller that is
/// idle for that long has already timed out.
const MIN_UPLOAD_TIMEOUT: Duration = STREAMED_IDLE.saturating_add(Duration::from_secs(1));

/// Sends requests to one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    pub(crate) provider: Provider,
    /// The provider name as a header value.
    pub(crate) label: HeaderValue,
    pub(crate) dialect: Dialect,
    pub(crate) destination: Destination,
    pub(crate) host: HeaderValue,
    /// Whether usage is requested from streams whose caller does not request it.
    pub(crate) injects_usage_option: bool,
    /// The configured key, which replaces the caller's.
    pub(crate) key: Option<(HeaderName, HeaderValue)>,
    /// Masks the configured key in responses.
    pub(crate) redactor: Option<Arc<KeyRedactor>>,
    /// Decides which failures are retried.
    pub(crate) classify_rules: ClassificationRules,
    pub(crate) http: HttpService,
}

/// A streamed body can be sent only once.
#[derive(Debug, thiserror::Error)]
#[error("a streamed body cannot be sent twice")]
struct AlreadySent;

impl UpstreamClient {
    /// Whether this is the provider that the caller named.
    fn is_requested_provider(&self, context: &CallContext) -> bool {
        *context.provider_state.provider() == self.provider
    }

    /// Sets the host and, if one is configured, replaces the caller's key.
    pub(crate) fn set_headers(&self, headers: &mut HeaderMap) {
        headers.insert(HOST, self.host.clone());
        if let Some((name, value)) = &self.key {
            headers::remove_keys(headers);
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Builds the request of an attempt. A caller's key is sent only to the provider that it named,
    /// and only if no key is configured there.
    fn request(
        &self,
        call: &Call,
        parts_with_usage: Option<Vec<Bytes>>,
    ) -> Result<Request<RequestBody>, BoxError> {
        let outgoing = &call.request;
        let size =
            parts_with_usage.as_ref().map(|parts| parts.iter().map(Bytes::len).sum::<usize>());
        let body = match parts_with_usage {
            Some(parts) => RequestBody::parts(parts),
            None => outgoing.content.take().ok_or(AlreadySent)?,
        };
        let mut request = Request::new(body);
        *request.method_mut() = outgoing.method.clone();
        let (headers, uri) = if self.is_requested_provider(&call.context) {
            let target = match &self.key {
                Some(_) => headers::target_without_key(&outgoing.target),
                None => Cow::Borrowed(&*outgoing.target),
            };
            (
                outgoing.headers.clone(),
                uri_path::join(self.dialect, &self.destination.base_url, &target)?,
            )
        } else {
            let mut headers = headers::for_fallback(&outgoing.headers);
            self.set_headers(&mut headers);
            let target = headers::target_for_fallback(&outgoing.target);
            (headers, uri_path::join_fallback(self.dialect, &self.destination.base_url, &target)?)
        };
        (*request.headers_mut(), *request.uri_mut()) = (headers, uri);
        if let Some(size) = size {
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
        }
        // The first-byte timeout includes connecting, but a connect timeout is reported as such.
        let Timeouts { connect, first_byte, .. } = self.destination.timeouts;
        let connect = connect.min(first_byte);
        if connect != DEFAULT_CONNECT_TIMEOUT {
            set_connect_timeout(request.extensions_mut(), connect);
        }
        if let Some(roots) = &self.destination.roots {
            request.extensions_mut().insert(roots.clone());
        }
        if let Some(proxy) = &self.destination.proxy {
            request.extensions_mut().insert(proxy.clone());
        }
        Ok(request)
    }

    /// Forwards a free request. Any response of the provider is forwarded, also an error.
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
            headers::fix_content_length(&mut head.headers, body.len());
            first = Some(body);
        }
        let outcome = if is_error { Outcome::Failed } else { Outcome::Answered };
        let usage_reader = UsageReader::disabled(self.dialect);
        let call = self.pending_call(call.context, usage_reader, outcome, &head.headers);
        let reported_limits = ReportedLimits::new();
        Ok(UpstreamResponse { head, reported_limits, first, rest, stripper: None, call })
    }

    /// Makes one attempt.
    pub(crate) async fn attempt(
        self: &Arc<Self>,
        call: Call,
    ) -> Result<UpstreamResponse, CallError> {
        let input = call.request.summary.input_tokens;
        let input = call.expected_response().uses_tokens.then_some(input);
        call.context.attempt_started(&self.provider, input);
        let response = self.try_exchange(&call).await;
        if response.is_err() {
            call.context.attempt_failed();
        }
        response
    }

    /// Sends the request and waits for the response head, in which the configured key is masked.
    /// Also returns the deadline for the first event of a stream.
    async fn send(
        &self,
        call: &Call,
        parts_with_usage: Option<Vec<Bytes>>,
    ) -> Result<(Response<ProviderBody>, Instant), CallError> {
        let request = self.request(call, parts_with_usage).map_err(|source| {
            CallError::InvalidRequest { provider: self.provider.clone(), source }
        })?;
        let mut sending = self.http.send(request);
        let (first_byte, start) = (self.destination.timeouts.first_byte, Instant::now());
        let content = &call.request.content;
        let wait =
            if content.is_replayable() { first_byte } else { first_byte.max(MIN_UPLOAD_TIMEOUT) };
        let mut deadline = start + wait;
        loop {
            match timeout_at(deadline, &mut sending).await {
                Ok(Ok(response)) => {
                    let sent_at = content.last_sent().unwrap_or(start);
                    return Ok((self.sanitize_response(response)?, sent_at + first_byte));
                }
                Ok(Err(error)) => {
                    return Err(
                        self.connection_error(adapter::connection_failure(&*error), Some(error))
                    );
                }
                Err(_) => {}
            }
            // The timeout runs from the last sent part of the body.
            match content.last_sent().map(|last| last + wait) {
                Some(later) if later > deadline => deadline = later,
                _ => return Err(self.first_byte_error()),
            }
        }
    }

    async fn try_exchange(self: &Arc<Self>, call: &Call) -> Result<UpstreamResponse, CallError> {
        let parts_with_usage = match self.injects_usage_option {
            true => call.request.parts_with_usage(),
            false => None,
        };
        let has_usage_option = parts_with_usage.is_some();
        let (response, deadline) = self.send(call, parts_with_usage).await?;
        let (mut head, mut body) = response.into_parts();
        call.context.response_received(head.status);
        if self.is_requested_provider(&call.context) {
            call.context.credential_checked(head.status);
        }
        if head.status.as_u16() >= 400 {
            return Err(self.classify_error(call, head, body).await);
        }
        let form = ResponseForm::from_headers(&head.headers);
        let expected = call.expected_response();
        let mut usage_reader =
            UsageReader::new(call.request.dialect, form, &head.headers, expected);
        let reported_limits = ReportedLimits::read(self.dialect, &head.headers, wall_now());
        let mut first_event = FirstEvent::default();
        if form == ResponseForm::Stream
            && let Err(error) = self
                .wait_for_first_event(&mut body, deadline, &mut first_event, &mut usage_reader)
                .await
        {
            if matches!(error, CallError::Provider(_)) {
                let held = first_event.into_bytes().unwrap_or_default();
                let rest = adapter::error_body(body).await;
                let error_body = self.redact_error(call, &mut head, [held, rest].concat().into());
                self.keep_error(call, head, error_body);
            }
            return Err(error);
        }
        let first = first_event.into_bytes();
        let is_stripped =
            has_usage_option && form == ResponseForm::Stream && !usage_reader.is_encoded();
        let stripper = is_stripped.then(UsageStripper::default);
        if is_stripped {
            head.headers.remove(CONTENT_LENGTH);
        }
        let context = call.context.clone();
        let pending_call =
            self.pending_call(context, usage_reader, Outcome::Answered, &head.headers);
        Ok(UpstreamResponse {
            head,
            reported_limits,
            first,
            rest: body,
            stripper,
            call: pending_call,
        })
    }

    fn pending_call(
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
    /// connection fails, or nothing has arrived at `deadline`.
    async fn wait_for_first_event(
        &self,
        body: &mut ProviderBody,
        mut deadline: Instant,
        first_event: &mut FirstEvent,
        usage_reader: &mut UsageReader,
    ) -> Result<(), CallError> {
        // In an encoded stream, only the usage reader can tell that an event is complete.
        while !(first_event.is_complete() || usage_reader.is_encoded() && usage_reader.has_begun())
        {
            let data = match timeout_at(deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => {
                    return Err(self.connection_error(ConnectionFailure::Closed, Some(error)));
                }
                Err(_) if first_event.is_empty() => return Err(self.first_byte_error()),
                // The stream has ended, or was held back long enough.
                Ok(None) | Err(_) => break,
            };
            if data.is_empty() {
                continue;
            }
            if first_event.is_empty() {
                deadline = Instant::now() + FIRST_EVENT_HOLD;
            }
            if usage_reader.is_encoded() {
                first_event.push_encoded(&data);
            } else {
                first_event.push(&data);
            }
            usage_reader.read(&data, &self.provider)?;
            if !usage_reader.is_reading() {
                // An error event could not be recognized either.
                break;
            }
        }
        Ok(())
    }

    /// Classifies an error response.
    async fn classify_error(&self, call: &Call, mut head: Parts, body: ProviderBody) -> CallError {
        let body = adapter::error_body(body).await;
        let body = self.redact_error(call, &mut head, body);
        let (dialect, provider, classify_rules) =
            (self.dialect, &self.provider, &self.classify_rules);
        let decoded = content_coding::decode_body(&head.headers, &body);
        let text = decoded.as_deref().unwrap_or(&body);
        let failure =
            Failure::of_response(dialect, provider, &head, text, classify_rules, wall_now());
        self.keep_error(call, head, body);
        CallError::Provider(Box::new(failure))
    }

    /// Keeps the error for the caller, in case no later attempt succeeds.
    fn keep_error(&self, call: &Call, mut head: Parts, body: Bytes) {
        if self.is_requested_provider(&call.context) {
            // The kept body may be shorter than `content-length` says.
            headers::fix_content_length(&mut head.headers, body.len());
            let original = OriginalError { status: head.status, headers: head.headers, body };
            call.context.set_original_error(original);
        }
    }

    fn first_byte_error(&self) -> CallError {
        let error = ConnectionError::FirstByte(self.destination.timeouts.first_byte);
        self.connection_error(ConnectionFailure::TimedOut, Some(error.into()))
    }

    fn connection_error(&self, kind: ConnectionFailure, source: Option<BoxError>) -> CallError {
        CallError::Connection { provider: self.provider.clone(), kind, source }
    }
}
