//! One attempt: a call goes to a provider, and its answer begins.
//!
//! Everything that is no answer becomes an error here, so that the modules around may do something
//! about it. A stream is an answer with its first event; one that begins with an error is none.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::response::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use tidegate::clock::wall_now;
use tidegate_llm::{BoxError, Broken, CallError, adapter};
use tidegate_providers::classify::Rules;
use tidegate_providers::request::Base;
use tidegate_providers::{Dialect, Failure, Provider, ReportedLimits};
use tokio::time::{Instant, timeout_at};
use tower_service::Service;

use crate::headers;
use crate::request::address;
use crate::request::body::{Http, Inbound, Outbound};
use crate::request::call::Call;
use crate::response::body::SILENCE;
use crate::response::first_event::Opening;
use crate::response::upstream_response::Reply;
use crate::response::usage_reader::{Form, Tap};
use crate::state::call_context::{Original, Tab};

/// How long the beginning of a stream is held, from its first byte.
const HOLD: Duration = Duration::from_secs(1);

/// One side of the gateway: a provider, where it is, and the key that it is shown.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) provider: Provider,
    /// The provider as a field.
    pub(crate) label: HeaderValue,
    pub(crate) dialect: Dialect,
    pub(crate) base: Base,
    pub(crate) host: HeaderValue,
    /// The key that replaces the caller's.
    pub(crate) key: Option<(HeaderName, HeaderValue)>,
    pub(crate) http: Http,
}

/// Makes attempts. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    side: Arc<Side>,
}

/// A body that can be sent once was sent.
#[derive(Debug, thiserror::Error)]
#[error("the body was sent before")]
struct Spent;

impl Leaf {
    pub(crate) const fn new(side: Arc<Side>) -> Self {
        Self { side }
    }
}

impl Service<Call> for Leaf {
    type Response = Reply;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, CallError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let side = self.side.clone();
        Box::pin(async move {
            let tab = call.tab.clone();
            tab.departs();
            let reply = side.attempt(call).await;
            if reply.is_err() {
                tab.returns();
            }
            reply
        })
    }
}

impl Side {
    /// Whether this is the provider that the caller asked for.
    fn is_asked_for(&self, tab: &Tab) -> bool {
        *tab.desk.provider() == self.provider
    }

    /// The request of an attempt. A caller's key goes to the provider that it asked for and to
    /// nobody else, and not even there if we have one of our own.
    fn request(&self, call: &Call) -> Result<Request<Outbound>, BoxError> {
        let sent = &call.sent;
        let body = sent.content.take().ok_or(Spent)?;
        let mut request = Request::new(body);
        *request.method_mut() = sent.method.clone();
        let (mut fields, uri) = if self.is_asked_for(&call.tab) {
            let mut fields = sent.fields.clone();
            let mut target = Cow::Borrowed(sent.target.as_str());
            if self.key.is_some() {
                headers::without_keys(&mut fields);
                target = headers::query_without_key(&sent.target);
            }
            (fields, address::join(self.dialect, &self.base, &target)?)
        } else {
            let target = headers::query_for_others(&sent.target);
            let uri = address::carry(self.dialect, &self.base, &target)?;
            (headers::for_others(&sent.fields), uri)
        };
        fields.insert(HOST, self.host.clone());
        if let Some((name, value)) = &self.key {
            fields.insert(name.clone(), value.clone());
        }
        (*request.headers_mut(), *request.uri_mut()) = (fields, uri);
        Ok(request)
    }

    /// Passes on what no limit counts: whatever the provider answers is the answer.
    pub(crate) async fn pass(self: Arc<Self>, call: Call) -> Result<Reply, CallError> {
        let tab = call.tab.clone();
        tab.departs();
        let response = self.send(&call).await?;
        let (head, body) = response.into_parts();
        let tap = Tap::nothing(self.dialect);
        let told = ReportedLimits::nothing();
        Ok(Reply { side: self, head, told, body, first: None, tap, tab, reservation: None })
    }

