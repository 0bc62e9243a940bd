//! The HTTP API and the gateway on in-memory connections, for virtual time.
//!
//! Decisions, queues, retries and limits are those of a [`Server`](crate::Server) with the same
//! configuration. The clock of the buckets is tokio's, so a runtime with a paused clock simulates
//! minutes in an instant and reproducibly. There are no sockets, no threads, no database and no
//! admin API, and connections have no timeouts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Request, Uri};
use hyper::client::conn::http1 as client;
use hyper_util::rt::TokioIo;
use tidegate::clock::TokioClock;
use tidegate::{Engine, MemoryStore};
use tidegate_config::Layers;
use tidegate_gateway::RequestBody;
use tidegate_http::host::HostCheck;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tower::{BoxError, service_fn};

use crate::api::http::HttpApi;
use crate::configuration::{ActiveConfig, ChangeError, Parts};
use crate::database::StoredSettings;
use crate::listener::bounds::Bounds;
use crate::listener::in_memory;
use crate::server::StartError;

/// Buffer size of a connection.
const BUFFER: usize = 64 * 1024;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Address that the API believes it listens on. Callers name it, or `localhost`, as their host.
const LISTEN_ADDRESS: SocketAddr = SocketAddr::new(PEER, 8080);

/// The HTTP API and the gateway of a configuration, in this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InProcess {
    api: Arc<HttpApi>,
}

impl InProcess {
    /// Creates the API from configuration layers. `connect` opens a connection to a provider, for
    /// each call.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new<S>(
        layers: Layers,
        connect: impl Fn() -> io::Result<S> + Clone + Send + Sync + 'static,
    ) -> Result<Self, StartError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Not while time passes in the simulation: it would depend on the machine which calls are
        // estimated.
        tidegate_providers::tokens::prepare();
        let plan = layers.validate().map_err(ChangeError::from)?;
        let store = MemoryStore::builder()
            .max_memory(plan.store.max_memory.value.bytes())
            .overflow(plan.store.overflow.value)
            .clock(TokioClock::new())
            .build()?;
        let http = service_fn(move |request| send(connect.clone(), request));
        let parts = Parts::with_gateway(&plan, &Engine::on(store), None, |it| it.http(http))?;
        let config = ActiveConfig::new(layers, plan, StoredSettings::default(), parts)?;
        let host_check = HostCheck::new(LISTEN_ADDRESS, Vec::new());
        let api = HttpApi::new(Arc::new(config), host_check, Bounds::default());
        Ok(Self { api: Arc::new(api) })
    }

    /// Opens a connection that speaks HTTP/1.1.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn connect(&self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(BUFFER);
        let api = self.api.clone();
        tokio::spawn(in_memory::serve(far, move |request| api.clone().handle(request, PEER)));
        near
    }
}

/// Sends one request on a new connection.
async fn send<S>(
    connect: impl Fn() -> io::Result<S>,
    mut request: Request<RequestBody>,
) -> Result<http::Response<hyper::body::Incoming>, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = client::handshake(TokioIo::new(connect()?)).await?;
    tokio::spawn(connection);
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    Ok(sender.send_request(request).await?)
}
