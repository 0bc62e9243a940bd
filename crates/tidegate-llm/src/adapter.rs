//! Adapters: send a call to a provider and decode its response.
//!
//! An [`Adapter`] encodes calls in the dialect of a provider, sends them through any HTTP service,
//! and decodes the responses. It makes one attempt; waiting, retries and fallbacks are up to the
//! layers around it.
//!
//! A streamed response is returned once its first content arrives. If it fails before, the call
//! fails, and the layers around can still retry it. The rest is read as the caller reads the
//! response. Dropping the call or its response drops the connection.
//!
//! Everything is bounded: gaps between pieces by a timeout, bodies by size, and bodies read in one
//! go by total time as well.

mod body;
mod event_stream;
mod head;

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tidegate::clock::wall_now;
use tidegate_providers::classify::ClassificationRules;
pub use tidegate_providers::request::Target;
use tidegate_providers::request::size_limit;
use tidegate_providers::response::decode;
use tidegate_providers::{Class, Endpoint, Failure, Provider, ReportedLimits};
use tokio::time::timeout;
use tower_service::Service;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::call::connection::find_kind;
use crate::call::deadline::end_at;
use crate::call::{
    BoxError, Call, CallError, CallResponse, ConnectionError, ConnectionFailure, OutgoingCall as _,
};
use body::Bounds;
use event_stream::EventStream;
use head::Head;

/// Default timeout for the response head and between pieces of the body: two minutes.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Error type with which Anthropic reports a request that is too large.
const TOO_LARGE: &str = "request_too_large";

/// One model of one provider, as a service for calls. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tidegate_llm::adapter::Adapter;
/// use tidegate_llm::adapter::Target;
/// use tidegate_llm::Call;
/// use tidegate_llm::{Chat, Credential, Dialect};
/// use tower::{ServiceExt as _, service_fn};
///
/// // Any HTTP client will do; this one always returns the same response.
/// let http = service_fn(|_: http::Request<Full<Bytes>>| async {
///     let body = r#"{"message":{"content":"Elbe"},"done":true}"#;
///     Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(body))))
/// });
/// let base_url = "http://127.0.0.1:11434";
/// let target = Target::new(Dialect::Ollama, base_url, "llama3", &Credential::none())?;
/// let adapter = Adapter::new(http, "ollama", target);
/// let response = adapter.oneshot(Call::new(Chat::user("A river?"))).await?;
/// assert_eq!(response.into_reply().await?.text, "Elbe");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "an adapter does nothing until it is called"]
pub struct Adapter<H> {
    http: H,
    settings: Arc<Settings>,
}

/// Settings shared by all attempts.
#[derive(Clone, Debug)]
struct Settings {
    provider: Provider,
    target: Target,
    timeout: Duration,
    rules: ClassificationRules,
    checks_size: bool,
    extensions: Extensions,
}

impl<H> Adapter<H> {
    /// Creates an adapter for a target, over an HTTP service.
    pub fn new(http: H, provider: impl Into<Provider>, target: Target) -> Self {
        let settings = Settings {
            provider: provider.into(),
            target,
            timeout: DEFAULT_TIMEOUT,
            rules: ClassificationRules::default(),
            checks_size: false,
            extensions: Extensions::new(),
        };
        Self { http, settings: Arc::new(settings) }
    }

    /// Sets the timeout for the head of the response, and between any two pieces of its body. The
    /// deadline of a call can end it earlier. A response that is not streamed may take five times as
    /// long from its head to its end, and the body of an error at most five seconds in any case.
    /// Default: [`DEFAULT_TIMEOUT`].
    pub fn timeout(mut self, span: Duration) -> Self {
        self.settings_mut().timeout = span;
        self
    }

    /// Sets rules that take precedence over the built-in classification of failures. Default: none.
    pub fn rules(mut self, rules: ClassificationRules) -> Self {
        self.settings_mut().rules = rules;
        self
    }

    /// Sets the extensions of every HTTP request, which tell the HTTP service how to send it.
    /// Default: none.
    pub fn request_extensions(mut self, extensions: Extensions) -> Self {
        self.settings_mut().extensions = extensions;
        self
    }

    /// Rejects requests that exceed the provider's known [size limit](size_limit) without sending
    /// them. Default: they are sent.
    pub fn check_size(mut self) -> Self {
        self.settings_mut().checks_size = true;
        self
    }

