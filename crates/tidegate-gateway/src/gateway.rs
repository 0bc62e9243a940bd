//! The gateway: what comes in is routed, and what is in force is changed.

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
use crate::state::provider_view::{self, ProviderView};
use crate::state::request_ids::RequestIds;
use crate::state::routing_table::{self, RoutingTable, Shared};
use crate::state::status::{self, Status};
use crate::upstream::settings::Upstream;

/// A reverse proxy to LLM providers. Cheap to clone; clones are the same gateway.
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
/// let request = http::Request::get("/nobody/v1/models").body(Full::new(Bytes::new()))?;
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
    /// Held while a configuration is changed.
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
    /// A gateway in the making. The store of the engine keeps the limits of configured keys. Those of
    /// callers' keys are kept in a store of the gateway's own, since their number is up to callers.
    pub fn builder(engine: &Engine) -> GatewayBuilder {
        GatewayBuilder::new(engine.clone())
    }

    pub(crate) fn new(
        shared: Shared,
        call_observer: Arc<dyn CallObserver>,
        upstreams: Vec<Upstream>,
        peer_resolver: PeerResolver,
    ) -> Result<Self, GatewayError> {
        let request_ids = RequestIds::new().ok_or(GatewayError::Random)?;
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

    /// Whether a gateway could serve these upstreams. Nothing is changed by asking.
    ///
    /// # Errors
    /// If something is wrong with them.
    pub fn check(upstreams: &[Upstream]) -> Result<(), GatewayError> {
        routing_table::validate(upstreams)
    }

    /// Serves these upstreams from now on, in place of all before. What was spent counts on, and
    /// whoever waits goes by the new limits at once; retries, waits and fallbacks are those of the
    /// next call. Calls to an upstream that is gone come to their end.
    ///
    /// # Errors
    /// If something is wrong with them. Then everything stays as it was.
    pub fn reconfigure(&self, upstreams: Vec<Upstream>) -> Result<(), GatewayError> {
        let _guard = self.inner.reconfigure_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.inner.table.load().reconfigured(upstreams, &self.inner.shared)?;
        self.inner.table.store(Arc::new(next));
        Ok(())
    }

    /// Sets how many bytes of memory accounts, queues and what is learned of models may take. What is
    /// beyond it goes as new ones come, unless it owes something.
    pub fn set_max_memory(&self, bytes: usize) {
        self.inner.shared.memory.resize(bytes);
    }

    /// Whether a path leads to a provider.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        let name = uri_path::split_provider(path).map(|(name, _)| name);
        name.is_some_and(|name| self.inner.table.load().route(name).is_some())
    }

    /// Answers a request that came from this address. Dropping the future, or the body of the answer, gives back all that the
    /// call held.
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

    /// Begins the end: calls that are held are sent away, and so are new ones. Those that were sent
    /// to a provider go on.
    pub fn drain(&self) {
        self.inner.drain.start();
    }

    /// How many calls of a provider are under way, and how many may be.
    #[must_use]
    pub fn concurrency(&self, provider: &str) -> Option<PoolGauges> {
        let table = self.inner.table.load();
        table.route(provider).map(|route| route.provider_state.pool().gauges())
    }

    /// How all providers stand.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        let table = self.inner.table.load();
        let mut all: Vec<Status> =
            table.routes().map(|route| status::current(&route.provider_state)).collect();
        all.sort_by(|a, b| a.provider.cmp(&b.provider));
        all
    }
}

impl Gateway {
    /// All providers as operators see them: what they allow and where that was learned, what is left
    /// of it, who waits for what. Nothing is spent by asking.
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
