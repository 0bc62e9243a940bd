//! Pools of connections, one for each runtime and way of connecting.

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

/// How long a connection is kept that nobody uses. Providers close theirs after a minute or more,
/// and one that is closed from their side may take a call with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pools that are kept: some for each runtime and each provider that is reached in a way of its own.
/// Beyond that the oldest are let go.
const MAX_POOLS: usize = 1_024;

/// Connections of one runtime, made in one way.
pub(super) type Pool<B> = legacy::Client<Connector, B>;

/// How connections are made. Those that are made in another way are not shared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) connect_timeout: Duration,
    /// Those of the system if there are none.
    pub(super) roots: Option<Roots>,
    pub(super) proxy: Option<Proxy>,
}

/// All pools of a client.
pub(super) struct Pools<B> {
    /// TLS with the roots of the system.
    tls: Arc<ClientConfig>,
    /// Connections end with the runtime that they live in, and one that lives elsewhere has to be
    /// woken by another thread for every byte.
    all: ArcSwap<Vec<(Key, Pool<B>)>>,
}

type Key = (Id, Way);

impl<B> Pools<B> {
    pub(super) fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls, all: ArcSwap::default() }
    }

    /// What makes connections in this way.
    pub(super) fn connector(&self, way: Way) -> Connector {
        let Way { connect_timeout, roots, proxy } = way;
        let tls = roots.map_or_else(|| self.tls.clone(), |roots| roots.tls().clone());
        Connector { tls, timeout: connect_timeout, proxy, proxy_tls: self.tls.clone() }
    }
}

impl<B> Pools<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    /// The connections of the runtime that this is called in, made in this way.
    pub(super) fn get(&self, way: Way) -> Pool<B> {
        let key = (Handle::current().id(), way);
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
    use crate::client::roots::trusting_nobody;

    fn way(seconds: u64) -> Way {
        Way { connect_timeout: Duration::from_secs(seconds), roots: None, proxy: None }
    }

    fn pools() -> Pools<Full<Bytes>> {
        Pools::new(Arc::new(trusting_nobody().unwrap()))
    }

    #[tokio::test]
    async fn each_connect_timeout_has_one_pool() {
        let pools = pools();
        for seconds in [1, 2, 1, 2, 2] {
            pools.get(way(seconds));
        }
        assert_eq!(pools.all.load().len(), 2);
        for seconds in 0..2_000 {
            pools.get(way(seconds));
        }
        assert_eq!(pools.all.load().len(), MAX_POOLS);
    }

    #[tokio::test]
    async fn other_roots_and_other_proxies_have_pools_of_their_own() {
        let pools = pools();
        let root = || {
            let params = CertificateParams::new([]).unwrap();
            let root = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            root.der().to_vec()
        };
        let (one, other) = (root(), root());
        for root in [&one, &other, &one] {
            let roots = Some(Roots::from_der([root.clone()]).unwrap());
            pools.get(Way { roots, ..way(1) });
        }
        assert_eq!(pools.all.load().len(), 2);
        for proxy in ["http://a:1", "http://b:1", "http://a:1", "http://user:x@a:1"] {
            pools.get(Way { proxy: Some(proxy.parse().unwrap()), ..way(1) });
        }
        assert_eq!(pools.all.load().len(), 5);
    }
}