    async fn send(&self, call: &Call) -> Result<Response<Inbound>, CallError> {
        let request = self
            .request(call)
            .map_err(|source| CallError::Request { provider: self.provider.clone(), source })?;
        let mut sending = self.http.send(request);
        let mut end = Instant::now() + SILENCE;
        loop {
            match timeout_at(end, &mut sending).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => return Err(self.broken(adapter::broken(&*error), Some(error))),
                Err(_) => {}
            }
            // A provider is not silent while it is still being told something.
            match call.sent.content.last_sent().map(|last| last + SILENCE) {
                Some(later) if later > end => end = later,
                _ => return Err(self.broken(Broken::TimedOut, None)),
            }
        }
    }

    async fn attempt(self: Arc<Self>, call: Call) -> Result<Reply, CallError> {
        let response = self.send(&call).await?;
        let (head, mut body) = response.into_parts();
        call.tab.answered(head.status);
        if self.is_asked_for(&call.tab) {
            call.tab.judged(head.status);
        }
        if head.status.as_u16() >= 400 {
            return Err(self.failed(&call, head, body).await);
        }
        let form = Form::of(&head.headers);
        let mut tap = Tap::new(call.sent.dialect, form, &head.headers);
        let told = ReportedLimits::read(self.dialect, &head.headers, wall_now());
        let mut opening = Opening::default();
        if form == Form::Stream
            && let Err(error) = self.begin(&mut body, &mut opening, &mut tap).await
        {
            if matches!(error, CallError::Provider(_)) {
                let held = opening.into_bytes().unwrap_or_default();
                let rest = adapter::error_body(body).await;
                self.keep(&call, head, [held, rest].concat().into(), &error);
            }
            return Err(error);
        }
        let first = opening.into_bytes();
        let tab = call.tab.clone();
        Ok(Reply { side: self, head, told, body, first, tap, tab, reservation: None })
    }

    /// Waits for the beginning of a stream. An error is one that the provider reports in it, or a
    /// connection that breaks before.
    async fn begin(
        &self,
        body: &mut Inbound,
        opening: &mut Opening,
        tap: &mut Tap,
    ) -> Result<(), CallError> {
        let mut end = Instant::now() + SILENCE;
        while !opening.is_whole() {
            let data = match timeout_at(end, body.frame()).await {
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Ok(Some(Err(error))) => return Err(self.broken(Broken::Cut, Some(error))),
                Err(_) if opening.is_empty() => return Err(self.broken(Broken::TimedOut, None)),
                // All of it is there, or it has been held for long enough.
                Ok(None) | Err(_) => break,
            };
            if data.is_empty() {
                continue;
            }
            if opening.is_empty() {
                end = Instant::now() + HOLD;
            }
            opening.push(&data);
            tap.piece(&data, &self.provider)?;
            if !tap.is_reading() {
                // No error would be seen in it either.
                break;
            }
        }
        Ok(())
    }

    /// An answer that is an error.
    async fn failed(&self, call: &Call, head: Parts, body: Inbound) -> CallError {
        let body = adapter::error_body(body).await;
        let rules = Rules::new();
        let failure =
            Failure::of_response(self.dialect, &self.provider, &head, &body, &rules, wall_now());
        let error = CallError::Provider(Box::new(failure));
        self.keep(call, head, body, &error);
        error
    }

    /// Keeps what the caller gets if nothing better comes.
    fn keep(&self, call: &Call, mut head: Parts, body: Bytes, error: &CallError) {
        if self.is_asked_for(&call.tab) {
            // What is kept may be less than what was announced.
            headers::true_length(&mut head.headers, body.len());
            let original = Original { status: head.status, fields: head.headers, body };
            call.tab.failed(original, error.class(), call.model_name());
        }
    }

    fn broken(&self, broken: Broken, source: Option<BoxError>) -> CallError {
        CallError::Connection { provider: self.provider.clone(), broken, source }
    }
}
