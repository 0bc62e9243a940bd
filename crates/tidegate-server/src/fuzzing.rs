//! The APIs on in-memory connections, for `tidegate-fuzz`.
//!
//! Connections use the same HTTP parser and the same bound on request heads as real listeners, but
//! have no timeouts and are not counted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use tidegate_http::host::HostCheck;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::api::admin::{AdminApi, ServerInfo};
use crate::api::health::Health;
use crate::api::http::HttpApi;
use crate::configuration;
use crate::database::StoredSettings;
use crate::listener::bounds::Bounds;
use crate::listener::drain::Drain;
use crate::listener::{connection, in_memory};

/// Address that the APIs believe they listen on.
const LISTEN_ADDRESS: SocketAddr = SocketAddr::new(PEER, 8080);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Selects an API.
#[derive(Clone, Copy, Debug)]
pub enum Api {
    /// The HTTP API.
    Http,
    /// The admin API.
    Admin,
}

/// Both APIs, each with its own configuration, so that changes in one do not affect the other.
pub struct Apis {
    http: Arc<HttpApi>,
    admin: Router,
    /// Kept so that the APIs are never asked to stop.
    _drain: Drain,
}

impl Apis {
    /// Creates the APIs from the text of a configuration file, without a database.
    ///
    /// # Panics
    /// If the text is not a valid configuration.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let config = || configuration::from_text(text, StoredSettings::default(), None);
        let (host_check, bounds) = (HostCheck::new(LISTEN_ADDRESS, Vec::new()), Bounds::default());
        let drain = Drain::new();
        let health = Health::new(drain.signal(), || 0);
        let http = Arc::new(HttpApi::new(config(), host_check.clone(), bounds));
        let info = ServerInfo::new([("admin", LISTEN_ADDRESS)]);
        let admin = AdminApi { config: config(), host_check, bounds, health, info };
        Self { http, admin: admin.router(drain.signal()), _drain: drain }
    }

    /// Serves one connection until it ends.
    pub fn serve<S>(&self, api: Api, stream: S) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (http, admin) = (self.http.clone(), self.admin.clone());
        // Fuzzed input often ends a connection early.
        in_memory::serve(stream, move |request| {
            let (http, admin) = (http.clone(), admin.clone());
            async move {
                match api {
                    Api::Http => http.handle(request, PEER).await,
                    Api::Admin => connection::call_router(admin, request, PEER).await,
                }
            }
        })
    }
}

impl fmt::Debug for Apis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apis").finish_non_exhaustive()
    }
}
