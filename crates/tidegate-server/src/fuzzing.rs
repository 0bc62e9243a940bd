//! The APIs on connections in memory, for `tidegate-fuzz`.
//!
//! A connection is served by the same HTTP parser with the same bound on heads as one of a listener;
//! only its time-outs and the count of connections are missing.

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_http::host::HostCheck;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::api::admin::AdminApi;
use crate::api::health::Health;
use crate::api::http::HttpApi;
use crate::configuration;
use crate::database::Stored;
use crate::listener::bounds::{Bounds, MAX_HEAD};
use crate::listener::connection;
use crate::listener::drain::Drain;

/// Where the APIs say that they listen.
const LISTENS_AT: SocketAddr = SocketAddr::new(PEER, 8080);
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Which API.
#[derive(Clone, Copy, Debug)]
pub enum Api {
    /// The HTTP API.
    Http,
    /// The admin API.
    Admin,
}

/// Both APIs, each on a configuration of its own: what one changes does not concern the other.
pub struct Apis {
    http: Arc<HttpApi>,
    admin: Router,
    /// Nobody tells them to stop.
    _drain: Drain,
}

impl Apis {
    /// The APIs with the configuration of this text, without a database.
    ///
    /// # Panics
    /// If the text is no configuration.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let config = || configuration::of_text(text, Stored::default(), None);
        let (host_check, bounds) = (HostCheck::new(LISTENS_AT, Vec::new()), Bounds::default());
        let drain = Drain::new();
        let health = Health::new(drain.signal(), || 0);
        let http = Arc::new(HttpApi::new(config(), host_check.clone(), bounds));
        let admin = AdminApi { config: config(), host_check, bounds, health };
        Self { http, admin: admin.router(drain.signal()), _drain: drain }
    }

    /// Serves one connection to its end.
    pub fn serve<S>(&self, api: Api, stream: S) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (http, admin) = (self.http.clone(), self.admin.clone());
        let service = service_fn(move |request| {
            let (http, admin) = (http.clone(), admin.clone());
            async move {
                Ok::<_, Infallible>(match api {
                    Api::Http => http.answer(request, PEER).await,
                    Api::Admin => connection::answered(admin, request, PEER).await,
                })
            }
        });
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).max_buf_size(MAX_HEAD);
        let served = builder.serve_connection(TokioIo::new(stream), service);
        async move {
            // A connection that ends early is a fair end for some bytes.
            let _ = served.await;
        }
    }
}

impl fmt::Debug for Apis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apis").finish_non_exhaustive()
    }
}