    /// Returns the provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.settings.provider
    }

    /// Returns the target of calls.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.settings.target
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<H> fmt::Debug for Adapter<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<H, B> Service<Call> for Adapter<H>
where
    H: Service<Request<Full<Bytes>>, Response = Response<B>>,
    H::Error: Into<BoxError>,
    H::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = CallResponse;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let settings = &self.settings;
        self.http.poll_ready(context).map_err(|error| settings.no_response(error.into()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        let mut request = match settings.request(&call) {
            Ok(request) => request,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        request.extensions_mut().extend(settings.extensions.clone());
        let response = self.http.call(request);
        let (is_streamed, deadline) = (call.is_streamed(), call.options().deadline);
        let (provider, span) = (settings.provider.clone(), settings.span());
        let attempt = async move {
            let response = match timeout(settings.timeout, response).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(settings.no_response(error.into())),
                Err(_) => {
                    let error = ConnectionError::FirstByte(settings.timeout);
                    return Err(
                        settings.connection_error(ConnectionFailure::TimedOut, Some(error.into()))
                    );
                }
            };
            Span::current().record("http.response.status_code", response.status().as_u16());
            settings.decode(response, is_streamed).await
        };
        Box::pin(async move { end_at(deadline, &provider, attempt).await }.instrument(span))
    }
}

impl Settings {
    /// Creates the span of one attempt, which ends when the response begins. Field names follow
    /// OpenTelemetry.
    fn span(&self) -> Span {
        tracing::debug_span!(
            "llm.attempt",
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = self.provider.as_str(),
            gen_ai.request.model = self.target.model(),
            http.response.status_code = Empty,
        )
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, CallError> {
        let encoded = match call.is_streamed() {
            true => self.target.encode_streamed(call.chat()),
            false => self.target.encode(call.chat()),
        };
        let request = encoded.map_err(|error| CallError::InvalidRequest {
            provider: self.provider.clone(),
            source: error.into(),
        })?;
        // The call may have an endpoint named by the program; adapters always send chats.
        let limit = size_limit(self.target.dialect(), &Endpoint::default());
        if self.checks_size && limit.is_some_and(|limit| request.body().len() > limit) {
            let (provider, status) = (self.provider.clone(), StatusCode::PAYLOAD_TOO_LARGE);
            let mut failure = Failure::new(provider, Class::TooLarge, status);
            failure.kind = Some(TOO_LARGE.to_owned());
            return Err(CallError::Provider(Box::new(failure)));
        }
        Ok(request.map(Full::new))
    }

    /// Decodes the response.
    async fn decode<B>(
        self: Arc<Self>,
        response: Response<B>,
        is_streamed: bool,
    ) -> Result<CallResponse, CallError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let dialect = self.target.dialect();
        let head =
            Head::read(&parts.headers, ReportedLimits::read(dialect, &parts.headers, wall_now()));
        if !parts.status.is_success() {
            let body = error_body(body).await;
            let failure = Failure::of_response(
                dialect,
                &self.provider,
                &parts,
                &body,
                &self.rules,
                wall_now(),
            );
            return Err(head.failed(failure));
        }
        let provider = self.provider.clone();
        match is_streamed {
            false => {
                let body = body::collect(body, Bounds::for_response(self.timeout)).await;
                let body = body.map_err(|error| self.body_error(error))?;
                let reply =
                    decode(dialect, &body).map_err(|error| self.decode_error(error, &head))?;
                Ok(CallResponse::complete(provider, reply)
                    .with_head(head.reported_limits, head.request_id))
            }
            true => {
                let mut events = EventStream::new(body, self, head.clone());
                events.wait_for_content().await?;
                let events = Box::pin(events);
                Ok(CallResponse::streamed(provider, events)
                    .with_head(head.reported_limits, head.request_id))
            }
        }
    }

    fn connection_error(&self, kind: ConnectionFailure, source: Option<BoxError>) -> CallError {
        CallError::Connection { provider: self.provider.clone(), kind, source }
    }

    /// Creates the error of an attempt without a response head.
    fn no_response(&self, error: BoxError) -> CallError {
        self.connection_error(connection_failure(&*error), Some(error))
    }
}

/// Determines how a connection failed from the error of an HTTP service.
///
/// A [`ConnectionError`] among the sources decides. Otherwise the result is
/// [`ConnectionFailure::Refused`] for an I/O error of that kind, and [`ConnectionFailure::Closed`]
/// for anything else. Other HTTP clients than that of this crate report by a [`ConnectionError`]
/// that nothing was sent.
#[must_use]
pub fn connection_failure(error: &(dyn Error + 'static)) -> ConnectionFailure {
    find_kind(error).unwrap_or(ConnectionFailure::Closed)
}

/// Reads the body of an error response: what arrives within five seconds, at most 1 MiB.
pub async fn error_body<B>(body: B) -> Bytes
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    body::collect(body, Bounds::for_error()).await.unwrap_or_default()
}
