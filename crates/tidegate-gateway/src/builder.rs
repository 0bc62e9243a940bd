//! The builder of a gateway.

use std::fmt;
use std::sync::Arc;

use crate::error::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tidegate::Engine;
use tidegate_http::identity::TrustedProxies;
use tidegate_llm::client::Client;
use tidegate_llm::memory::MemoryBudget;
use tidegate_llm::telemetry::{Observer, both_observers, tracing_observer};
use tower_service::Service;

use crate::call_observer::{CallObserver, CallObservers};
use crate::error::GatewayError;
use crate::gateway::Gateway;
use crate::request::body::RequestBody;
use crate::request::caller::PeerResolver;
use crate::state::accounts::Engines;
use crate::state::routing_table::Shared;
use crate::upstream::http_service::HttpService;
use crate::upstream::settings::Upstream;

/// Builds a [`Gateway`].
#[must_use = "call `build` to create the gateway"]
pub struct GatewayBuilder {
    engine: Engine,
    upstreams: Vec<Upstream>,
    observer: Option<Arc<dyn Observer>>,
    call_observers: CallObservers,
    http: Option<HttpService>,
    trusted_proxies: TrustedProxies,
    max_memory: usize,
}

/// Default memory limit of accounts, queues and learned model state.
const MAX_MEMORY: usize = 64 << 20;

impl GatewayBuilder {
    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            upstreams: Vec::new(),
            observer: None,
            call_observers: CallObservers::default(),
            http: None,
            trusted_proxies: TrustedProxies::NONE,
            max_memory: MAX_MEMORY,
        }
    }

    /// Adds a provider.
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstreams.push(upstream);
        self
    }

    /// Adds an observer of permits, throttles and retries. Each is notified, in the order of the
    /// calls. Default: [`tracing_observer`], unless one is added.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(match self.observer.take() {
            Some(before) => both_observers(before, observer),
            None => observer,
        });
        self
    }

    /// Adds an observer of finished calls. Each is notified, in the order of the calls. Default:
    /// none.
    pub fn call_observer(mut self, call_observer: Arc<dyn CallObserver>) -> Self {
        self.call_observers.add(call_observer);
        self
    }

    /// Sets the trusted proxies. A tenant named by a trusted proxy is scheduled like a separate
    /// address, its priority counts among all callers, and the client named in `X-Forwarded-For` or
    /// `Forwarded` is the caller. Default: none.
    pub fn trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.trusted_proxies = proxies;
        self
    }

    /// Sets the memory limit, in bytes, of accounts, queues and learned model state of all
    /// providers together. Default: 64 MiB.
    pub fn max_memory(mut self, bytes: usize) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the HTTP service that sends requests to providers. Default: a new [`Client`].
    pub fn http<H, B>(mut self, service: H) -> Self
    where
        H: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
        H::Error: Into<BoxError>,
        H::Future: Send,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.http = Some(HttpService::new(service));
        self
    }

    /// Builds the gateway.
    ///
    /// # Errors
    /// If the upstreams are not a valid configuration, their limits cannot be created, or the HTTP
    /// client cannot be created.
    pub fn build(self) -> Result<Gateway, GatewayError> {
        let http = match self.http {
            Some(http) => http,
            None => HttpService::new(Client::with_body_type()?),
        };
        let memory = MemoryBudget::new(self.max_memory);
        let engines = Engines::new(self.engine);
        let observer = self.observer.unwrap_or_else(tracing_observer);
        let shared = Shared { engines, observer, http, memory };
        let peer_resolver = PeerResolver::new(self.trusted_proxies);
        Gateway::new(shared, Arc::new(self.call_observers), self.upstreams, peer_resolver)
    }
}

impl fmt::Debug for GatewayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayBuilder").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}
