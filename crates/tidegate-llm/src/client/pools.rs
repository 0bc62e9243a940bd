//! Connection pools, one per runtime and set of connect options.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body::Body;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::runtime::{Handle, Id};

use super::connector::Connector;
use super::roots::Roots;
use crate::proxy::Proxy;

/// How long an idle connection is kept. Providers close idle connections after a minute or more,
/// and a call sent on a connection that is being closed fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of pools: a few for each runtime and each provider with its own connect options.
/// Beyond that, the oldest are dropped.
const MAX_POOLS: usize = 1_024;

/// Connections of one runtime with the same connect options.
pub(super) type Pool<B> = legacy::Client<Connector, B>;

/// Options of a connection. Only requests with equal options share connections.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConnectOptions {
    pub(super) connect_timeout: Duration,
    /// Root certificates; those of the system if unset.
    pub(super) roots: Option<Roots>,
    pub(super) proxy: Option<Proxy>,
}

/// All pools of a client.
pub(super) struct Pools<B> {
    /// TLS with the roots of the system.
    tls: Arc<ClientConfig>,
    /// Per runtime, because connections end with their runtime, and using one from another runtime
    /// requires a thread switch for every read.
    all: ArcSwap<Vec<(Key, Pool<B>)>>,
}

type Key = (Id, ConnectOptions);

impl<B> Pools<B> {
    pub(super) fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls, all: ArcSwap::default() }
    }

    /// Returns a connector with these options.
    pub(super) fn connector(&self, options: ConnectOptions) -> Connector {
        let ConnectOptions { connect_timeout, roots, proxy } = options;
        let tls = roots.map_or_else(|| self.tls.clone(), |roots| roots.tls().clone());
        Connector { tls, timeout: connect_timeout, proxy, proxy_tls: self.tls.clone() }
    }
}

impl<B> Pools<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    /// Returns the pool of the current runtime for these options.
    pub(super) fn get(&self, options: ConnectOptions) -> Pool<B> {
        let key = (Handle::current().id(), options);
        let find = |pools: &Vec<(Key, Pool<B>)>| {
            pools.iter().find(|(other, _)| *other == key).map(|(_, pool)| pool.clone())
        };
        if let Some(pool) = find(&self.all.load()) {
            return pool;
        }
        let pool: Pool<B> = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(self.connector(key.1.clone()));
        self.all.rcu(|pools| {
            let mut pools = Vec::clone(pools);
            if find(&pools).is_none() {
                if pools.len() >= MAX_POOLS {
                    pools.remove(0);
                }
                pools.push((key.clone(), pool.clone()));
            }
            pools
        });
        pool
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::client::roots::tls_without_roots;

    fn options(seconds: u64) -> ConnectOptions {
        ConnectOptions { connect_timeout: Duration::from_secs(seconds), roots: None, proxy: None }
    }

    fn pools() -> Pools<Full<Bytes>> {
        Pools::new(Arc::new(tls_without_roots().unwrap()))
    }

    #[tokio::test]
    async fn each_connect_timeout_has_one_pool() {
        let pools = pools();
        for seconds in [1, 2, 1, 2, 2] {
            pools.get(options(seconds));
        }
        assert_eq!(pools.all.load().len(), 2);
        for seconds in 0..2_000 {
            pools.get(options(seconds));
        }
        assert_eq!(pools.all.load().len(), MAX_POOLS);
    }

    #[tokio::test]
    async fn roots_and_proxies_have_separate_pools() {
        let pools = pools();
        let root = || {
            let params = CertificateParams::new([]).unwrap();
            let root = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            root.der().to_vec()
        };
        let (one, other) = (root(), root());
        for root in [&one, &other, &one] {
            let roots = Some(Roots::from_der([root.clone()]).unwrap());
            pools.get(ConnectOptions { roots, ..options(1) });
        }
        assert_eq!(pools.all.load().len(), 2);
        for proxy in ["http://a:1", "http://b:1", "http://a:1", "http://user:x@a:1"] {
            pools.get(ConnectOptions { proxy: Some(proxy.parse().unwrap()), ..options(1) });
        }
        assert_eq!(pools.all.load().len(), 5);
    }
}
