//! One request through the gateway: check it, read its body, make the call, answer.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request, Response};
use tidegate_llm::{BoxError, CallError, Terms};
use tidegate_providers::request::{Purpose, plain_path};
use tidegate_providers::{Credential, Dialect, Endpoint, Family, Mode, RequestSummary};

use crate::call_observer::Outcome;
use crate::headers::{self, Coding};
use crate::request::address;
use crate::request::body::StreamedBody;
use crate::request::body_reader::{self, BodyMode, MAX_PEEK};
use crate::request::buffer_budget::BufferBudget;
use crate::request::call::{Call, Content, OutgoingRequest};
use crate::request::caller_key::KeyError;
use crate::request::options::{ENDPOINT, RequestOptions};
use crate::response::body::ResponseBody;
use crate::response::error_response::{draining, internal};
use crate::response::proxy_error::{ErrorKind, ProxyError};
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::state::call_context::CallContext;
use crate::state::drain::Drain;
use crate::state::routing_table::Route;

/// Proxies one request.
pub(crate) struct Proxy<'g> {
    pub(crate) route: Arc<Route>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) drain: &'g Drain,
    pub(crate) budget: &'g BufferBudget,
    pub(crate) peer: IpAddr,
}

/// Why a call has no answer.
enum Interrupted {
    Drained,
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
        let purpose = Purpose::of(self.route.dialect(), &plain);
        let is_post = request.method() == Method::POST;
        let purpose = purpose.filter(|_| is_post);
        let dialect = purpose.map_or(self.route.dialect(), |purpose| purpose.dialect);
        if self.drain.is_on() {
            return self.refuse(dialect, &draining(), Outcome::Drained);
        }
        if !address::is_straight(path) {
            let wrong =
                ProxyError::new(ErrorKind::Invalid, "Tidegate refused: the path is no plain path.");
            return self.refuse(dialect, &wrong, Outcome::Rejected);
        }
        if headers::is_upgrade(request.headers()) {
            let message =
                "Tidegate refused: WebSockets are not passed on; call the provider itself.";
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
            Ok(declared) => declared.filter(|_| is_post),
            Err(error) => return self.refuse(dialect, &error, Outcome::Rejected),
        };
        let purpose = purpose.or(declared.as_ref().map(|_| Purpose::declared(dialect)));
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

    /// Reads the body of a request that uses a model, and finds the account that it is charged to.
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
        let refuse = |error| self.refuse_body(dialect, &error);
        let (mut head, body) = request.into_parts();
        let mode = BodyMode::of(purpose, &head.headers);
        let (caller, target) = self
            .route
            .caller_key(&mut head.headers, target)
            .map_err(|error| self.refuse_key(dialect, error))?;
        // The usage is read from the answer, and its coding may be an unknown one.
        headers::of_request(&mut head.headers, Coding::Plain);
        self.route.client.put_headers(&mut head.headers);
        let (content, asked) = match mode {
            BodyMode::Collect => {
                let read = body_reader::collect(body, limit, self.budget).await;
                let (bytes, permit) = read.map_err(refuse)?;
                let asked = RequestSummary::read(purpose, &bytes);
                (Content::buffered(bytes, permit), asked)
            }
            BodyMode::Peek | BodyMode::Stream => {
                let mut body = StreamedBody::new(body, limit);
                let mut asked = RequestSummary::of_path(purpose);
                if mode == BodyMode::Peek {
                    let begin = body.peek(MAX_PEEK).await.map_err(refuse)?;
                    let model = body_reader::model_in_form(&begin).map(str::to_owned);
                    asked.model = asked.model.or(model);
                }
                (Content::streamed(body), asked)
            }
        };
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
        let request = OutgoingRequest {
            method,
            target,
            headers,
            content,
            asked,
            dialect,
            purpose: purpose.endpoint(),
            takes_usage_option,
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
        let tenant = options.tenant(&caller, self.peer);
        self.context.set_model(request.asked.model.as_deref());
        terms.tenant = Some(tenant.clone());
        terms.priority = options.priority;
        terms.max_wait = Some(options.max_wait.unwrap_or(self.route.upstream.max_wait));
        let stack = self.route.stack(&entry);
        self.context.start_waiting(entry, tenant);
        let request = Arc::new(request);
        let call = Call { request: request.clone(), context: self.context.clone(), terms };
        let result = self.unless_drained(pin!(stack.1.call(call))).await;
        self.context.stop_waiting();
        match result {
            Ok(response) => response.into_response(),
            Err(Interrupted::Drained) => {
                self.refuse(request.dialect, &draining(), Outcome::Drained)
            }
            Err(Interrupted::Failed(error)) => self.failed(&request, &error),
        }
    }

    /// The response to a call that failed.
    fn failed(&self, request: &OutgoingRequest, error: &CallError) -> Response<ResponseBody> {
        match request.content.error() {
            Some(error) => self.refuse_body(request.dialect, &error),
            None => self.fail(request.dialect, request.model_name(), error),
        }
    }

    /// Waits for a call, unless the gateway drains while the call waits.
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
                self.context.mark_queued();
            }
            let has_started = started.as_mut().poll(context).is_ready() || self.drain.is_on();
            if has_started && !self.context.is_at_provider() {
                return Poll::Ready(Err(Interrupted::Drained));
            }
            Poll::Pending
        })
        .await
    }

    /// Forwards a request that no limit counts: at once, once, as it comes.
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
        });
        let (context, terms) = (self.context.clone(), Terms::default());
        let call = Call { request: request.clone(), context, terms };
        match self.route.client.forward(call).await {
            Ok(response) => response.into_response(),
            Err(error) => self.failed(&request, &error),
        }
    }
}

/// Whether a request is for a stream that tells its usage only if `stream_options` ask for it: of chats
/// and completions, and not of responses, which always tell.
fn takes_usage_option(dialect: Dialect, asked: &RequestSummary, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    Family::of(dialect) == Family::OpenAi
        && asked.mode == Mode::Stream
        && plain_path(path).ends_with("/completions")
}

/// What a call is charged to.
struct ChargedTo {
    entry: Arc<AccountEntry>,
    endpoint: Endpoint,
    /// The key that the caller brought.
    caller: Credential,
}
