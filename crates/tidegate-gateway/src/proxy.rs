//! One request through the gateway: check it, read its body, make the call, answer.

mod content;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use crate::error::BoxError;
use bytes::Bytes;
use http::{Method, Request, Response};
use tidegate_llm::{CallError, Terms};
use tidegate_providers::request::{Purpose, is_free, is_override, is_reading, plain_path};
use tidegate_providers::{Credential, Dialect, Endpoint, RequestSummary};

use crate::call_observer::Outcome;
use crate::headers::{self, Coding};
use crate::request::address;
use crate::request::body::StreamedBody;
use crate::request::body_reader;
use crate::request::body_summary::BodySummary;
use crate::request::buffer_budget::BufferBudget;
use crate::request::call::{Call, Content, OutgoingRequest, Repetition};
use crate::request::caller::{CallerName, Peer};
use crate::request::caller_key::KeyError;
use crate::request::heavy_work::HeavyWork;
use crate::request::method;
use crate::request::options::{ENDPOINT, RequestOptions};
use crate::response::body::ResponseBody;
use crate::response::error_response::{draining, internal};
use crate::response::proxy_error::{ErrorKind, ProxyError};
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::state::call_context::CallContext;
use crate::state::drain::Drain;
use crate::state::queue_bounds::QueueFull;
use crate::state::routing_table::Route;

/// Proxies one request.
pub(crate) struct Proxy<'g> {
    pub(crate) route: Arc<Route>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) drain: &'g Drain,
    pub(crate) budget: &'g BufferBudget,
    pub(crate) heavy_work: &'g HeavyWork,
    pub(crate) peer: Peer,
}

/// Why a call has no answer.
enum Interrupted {
    Drained,
    QueueFull(QueueFull),
    Failed(CallError),
}

