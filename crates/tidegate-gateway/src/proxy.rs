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
use crate::request::body_reader::{self, Taking, Upload};
use crate::request::buffer_budget::{Room, Share};
use crate::request::call::{Call, Content, Sent};
use crate::request::options::Wishes;
use crate::response::body::Body;
use crate::response::error_response::{draining, internal};
use crate::response::proxy_error::{Reason, Refusal};
use crate::response::upstream_response::Reply;
use crate::state::accounts::Entry;
use crate::state::call_context::Tab;
use crate::state::drain::Drain;
use crate::state::routing_table::Route;

/// A request at the gateway.
pub(crate) struct Visit<'g> {
    pub(crate) route: Arc<Route>,
    pub(crate) tab: Arc<Tab>,
    pub(crate) drain: &'g Drain,
    pub(crate) room: &'g Room,
    pub(crate) peer: IpAddr,
}

/// Why a call was not made, or has no answer.
enum Lost {
    Drained,
    Failed(CallError),
}

impl Visit<'_> {
    /// Answers it, whatever becomes of it.
    pub(crate) async fn serve<B>(self, request: Request<B>, target: String) -> Response<Body>
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
                Refusal::new(Reason::Invalid, "Tidegate refused: the path is no plain path.");
            return self.refuse(dialect, &wrong, Outcome::Rejected);
        }
        if headers::is_upgrade(request.headers()) {
            let message =
                "Tidegate refused: WebSockets are not passed on; call the provider itself.";
            let refusal = Refusal::new(Reason::Upgrade, message);
            return self.refuse(dialect, &refusal, Outcome::Rejected);
        }
        let wishes = match Wishes::read(request.headers()) {
            Ok(wishes) => wishes,
            Err(unread) => {
                let wrong = Refusal::new(Reason::Invalid, format!("Tidegate refused: {unread}."));
                return self.refuse(dialect, &wrong, Outcome::Rejected);
            }
        };
        let fields = request.headers();
        let limit = body_reader::limit(self.route.dialect(), purpose.as_ref(), &plain, fields);
        if let Err(untaken) = body_reader::check_length(request.headers(), limit) {
            return self.refuse_body(dialect, &untaken);
        }
        match purpose {
            None => self.pass(request, target, limit).await,
            Some(purpose) => {
                let taken = self.take(request, &purpose, &target, limit).await;
                let (sent, upload, entry) = match taken {
                    Ok(taken) => taken,
                    Err(refused) => return refused,
                };
                self.make(sent, upload, entry, &wishes).await
            }
        }
    }

    /// Takes in a request that uses a model.
    async fn take<B>(
        &self,
        request: Request<B>,
        purpose: &Purpose<'_>,
        target: &str,
        limit: Option<usize>,
    ) -> Result<(Sent, Upload, Taken), Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let taking = Taking::of(purpose, &head.headers);
        let credential = match &self.route.own {
            Some(_) => None,
            None => Some(headers::credential(self.route.dialect(), &head.headers, &head.uri)),
        };
        // What was used has to be read from the answer, and a coding may be one of those that
        // nobody here knows.
        headers::of_request(&mut head.headers, Coding::Plain);
        let mut upload = Upload::default();
        let (content, asked) = match taking {
            Taking::Collect => {
                let taken = body_reader::collect(body, limit, self.room).await;
                let (bytes, share) =
                    taken.map_err(|untaken| self.refuse_body(purpose.dialect, &untaken))?;
                let asked = RequestSummary::read(purpose, &bytes);
                (Content::whole(bytes, share), asked)
            }
            Taking::Look | Taking::Stream => {
                let mut body = body.map_err(Into::into).boxed_unsync();
                let mut asked = RequestSummary::of_path(purpose);
                if taking == Taking::Look {
                    let looked = body_reader::look(body).await;
                    let (begin, whole) =
                        looked.map_err(|untaken| self.refuse_body(purpose.dialect, &untaken))?;
                    let model = body_reader::model_in_form(&begin).map(str::to_owned);
                    asked.model = asked.model.or(model);
                    body = whole;
                }
                let (body, streamed) = body_reader::bounded(body, limit);
                upload = streamed;
                (Content::once(body, upload.clone()), asked)
            }
        };
        self.tab.charges(purpose.endpoint(), self.route.label(asked.model.as_deref()));
        let entry = match (&self.route.own, credential) {
            (Some(own), _) => Ok(own.clone()),
            (None, credential) => {
                let credential = credential.unwrap_or_else(Credential::none);
                self.route.desk.accounts().of_caller(&credential)
            }
        };
        let entry = entry.map_err(|error| {
            tracing::error!(provider = %self.route.upstream.name, %error, "no account");
            self.refuse(purpose.dialect, &internal(), Outcome::Rejected)
        })?;
        let (method, fields, target) = (head.method, head.headers, target.to_owned());
        let dialect = purpose.dialect;
        let sent = Sent { method, target, fields, content, asked, dialect };
        Ok((sent, upload, Taken { entry, endpoint: purpose.endpoint() }))
    }

    /// Makes a call, and answers with what comes of it.
    async fn make(
        self,
        sent: Sent,
        upload: Upload,
        taken: Taken,
        wishes: &Wishes,
    ) -> Response<Body> {
        let dialect = sent.dialect;
        let mut terms = Terms::default();
        terms.tenant = Some(wishes.tenant(sent.asked.user.as_deref(), self.peer));
        terms.priority = wishes.priority;
        terms.max_wait = Some(wishes.max_wait.unwrap_or(self.route.upstream.max_wait));
        terms.max_delay = wishes.max_wait;
        terms.endpoint = taken.endpoint;
        self.tab.begin(taken.entry.clone());
        let call = Call { sent: Arc::new(sent), tab: self.tab.clone(), terms };
        let model = call.model_name().to_owned();
        let stack = self.route.stack(&taken.entry);
        drop(taken.entry);
        let made = self.unless_drained(stack.1.call(call)).await;
        self.tab.settles();
        match made {
            Ok(reply) => reply.into_response(Outcome::Answered),
            Err(Lost::Drained) => self.refuse(dialect, &draining(), Outcome::Drained),
            Err(Lost::Failed(error)) => match upload.failed() {
                Some(untaken) => self.refuse_body(dialect, &untaken),
                None => self.fail(dialect, &model, &error),
            },
        }
    }

    /// Waits for a call, unless the gateway ends while it is held.
    async fn unless_drained(
        &self,
        made: impl Future<Output = Result<Reply, CallError>>,
    ) -> Result<Reply, Lost> {
        let mut made = pin!(made);
        let mut begun = pin!(self.drain.begun());
        let mut is_queued = false;
        poll_fn(|context| {
            if let Poll::Ready(made) = made.as_mut().poll(context) {
                return Poll::Ready(made.map_err(Lost::Failed));
            }
            if self.tab.is_away() {
                is_queued = false;
            } else if !is_queued {
                is_queued = true;
                self.tab.queue();
            }
            let has_begun = begun.as_mut().poll(context).is_ready() || self.drain.is_on();
            if has_begun && !self.tab.is_away() {
                return Poll::Ready(Err(Lost::Drained));
            }
            Poll::Pending
        })
        .await
    }

    /// Passes on a request that no limit counts: at once, once, as it comes.
    async fn pass<B>(
        self,
        request: Request<B>,
        target: String,
        limit: Option<usize>,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let dialect = self.route.dialect();
        let (mut head, body) = request.into_parts();
        headers::of_request(&mut head.headers, Coding::Any);
        let (content, upload) = if body.is_end_stream() {
            (Content::whole(Bytes::new(), Share::default()), Upload::default())
        } else {
            let (body, upload) =
                body_reader::bounded(body.map_err(Into::into).boxed_unsync(), limit);
            (Content::once(body, upload.clone()), upload)
        };
        let (method, fields, asked) = (head.method, head.headers, RequestSummary::default());
        let sent = Arc::new(Sent { method, target, fields, content, asked, dialect });
        let call = Call { sent, tab: self.tab.clone(), terms: Terms::default() };
        match self.route.side.clone().pass(call).await {
            Ok(reply) => {
                let is_error = reply.head.status.as_u16() >= 400;
                let outcome = if is_error { Outcome::Failed } else { Outcome::Answered };
                reply.into_response(outcome)
            }
            Err(error) => match upload.failed() {
                Some(untaken) => self.refuse_body(dialect, &untaken),
                None => self.fail(dialect, "", &error),
            },
        }
    }
}

/// What a call is charged to.
struct Taken {
    entry: Arc<Entry>,
    endpoint: Endpoint,
}
