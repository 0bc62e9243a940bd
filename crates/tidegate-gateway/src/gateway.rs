//! The gateway: routes requests to providers and applies configuration changes.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::BoxError;
use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use tidegate::Engine;
use tidegate::pacer::PoolGauges;

use crate::builder::GatewayBuilder;
use crate::call_observer::CallObserver;
use crate::error::GatewayError;
use crate::proxy::Proxy;
use crate::request::buffer_budget::BufferBudget;
use crate::request::caller::PeerResolver;
use crate::request::uri_path;
use crate::request::work_pool::WorkPool;
use crate::response::body::ResponseBody;
use crate::response::proxy_error;
use crate::state::call_context::CallContext;
use crate::state::drain::Drain;
use crate::state::provider_status::{self, ProviderStatus};
use crate::state::provider_view::{self, ProviderView};
use crate::state::request_ids::RequestIds;
use crate::state::routing_table::{self, RoutingTable, Shared};
use crate::upstream::settings::Upstream;

/// A reverse proxy to LLM providers. Cheap to clone; clones share one gateway.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use tidegate::Engine;
/// use tidegate_gateway::{Gateway, Upstream};
/// use tidegate_providers::Dialect;
///
/// let upstream = Upstream::new("openai", Dialect::OpenAi, "https://api.openai.com")?;
/// let gateway = Gateway::builder(&Engine::new()).upstream(upstream).build()?;
/// assert!(gateway.serves("/openai/v1/models") && !gateway.serves("/v1/take"));
///
/// let request = http::Request::get("/unknown/v1/models").body(Full::new(Bytes::new()))?;
/// let response = gateway.handle(request, [127, 0, 0, 1].into()).await;
/// assert_eq!(response.status(), 404);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    table: ArcSwap<RoutingTable>,
    /// Serializes reconfigurations.
    reconfigure_lock: Mutex<()>,
    shared: Shared,
    call_observer: Arc<dyn CallObserver>,
    drain: Drain,
    budget: BufferBudget,
    work_pool: WorkPool,
    request_ids: RequestIds,
    peer_resolver: PeerResolver,
}

impl Gateway {
    /// Returns a builder. The engine's store keeps the limits of configured keys. The limits of
    /// callers' keys are kept in a separate in-process store, because callers control how many keys
    /// there are.
    pub fn builder(engine: &Engine) -> GatewayBuilder {
        GatewayBuilder::new(engine.clone())
    }

    pub(crate) fn new(
        shared: Shared,
        call_observer: Arc<dyn CallObserver>,
        upstreams: Vec<Upstream>,
        peer_resolver: PeerResolver,
    ) -> Result<Self, GatewayError> {
        let request_ids = RequestIds::new().ok_or(GatewayError::NoRandomness)?;
        let table = RoutingTable::default().reconfigured(upstreams, &shared)?;
        let inner = Inner {
            table: ArcSwap::from_pointee(table),
            reconfigure_lock: Mutex::new(()),
            shared,
            call_observer,
            drain: Drain::default(),
            budget: BufferBudget::default(),
            work_pool: WorkPool::default(),
            request_ids,
            peer_resolver,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Validates upstreams without changing anything.
    ///
    /// # Errors
    /// If the upstreams are not a valid configuration.
    pub fn validate(upstreams: &[Upstream]) -> Result<(), GatewayError> {
        routing_table::validate(upstreams)
    }

    /// Replaces all upstreams. Usage so far still counts, and waiting calls follow the new limits
    /// at once. Retry, wait and fallback settings apply to the next call. Calls to a removed
    /// upstream run to completion.
    ///
    /// # Errors
    /// If the upstreams are not a valid configuration. The previous one stays in effect.
    pub fn reconfigure(&self, upstreams: Vec<Upstream>) -> Result<(), GatewayError> {
        let _guard = self.inner.reconfigure_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.inner.table.load().reconfigured(upstreams, &self.inner.shared)?;
        self.inner.table.store(Arc::new(next));
        Ok(())
    }

    /// Sets the memory limit, in bytes, of accounts, queues and learned model state. If it is
    /// exceeded, entries without outstanding charges are evicted as new ones arrive.
    pub fn set_max_memory(&self, bytes: usize) {
        self.inner.shared.memory.resize(bytes);
    }

    /// Returns whether the path belongs to a configured provider.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        let name = uri_path::split_provider(path).map(|(name, _)| name);
        name.is_some_and(|name| self.inner.table.load().route(name).is_some())
    }

    /// Handles a request from the address `peer`. Dropping the future or the response body releases
    /// everything the call holds.
    pub async fn handle<B>(&self, request: Request<B>, peer: IpAddr) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let uri = request.uri();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let table = self.inner.table.load();
        let found = uri_path::split_provider(target)
            .and_then(|(name, rest)| Some((table.route(name)?.clone(), rest)));
        let Some((route, rest)) = found else {
            return proxy_error::unknown_provider(&table.names());
        };
        drop(table);
        let inner = &*self.inner;
        let call_observer = inner.call_observer.clone();
        let context = Arc::new(CallContext::new(
            inner.request_ids.next(),
            route.provider_state.clone(),
            call_observer,
        ));
        let peer = inner.peer_resolver.resolve(peer, request.headers());
        let rest: Arc<str> =
            if rest.starts_with('/') { rest.into() } else { ["/", rest].concat().into() };
        let Inner { drain, budget, work_pool, .. } = inner;
        let proxy = Proxy { route, context, drain, budget, work_pool, peer };
        proxy.serve(request, rest).await
    }

    /// Starts draining: waiting and new calls are refused with 503. Calls that were already sent to
    /// a provider continue.
    pub fn drain(&self) {
        self.inner.drain.start();
    }

    /// Returns the calls in flight to a provider and their limit, or `None` if the provider is
    /// unknown.
    #[must_use]
    pub fn concurrency(&self, provider: &str) -> Option<PoolGauges> {
        let table = self.inner.table.load();
        table.route(provider).map(|route| route.provider_state.pool().gauges())
    }

    /// Returns the status of all providers, sorted by name.
    #[must_use]
    pub fn status(&self) -> Vec<ProviderStatus> {
        let table = self.inner.table.load();
        let mut all: Vec<ProviderStatus> =
            table.routes().map(|route| provider_status::current(&route.provider_state)).collect();
        all.sort_by(|a, b| a.provider.cmp(&b.provider));
        all
    }
}

impl Gateway {
    /// Returns the operator's view of all providers: their limits, where each limit comes from,
    /// what is left of it, and which tenants wait. Spends nothing.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # use tidegate::Engine;
    /// # use tidegate_gateway::{Gateway, Upstream};
    /// # use tidegate_providers::Dialect;
    /// let upstream = Upstream::new("openai", Dialect::OpenAi, "https://api.openai.com")?;
    /// let gateway = Gateway::builder(&Engine::new()).upstream(upstream).build()?;
    /// let seen = gateway.inspect().await;
    /// assert_eq!(seen[0].status.provider.as_str(), "openai");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn inspect(&self) -> Vec<ProviderView> {
        let mut routes: Vec<_> = self.inner.table.load().routes().cloned().collect();
        routes.sort_by(|one, other| one.upstream.name.cmp(&other.upstream.name));
        let mut views = Vec::with_capacity(routes.len());
        for route in routes {
            views.push(provider_view::inspect(&route.provider_state).await);
        }
        views
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.inner.table.load();
        let names: Vec<_> = table.routes().map(|route| &route.upstream.name).collect();
        f.debug_struct("Gateway").field("providers", &names).finish_non_exhaustive()
    }
}
