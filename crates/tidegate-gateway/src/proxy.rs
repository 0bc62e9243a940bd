//! One request through the gateway: read what must be read, wait, send, answer.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use tidegate_llm::{BoxError, CallError, Terms};
use tidegate_providers::request::{Purpose, plain_path};
use tidegate_providers::{Credential, Endpoint, RequestSummary};

use crate::call_observer::Outcome;
use crate::headers::{self, Coding};
use crate::request::address;
use crate::request::body_reader::{self, BodyMode, UploadStatus};
use crate::request::buffer_budget::{BufferBudget, BufferPermit};
use crate::request::call::{Call, Content, OutgoingRequest};
use crate::request::options::RequestOptions;
use crate::response::body::ResponseBody;
use crate::response::error_response::{draining, internal};
use crate::response::proxy_error::{ErrorKind, ProxyError};
use crate::response::upstream_response::UpstreamResponse;
use crate::state::accounts::AccountEntry;
use crate::state::call_context::CallContext;
use crate::state::drain::Drain;
use crate::state::routing_table::Route;

/// A request at the gateway.
pub(crate) struct Proxy<'g> {
    pub(crate) route: Arc<Route>,
    pub(crate) context: Arc<CallContext>,
    pub(crate) drain: &'g Drain,
    pub(crate) budget: &'g BufferBudget,
    pub(crate) peer: IpAddr,
}

/// Why a call was not made, or has no answer.
enum Interrupted {
    Drained,
    Failed(CallError),
}

