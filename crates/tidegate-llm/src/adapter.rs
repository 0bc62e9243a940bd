//! Adapters: a call goes out, an answer comes back.
//!
//! An [`Adapter`] puts calls into the words of a provider, sends them through an HTTP service of any
//! kind, and reads what comes back. It makes one attempt: waiting for a turn, trying again and
//! turning to others are the business of the layers around it.
//!
//! A stream is handed out with its first words. If it fails before them, the call has failed, and
//! the layers around may still do something about it; what comes after is read only as the answer is
//! read. Dropping the call or its answer drops the connection.
//!
//! Everything is bounded: silence by a time-out, bodies by a size, and those that are read in one go
//! by a time as well.

mod body;
mod head;
mod reading;

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use tidegate::clock::wall_now;
use tidegate_providers::classify::Rules;
pub use tidegate_providers::request::Target;
use tidegate_providers::request::size_limit;
use tidegate_providers::response::decode;
use tidegate_providers::{Class, Endpoint, Failure, Provider, ReportedLimits};
use tokio::time::timeout;
use tower_service::Service;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::call::connection::chain;
use crate::call::{Answer, BoxError, Broken, Call, CallError, ConnectionError};
use body::Bounds;
use head::Head;
use reading::Reading;

/// How long a provider may be silent unless set otherwise: two minutes.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The kind of failure that a provider calls a request that is too large.
const TOO_LARGE: &str = "request_too_large";

/// One model of one provider, as a service that answers calls. Cheap to clone.
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
/// // Any HTTP client will do; this one has its own ideas of a river.
/// let http = service_fn(|_: http::Request<Full<Bytes>>| async {
///     let body = r#"{"message":{"content":"Elbe"},"done":true}"#;
///     Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(body))))
/// });
/// let base_url = "http://127.0.0.1:11434";
/// let target = Target::new(Dialect::Ollama, base_url, "llama3", &Credential::none())?;
/// let adapter = Adapter::new(http, "ollama", target);
/// let answer = adapter.oneshot(Call::new(Chat::user("A river?"))).await?;
/// assert_eq!(answer.whole().await?.text, "Elbe");
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

/// What all attempts have in common.
#[derive(Clone, Debug)]
struct Settings {
    provider: Provider,
    target: Target,
    timeout: Duration,
    rules: Rules,
    checks_size: bool,
}

impl<H> Adapter<H> {
    /// An adapter for a target, over an HTTP service.
    pub fn new(http: H, provider: impl Into<Provider>, target: Target) -> Self {
        let settings = Settings {
            provider: provider.into(),
            target,
            timeout: DEFAULT_TIMEOUT,
            rules: Rules::default(),
            checks_size: false,
        };
        Self { http, settings: Arc::new(settings) }
    }

    /// How long the provider may be silent: until the head of its answer comes, and then between any
    /// two pieces of its body. An answer in one piece may take five times as long from its head to
    /// its end, and the body of an error five seconds, whatever is set. Default:
    /// [`DEFAULT_TIMEOUT`].
    pub fn timeout(mut self, span: Duration) -> Self {
        self.change().timeout = span;
        self
    }

    /// Rules that come before those of the provider when a failure is classed. Default: none.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.change().rules = rules;
        self
    }

    /// Does not send what the provider would refuse for its [size](size_limit). Default: the
    /// provider is asked.
    pub fn check_size(mut self) -> Self {
        self.change().checks_size = true;
        self
    }

    /// Who is called.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.settings.provider
    }

    /// Where calls go.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.settings.target
    }

    fn change(&mut self) -> &mut Settings {
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
    type Response = Answer;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, CallError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let settings = &self.settings;
        self.http.poll_ready(context).map_err(|error| settings.not_answered(error.into()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let settings = Arc::clone(&self.settings);
        let request = match settings.request(&call) {
            Ok(request) => request,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let response = self.http.call(request);
        let is_streamed = call.is_streamed();
        let span = settings.span();
        let answer = async move {
            let response = match timeout(settings.timeout, response).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(settings.not_answered(error.into())),
                Err(_) => {
                    let error = ConnectionError::FirstByte(settings.timeout);
                    return Err(settings.broken(Broken::TimedOut, Some(error.into())));
                }
            };
            Span::current().record("http.response.status_code", response.status().as_u16());
            settings.answer(response, is_streamed).await
        };
        Box::pin(answer.instrument(span))
    }
}

impl Settings {
    /// One attempt, until its answer begins; under the names that OpenTelemetry has for it.
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
        let request = encoded.map_err(|error| CallError::Request {
            provider: self.provider.clone(),
            source: error.into(),
        })?;
        // Whatever a program calls its endpoint, this is the provider's.
        let limit = size_limit(self.target.dialect(), &Endpoint::default());
        if self.checks_size && limit.is_some_and(|limit| request.body().len() > limit) {
            let (provider, status) = (self.provider.clone(), StatusCode::PAYLOAD_TOO_LARGE);
            let mut failure = Failure::new(provider, Class::TooLarge, status);
            failure.kind = Some(TOO_LARGE.to_owned());
            return Err(CallError::Provider(Box::new(failure)));
        }
        Ok(request.map(Full::new))
    }

    /// Reads what came back.
    async fn answer<B>(
        self: Arc<Self>,
        response: Response<B>,
        is_streamed: bool,
    ) -> Result<Answer, CallError>
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
                let body = body::collect(body, Bounds::of_answer(self.timeout)).await;
                let body = body.map_err(|error| self.unread(error))?;
                let reply = decode(dialect, &body).map_err(|error| self.misread(error, &head))?;
                Ok(Answer::complete(provider, reply).told(head.told, head.request_id))
            }
            true => {
                let mut reading = Reading::new(body, self, head.clone());
                reading.begin().await?;
                let events = Box::pin(reading);
                Ok(Answer::streamed(provider, events).told(head.told, head.request_id))
            }
        }
    }

    fn broken(&self, broken: Broken, source: Option<BoxError>) -> CallError {
        CallError::Connection { provider: self.provider.clone(), broken, source }
    }

    /// An error before there was a head.
    fn not_answered(&self, error: BoxError) -> CallError {
        self.broken(broken(&*error), Some(error))
    }
}

/// How a connection failed, by the error of an HTTP service that gave no answer: as a
/// [`ConnectionError`] among its sources says, else [`Broken::Refused`] if it is that,
/// [`Broken::NotConnected`] if the client of this crate had no connection, and else
/// [`Broken::Cut`]. A service of another kind says by a [`ConnectionError`] that nothing was sent.
#[must_use]
pub fn broken(error: &(dyn Error + 'static)) -> Broken {
    for error in chain(error) {
        if let Some(error) = error.downcast_ref::<ConnectionError>() {
            return error.broken();
        }
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return Broken::Refused;
        }
    }
    if chain(error).any(is_not_connected) { Broken::NotConnected } else { Broken::Cut }
}

/// Whether the client of this crate had no connection.
#[cfg(feature = "client")]
fn is_not_connected(error: &(dyn Error + 'static)) -> bool {
    use crate::client::ClientError;
    matches!(error.downcast_ref(), Some(ClientError::NotConnected(_)))
}

#[cfg(not(feature = "client"))]
const fn is_not_connected(_error: &(dyn Error + 'static)) -> bool {
    false
}

/// The body of an answer that is an error, as far as it comes: at most 1 MiB, within five seconds.
pub async fn error_body<B>(body: B) -> Bytes
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    body::collect(body, Bounds::of_error()).await.unwrap_or_default()
}
