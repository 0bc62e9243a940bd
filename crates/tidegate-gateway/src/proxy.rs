//! Proxies one request: checks it, reads its body, makes the call, returns the response.

mod content;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use crate::error::BoxError;
use bytes::Bytes;
use http::{Method, Request, Response};
use tidegate_llm::{CallError, CallOptions};
use tidegate_providers::request::{
    PathPurpose, is_free, is_override_header, is_read_only, plain_path,
};
use tidegate_providers::{Credential, Dialect, Endpoint, RequestSummary};

use crate::call_observer::Outcome;
use crate::headers::{self, AcceptedCoding};
use crate::request::body::StreamedBody;
use crate::request::body_reader;
use crate::request::body_summary::BodySummary;
use crate::request::buffer_budget::BufferBudget;
use crate::request::call::{Call, Content, OutgoingRequest, ResendPolicy};
use crate::request::caller::{CallerIdentity, Peer};
use crate::request::caller_key::KeyError;
use crate::request::method;
use crate::request::options::{ENDPOINT, RequestOptions};
use crate::request::uri_path;
use crate::request::work_pool::WorkPool;
use crate::response::body::ResponseBody;
use crate::response::error_response::{draining_error, internal_error};
use crate::response::proxy_error::{ErrorKind, ProxyError};
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::state::call_context::CallContext;
use crate::state::drain::Drain;
use crate::state::queue_limits::QueueFull;
use crate::state::routing_table::Route;

/// Proxies one request.
pub(crate) struct Proxy<'g> {
    pub(crate) route: Arc<Route>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) drain: &'g Drain,
    pub(crate) budget: &'g BufferBudget,
    pub(crate) work_pool: &'g WorkPool,
    pub(crate) peer: Peer,
}

/// Why a call ended without a response.
enum Interrupted {
    Drained,
    QueueFull(QueueFull),
    Failed(CallError),
}