impl Proxy<'_> {
    /// Answers it, whatever becomes of it.
    pub(crate) async fn serve<B>(
        self,
        request: Request<B>,
        target: String,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = target.split('?').next().unwrap_or_default();
        // A path that is written in another way is the same one to many providers.
        let plain = plain_path(path);
        let purpose = Purpose::of(self.route.dialect(), &plain);
        let purpose = purpose.filter(|_| request.method() == Method::POST);
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
        let headers = request.headers();
        let limit = body_reader::limit(self.route.dialect(), purpose.as_ref(), &plain, headers);
        if let Err(error) = body_reader::check_length(request.headers(), limit) {
            return self.refuse_body(dialect, &error);
        }
        match purpose {
            None => self.forward(request, target, limit).await,
            Some(purpose) => {
                let taken = self.read_body(request, &purpose, &target, limit).await;
                let (sent, upload, entry) = match taken {
                    Ok(taken) => taken,
                    Err(refused) => return refused,
                };
                self.make(sent, upload, entry, &options).await
            }
        }
    }

    /// Takes in a request that uses a model.
    async fn read_body<B>(
        &self,
        request: Request<B>,
        purpose: &Purpose<'_>,
        target: &str,
        limit: Option<usize>,
    ) -> Result<(OutgoingRequest, UploadStatus, ChargedTo), Response<ResponseBody>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let mode = BodyMode::of(purpose, &head.headers);
        let credential = match &self.route.own {
            Some(_) => None,
            None => Some(headers::credential(self.route.dialect(), &head.headers, &head.uri)),
        };
        // What was used has to be read from the answer, and a coding may be one of those that
        // nobody here knows.
        headers::of_request(&mut head.headers, Coding::Plain);
        let mut upload = UploadStatus::default();
        let (content, asked) = match mode {
            BodyMode::Collect => {
                let taken = body_reader::collect(body, limit, self.budget).await;
                let (bytes, permit) =
                    taken.map_err(|error| self.refuse_body(purpose.dialect, &error))?;
                let asked = RequestSummary::read(purpose, &bytes);
                (Content::whole(bytes, permit), asked)
            }
            BodyMode::Peek | BodyMode::Stream => {
                let mut body = body.map_err(Into::into).boxed_unsync();
                let mut asked = RequestSummary::of_path(purpose);
                if mode == BodyMode::Peek {
                    let peeked = body_reader::peek(body).await;
                    let (begin, whole) =
                        peeked.map_err(|error| self.refuse_body(purpose.dialect, &error))?;
                    let model = body_reader::model_in_form(&begin).map(str::to_owned);
                    asked.model = asked.model.or(model);
                    body = whole;
                }
                let (body, streamed) = body_reader::bounded(body, limit);
                upload = streamed;
                (Content::once(body, upload.clone()), asked)
            }
        };
        self.context.set_endpoint(purpose.endpoint(), self.route.label(asked.model.as_deref()));
        let entry = match (&self.route.own, credential) {
            (Some(own), _) => Ok(own.clone()),
            (None, credential) => {
                let credential = credential.unwrap_or_else(Credential::none);
                self.route.provider_state.accounts().of_caller(&credential)
            }
        };
        let entry = entry.map_err(|error| {
            tracing::error!(provider = %self.route.upstream.name, %error, "no account");
            self.refuse(purpose.dialect, &internal(), Outcome::Rejected)
        })?;
        let (method, headers, target) = (head.method, head.headers, target.to_owned());
        let dialect = purpose.dialect;
        let sent = OutgoingRequest { method, target, headers, content, asked, dialect };
        Ok((sent, upload, ChargedTo { entry, endpoint: purpose.endpoint() }))
    }

    /// Makes a call, and answers with what comes of it.
    async fn make(
        self,
        sent: OutgoingRequest,
        upload: UploadStatus,
        taken: ChargedTo,
        options: &RequestOptions,
    ) -> Response<ResponseBody> {
        let dialect = sent.dialect;
        let mut terms = Terms::default();
        terms.tenant = Some(options.tenant(sent.asked.user.as_deref(), self.peer));
        terms.priority = options.priority;
        terms.max_wait = Some(options.max_wait.unwrap_or(self.route.upstream.max_wait));
        terms.max_delay = options.max_wait;
        terms.endpoint = taken.endpoint;
        self.context.start_waiting(taken.entry.clone());
        let call = Call { sent: Arc::new(sent), context: self.context.clone(), terms };
        let model = call.model_name().to_owned();
        let stack = self.route.stack(&taken.entry);
        drop(taken.entry);
        let made = self.unless_drained(stack.1.call(call)).await;
        self.context.stop_waiting();
        match made {
            Ok(response) => response.into_response(Outcome::Answered),
            Err(Interrupted::Drained) => self.refuse(dialect, &draining(), Outcome::Drained),
            Err(Interrupted::Failed(error)) => match upload.failed() {
                Some(error) => self.refuse_body(dialect, &error),
                None => self.fail(dialect, &model, &error),
            },
        }
    }

    /// Waits for a call, unless the gateway ends while it is held.
    async fn unless_drained(
        &self,
        made: impl Future<Output = Result<UpstreamResponse, CallError>>,
    ) -> Result<UpstreamResponse, Interrupted> {
        let mut made = pin!(made);
        let mut started = pin!(self.drain.started());
        let mut is_queued = false;
        poll_fn(|context| {
            if let Poll::Ready(made) = made.as_mut().poll(context) {
                return Poll::Ready(made.map_err(Interrupted::Failed));
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

    /// Passes on a request that no limit counts: at once, once, as it comes.
    async fn forward<B>(
        self,
        request: Request<B>,
        target: String,
        limit: Option<usize>,
    ) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let dialect = self.route.dialect();
        let (mut head, body) = request.into_parts();
        headers::of_request(&mut head.headers, Coding::Any);
        let (content, upload) = if body.is_end_stream() {
            (Content::whole(Bytes::new(), BufferPermit::default()), UploadStatus::default())
        } else {
            let (body, upload) =
                body_reader::bounded(body.map_err(Into::into).boxed_unsync(), limit);
            (Content::once(body, upload.clone()), upload)
        };
        let (method, headers, asked) = (head.method, head.headers, RequestSummary::default());
        let sent = Arc::new(OutgoingRequest { method, target, headers, content, asked, dialect });
        let call = Call { sent, context: self.context.clone(), terms: Terms::default() };
        match self.route.client.clone().forward(call).await {
            Ok(response) => {
                let is_error = response.head.status.as_u16() >= 400;
                let outcome = if is_error { Outcome::Failed } else { Outcome::Answered };
                response.into_response(outcome)
            }
            Err(error) => match upload.failed() {
                Some(error) => self.refuse_body(dialect, &error),
                None => self.fail(dialect, "", &error),
            },
        }
    }
}

/// What a call is charged to.
struct ChargedTo {
    entry: Arc<AccountEntry>,
    endpoint: Endpoint,
}