impl Proxy<'_> {
    /// Answers the request.
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
        // Many providers treat differently written paths as the same.
        let plain = plain_path(path);
        let known = Purpose::of(self.route.dialect(), &plain);
        let dialect = known.map_or(self.route.dialect(), |known| known.dialect);
        if method::is_refused(request.method()) {
            let message = "Tidegate refused: this method is not passed on.";
            let error = ProxyError::new(ErrorKind::Method, message);
            return self.refuse(dialect, &error, Outcome::Rejected);
        }
        if self.drain.is_on() {
            return self.refuse(dialect, &draining(), Outcome::Drained);
        }
        if !address::is_straight(path) {
            let wrong =
                ProxyError::new(ErrorKind::Invalid, "Tidegate refused: the path is no plain path.");
            return self.refuse(dialect, &wrong, Outcome::Rejected);
        }
        if headers::is_upgrade(request.headers()) {
            let message = "Tidegate refused: WebSockets are not passed on; use HTTP, or call the provider \
                 itself.";
            let error = ProxyError::new(ErrorKind::Upgrade, message);
            return self.refuse(dialect, &error, Outcome::Rejected);
        }
        let options = match RequestOptions::read(request.headers()) {
            Ok(options) => options,
            Err(invalid) => {
                let wrong =
                    ProxyError::new(ErrorKind::Invalid, format!("Tidegate refused: {invalid}."));
                return self.refuse(dialect, &wrong, Outcome::Rejected);
            }
        };
        let declared = match self.declared_endpoint(&options, &plain) {
            Ok(declared) => declared,
            Err(error) => return self.refuse(dialect, &error, Outcome::Rejected),
        };
        let purpose = is_call(&request, &target, declared.as_ref()).then(|| match &declared {
            Some(_) => known.unwrap_or(Purpose::declared(dialect)),
            None => known.unwrap_or_else(|| Purpose::other(dialect, &plain)),
        });
        let headers = request.headers();
        let limit = body_reader::limit(self.route.dialect(), purpose.as_ref(), &plain, headers);
        if let Err(error) = body_reader::check_length(request.headers(), limit) {
            return self.refuse_body(dialect, &error);
        }
        match purpose {
            None => self.forward(request, &target, limit).await,
            Some(purpose) => {
                let endpoint = declared.unwrap_or_else(|| purpose.endpoint());
                match self.read_body(request, (&purpose, endpoint), &target, limit).await {
                    Ok((request, charged_to)) => self.call(request, charged_to, &options).await,
                    Err(refused) => refused,
                }
            }
        }
    }

    /// The endpoint that the caller names, else the one that a route leads to.
    fn declared_endpoint(
        &self,
        options: &RequestOptions,
        path: &str,
    ) -> Result<Option<Endpoint>, ProxyError> {
        let upstream = &self.route.upstream;
        let routes = &upstream.endpoint_routes;
        let Some(name) = &options.endpoint else { return Ok(routes.of_path(path).cloned()) };
        routes.named(name).cloned().map(Some).ok_or_else(|| {
            let message = format!(
                "Tidegate refused: the header field {ENDPOINT} must name an endpoint that is \
                 declared for {}; declared are: {}.",
                upstream.name,
                routes.known()
            );
            ProxyError::new(ErrorKind::Invalid, message)
        })
    }

    /// Reads the body of a call, and finds the account that it is charged to.
    async fn read_body<B>(
        &self,
        request: Request<B>,
        (purpose, endpoint): (&Purpose<'_>, Endpoint),
        target: &Arc<str>,
        limit: Option<usize>,
    ) -> Result<(OutgoingRequest, ChargedTo), Response<ResponseBody>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let dialect = purpose.dialect;
        let (mut head, body) = request.into_parts();
        let (caller, target) = self
            .route
            .caller_key(&mut head.headers, target)
            .map_err(|error| self.refuse_key(dialect, error))?;
        let read = self.read_content(purpose, &head.headers, body, limit);
        let (content, BodySummary { asked, estimate }) = read.await?;
        if estimate.is_some() {
            self.context.tokens_estimated();
        }
        // The usage is read from the answer, and its coding may be an unknown one.
        let coding = if purpose.is_other() { Coding::Any } else { Coding::Plain };
        headers::of_request(&mut head.headers, coding);
        self.route.client.put_headers(&mut head.headers);
        self.context.set_endpoint(endpoint.clone(), self.route.label(asked.model.as_deref()));
        let entry = match &self.route.own {
            Some(own) => Ok(own.clone()),
            None => self.route.provider_state.accounts().of_caller(&caller),
        };
        let entry = entry.map_err(|error| {
            tracing::error!(provider = %self.route.upstream.name, %error, "no account");
            self.refuse(dialect, &internal(), Outcome::Rejected)
        })?;
        let (method, headers) = (head.method, head.headers);
        let takes_usage_option = takes_usage_option(dialect, &asked, &target);
        let repetition = match method == Method::POST && !purpose.is_other() {
            true => Repetition::Always,
            false => Repetition::IfRefused,
        };
        let request = OutgoingRequest {
            method,
            target,
            headers,
            content,
            asked,
            dialect,
            purpose: purpose.endpoint(),
            takes_usage_option,
            estimate,
            repetition,
        };
        Ok((request, ChargedTo { entry, endpoint, caller }))
    }

    /// The response to a request whose key cannot be charged to an account.
    fn refuse_key(&self, dialect: Dialect, error: KeyError) -> Response<ResponseBody> {
        let wrong = ProxyError::new(ErrorKind::Invalid, format!("Tidegate refused: {error}."));
        self.refuse(dialect, &wrong, Outcome::Rejected)
    }

    /// Makes a call, and answers with its result.
    async fn call(
        self,
        request: OutgoingRequest,
        charged_to: ChargedTo,
        options: &RequestOptions,
    ) -> Response<ResponseBody> {
        let ChargedTo { entry, endpoint, caller } = charged_to;
        let mut terms = Terms::new(endpoint);
        let tenant = options.tenant.clone();
        let caller = CallerName { peer: self.peer, credential: caller, tenant };
        self.context.set_model(request.asked.model.as_deref());
        terms.caller = caller.caller();
        terms.tenant = caller.tenant.clone();
        terms.priority = options.priority;
        terms.max_wait = Some(options.max_wait.unwrap_or(self.route.upstream.max_wait));
        let stack = self.route.stack(&entry);
        self.context.start_waiting(entry, caller);
        let request = Arc::new(request);
        let call = Call { request: request.clone(), context: self.context.clone(), terms };
        let result = self.unless_drained(pin!(stack.1.call(call))).await;
        self.context.stop_waiting();
        match result {
            Ok(response) => response.into_response(),
            Err(Interrupted::Drained) => {
                self.refuse(request.dialect, &draining(), Outcome::Drained)
            }
            Err(Interrupted::QueueFull(full)) => self.refuse_to_queue(request.dialect, full),
            Err(Interrupted::Failed(error)) => self.failed(&request, &error),
        }
    }

    /// The response to a call that failed.
    fn failed(&self, request: &OutgoingRequest, error: &CallError) -> Response<ResponseBody> {
        match request.content.error() {
            Some(error) => self.refuse_body(request.dialect, &error),
            None => self.fail(request.dialect, error),
        }
    }

    /// Waits for a call, unless it has to wait and too many do, or the gateway drains meanwhile.
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

    /// Forwards a request that is free: at once, once, as it comes.
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
        headers::of_request(&mut head.headers, Coding::Any);
        self.route.client.put_headers(&mut head.headers);
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
            asked: RequestSummary::default(),
            dialect: self.route.dialect(),
            purpose: Endpoint::default(),
            takes_usage_option: false,
            estimate: None,
            repetition: Repetition::IfRefused,
        });
        let (context, terms) = (self.context.clone(), Terms::default());
        let call = Call { request: request.clone(), context, terms };
        match self.route.client.forward(call).await {
            Ok(response) => response.into_response(),
            Err(error) => self.failed(&request, &error),
        }
    }
}

/// Whether a request takes a permit: unless it only reads or is one of the few that are free. A body may
/// be what a server acts on, whatever the method is; a header that names another method is removed, but
/// says what the caller wants; and the operator may have declared the path.
fn is_call<B: http_body::Body>(
    request: &Request<B>,
    target: &str,
    declared: Option<&Endpoint>,
) -> bool {
    if !request.body().is_end_stream() || declared.is_some() && !is_reading(request.method()) {
        return true;
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    !is_free(request.method(), path, query)
        || request.headers().keys().any(|name| is_override(name.as_str()))
}

/// Whether a request is for a stream that tells its usage only if `stream_options` ask for it: of chats
/// and completions, and not of responses, which always tell.
fn takes_usage_option(dialect: Dialect, asked: &RequestSummary, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    dialect.family() == Dialect::OpenAi
        && asked.is_streamed
        && plain_path(path).ends_with("/completions")
}

/// What a call is charged to.
struct ChargedTo {
    entry: Arc<AccountEntry>,
    endpoint: Endpoint,
    /// The key that the caller brought.
    caller: Credential,
}