impl Proxy<'_> {
    /// Handles the request.
    pub(crate) async fn serve<B>(
        self,
        request: Request<B>,
        target: Arc<str>,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = target.split('?').next().unwrap_or_default();
        // Many providers treat different spellings of a path as equal.
        let normalized_path = plain_path(path);
        let known_purpose = PathPurpose::lookup(self.route.dialect(), &normalized_path);
        let dialect = known_purpose.map_or(self.route.dialect(), |purpose| purpose.dialect);
        if method::is_refused(request.method()) {
            let message = "Tidegate refused: this method is not forwarded.";
            let error = ProxyError::new(ErrorKind::Method, message);
            return self.refuse(dialect, &error, Outcome::Rejected);
        }
        if self.drain.is_on() {
            return self.refuse(dialect, &draining_error(), Outcome::Drained);
        }
        if !uri_path::is_safe_path(path) {
            let message =
                "Tidegate refused: the path has dot segments, backslashes or nested escapes.";
            let error = ProxyError::new(ErrorKind::Invalid, message);
            return self.refuse(dialect, &error, Outcome::Rejected);
        }
        if headers::is_websocket_upgrade(request.headers()) {
            let message = "Tidegate refused: WebSocket is not supported; use HTTP, or call the \
                 provider directly.";
            let error = ProxyError::new(ErrorKind::Upgrade, message);
            return self.refuse(dialect, &error, Outcome::Rejected);
        }
        let options = match RequestOptions::read(request.headers()) {
            Ok(options) => options,
            Err(invalid) => {
                let error =
                    ProxyError::new(ErrorKind::Invalid, format!("Tidegate refused: {invalid}."));
                return self.refuse(dialect, &error, Outcome::Rejected);
            }
        };
        let declared = match self.declared_endpoint(&options, &normalized_path) {
            Ok(declared) => declared,
            Err(error) => return self.refuse(dialect, &error, Outcome::Rejected),
        };
        let purpose = needs_permit(&request, &target, declared.as_ref()).then(|| match &declared {
            Some(_) => known_purpose.unwrap_or(PathPurpose::declared(dialect)),
            None => known_purpose.unwrap_or_else(|| PathPurpose::other(dialect, &normalized_path)),
        });
        let headers = request.headers();
        let limit = body_reader::body_limit(
            self.route.dialect(),
            purpose.as_ref(),
            &normalized_path,
            headers,
        );
        if let Err(error) = body_reader::check_length(request.headers(), limit) {
            return self.refuse_body(dialect, &error);
        }
        match purpose {
            None => self.forward(request, &target, limit).await,
            Some(purpose) => {
                let endpoint = declared.unwrap_or_else(|| purpose.endpoint());
                match self.read_body(request, (&purpose, endpoint), &target, limit).await {
                    Ok((request, charged_account)) => {
                        self.call(request, charged_account, &options).await
                    }
                    Err(refused) => refused,
                }
            }
        }
    }

    /// Returns the endpoint that the caller names, or the one that is declared for the path.
    fn declared_endpoint(
        &self,
        options: &RequestOptions,
        path: &str,
    ) -> Result<Option<Endpoint>, ProxyError> {
        let upstream = &self.route.upstream;
        let routes = &upstream.endpoint_routes;
        let Some(name) = &options.endpoint else { return Ok(routes.for_path(path).cloned()) };
        routes.by_name(name).cloned().map(Some).ok_or_else(|| {
            let message = format!(
                "Tidegate refused: the header {ENDPOINT} must name an endpoint declared for \
                 {}; declared endpoints: {}.",
                upstream.name,
                routes.list_names()
            );
            ProxyError::new(ErrorKind::Invalid, message)
        })
    }

    /// Reads the body of a call and finds the account to charge.
    async fn read_body<B>(
        &self,
        request: Request<B>,
        (purpose, endpoint): (&PathPurpose<'_>, Endpoint),
        target: &Arc<str>,
        limit: Option<usize>,
    ) -> Result<(OutgoingRequest, ChargedAccount), Response<ResponseBody>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let dialect = purpose.dialect;
        let (mut head, body) = request.into_parts();
        let (credential, target) = self
            .route
            .caller_key(&mut head.headers, target)
            .map_err(|error| self.refuse_key(dialect, error))?;
        let read = self.read_content(purpose, &head.headers, body, limit);
        let (content, BodySummary { request: summary, estimate }) = read.await?;
        if estimate.is_some() {
            self.context.set_tokens_estimated();
        }
        // Usage is read from the response, whose coding might be unknown to the gateway.
        let coding =
            if purpose.is_other() { AcceptedCoding::Any } else { AcceptedCoding::Identity };
        headers::strip_request(&mut head.headers, coding);
        self.route.client.set_headers(&mut head.headers);
        self.context.set_endpoint(endpoint.clone(), self.route.label(summary.model.as_deref()));
        let entry = match &self.route.own_account {
            Some(own) => Ok(own.clone()),
            None => self.route.provider_state.accounts().for_caller(&credential),
        };
        let entry = entry.map_err(|error| {
            let provider = &self.route.upstream.name;
            tracing::error!(%provider, %error, "account creation failed");
            self.refuse(dialect, &internal_error(), Outcome::Rejected)
        })?;
        let (method, headers) = (head.method, head.headers);
        let supports_usage_option = supports_usage_option(dialect, &summary, &target);
        let resend_policy = match method == Method::POST && !purpose.is_other() {
            true => ResendPolicy::AnyFailure,
            false => ResendPolicy::IfNotProcessed,
        };
        let request = OutgoingRequest {
            method,
            target,
            headers,
            content,
            summary,
            dialect,
            path_endpoint: purpose.endpoint(),
            supports_usage_option,
            estimate,
            resend_policy,
        };
        Ok((request, ChargedAccount { entry, endpoint, credential }))
    }

    /// Refuses a request whose key is ambiguous.
    fn refuse_key(&self, dialect: Dialect, error: KeyError) -> Response<ResponseBody> {
        let error = ProxyError::new(ErrorKind::Invalid, format!("Tidegate refused: {error}."));
        self.refuse(dialect, &error, Outcome::Rejected)
    }

    /// Makes a call and returns its response.
    async fn call(
        self,
        request: OutgoingRequest,
        charged_account: ChargedAccount,
        options: &RequestOptions,
    ) -> Response<ResponseBody> {
        let ChargedAccount { entry, endpoint, credential } = charged_account;
        let mut call_options = CallOptions::new(endpoint);
        let tenant = options.tenant.clone();
        let caller = CallerIdentity { peer: self.peer, credential, tenant };
        self.context.set_model(request.summary.model.as_deref());
        call_options.caller = caller.pacer_caller();
        call_options.tenant = caller.tenant.clone();
        call_options.priority = options.priority;
        call_options.max_wait = Some(options.max_wait.unwrap_or(self.route.upstream.max_wait));
        let stack = self.route.stack(&entry);
        self.context.start_waiting(entry, caller);
        let request = Arc::new(request);
        let call =
            Call { request: request.clone(), context: self.context.clone(), options: call_options };
        let result = self.unless_drained(pin!(stack.1.call(call))).await;
        self.context.stop_waiting();
        match result {
            Ok(response) => response.into_response(),
            Err(Interrupted::Drained) => {
                self.refuse(request.dialect, &draining_error(), Outcome::Drained)
            }
            Err(Interrupted::QueueFull(full)) => self.refuse_to_queue(request.dialect, full),
            Err(Interrupted::Failed(error)) => self.failure_response(&request, &error),
        }
    }

    /// Returns the response to a failed call.
    fn failure_response(
        &self,
        request: &OutgoingRequest,
        error: &CallError,
    ) -> Response<ResponseBody> {
        match request.content.error() {
            Some(error) => self.refuse_body(request.dialect, &error),
            None => self.call_error_response(request.dialect, error),
        }
    }

    /// Waits for a call, unless it has to queue and the queue is full, or the gateway drains while
    /// the call is not at a provider.
    async fn unless_drained(
        &self,
        mut call: Pin<&mut impl Future<Output = Result<UpstreamResponse, CallError>>>,
    ) -> Result<UpstreamResponse, Interrupted> {
        let mut started = pin!(self.drain.started());
        let mut is_queued = false;
        poll_fn(|context| {
            if let Poll::Ready(result) = call.as_mut().poll(context) {
                return Poll::Ready(result.map_err(Interrupted::Failed));
            }
            if self.context.is_at_provider() {
                is_queued = false;
            } else if !is_queued {
                is_queued = true;
                if let Err(full) = self.context.mark_queued() {
                    return Poll::Ready(Err(Interrupted::QueueFull(full)));
                }
            }
            let has_started = started.as_mut().poll(context).is_ready() || self.drain.is_on();
            if has_started && !self.context.is_at_provider() {
                return Poll::Ready(Err(Interrupted::Drained));
            }
            Poll::Pending
        })
        .await
    }

    /// Forwards a free request immediately, as a stream, without retries.
    async fn forward<B>(
        self,
        request: Request<B>,
        target: &Arc<str>,
        limit: Option<usize>,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        headers::strip_request(&mut head.headers, AcceptedCoding::Any);
        self.route.client.set_headers(&mut head.headers);
        let content = if body.is_end_stream() {
            Content::empty()
        } else {
            Content::streamed(StreamedBody::new(body, limit))
        };
        let request = Arc::new(OutgoingRequest {
            method: head.method,
            target: target.clone(),
            headers: head.headers,
            content,
            summary: RequestSummary::default(),
            dialect: self.route.dialect(),
            path_endpoint: Endpoint::default(),
            supports_usage_option: false,
            estimate: None,
            resend_policy: ResendPolicy::IfNotProcessed,
        });
        let (context, call_options) = (self.context.clone(), CallOptions::default());
        let call = Call { request: request.clone(), context, options: call_options };
        match self.route.client.forward(call).await {
            Ok(response) => response.into_response(),
            Err(error) => self.failure_response(&request, &error),
        }
    }
}

/// Whether a request takes a permit. Requests that only read and a few others are free. A request
/// with a body takes one, because a server may act on the body whatever the method is. So does one
/// with a method-override header: the header is removed, but states the caller's intent. So does a
/// write to a path that the operator declared.
fn needs_permit<B: http_body::Body>(
    request: &Request<B>,
    target: &str,
    declared: Option<&Endpoint>,
) -> bool {
    if !request.body().is_end_stream() || declared.is_some() && !is_read_only(request.method()) {
        return true;
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    !is_free(request.method(), path, query)
        || request.headers().keys().any(|name| is_override_header(name.as_str()))
}

/// Whether the request is for a stream that reports its usage only if `stream_options` request it:
/// chat and other completions. The Responses API always reports usage.
fn supports_usage_option(dialect: Dialect, summary: &RequestSummary, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    dialect.family() == Dialect::OpenAi
        && summary.is_streamed
        && plain_path(path).ends_with("/completions")
}

/// The account and endpoint that a call is charged to.
struct ChargedAccount {
    entry: Arc<AccountEntry>,
    endpoint: Endpoint,
    /// The caller's key.
    credential: Credential,
}
