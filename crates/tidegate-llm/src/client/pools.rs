//! Pools of connections, one for each runtime and connect time-out.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http_body::Body;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::runtime::{Handle, Id};

use super::connector::Connector;

/// How long a connection is kept that nobody uses. Providers close theirs after a minute or more,
/// and one that is closed from their side may take a call with it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Pools that are kept. Beyond that the oldest are let go.
const MAX_POOLS: usize = 128;

/// Connections of one runtime, made with one connect time-out.
pub(super) type Pool<B> = legacy::Client<Connector, B>;

/// All pools of a client.
pub(super) struct Pools<B> {
    tls: Arc<ClientConfig>,
    /// Connections end with the runtime that they live in, and one that lives elsewhere has to be
    /// woken by another thread for every byte.
    all: ArcSwap<Vec<(Key, Pool<B>)>>,
}

type Key = (Id, Duration);

impl<B> Pools<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    pub(super) fn new(tls: Arc<ClientConfig>) -> Self {
        Self { tls, all: ArcSwap::default() }
    }

    /// The connections of the runtime that this is called in, with this connect time-out.
    pub(super) fn get(&self, connect_timeout: Duration) -> Pool<B> {
        let key = (Handle::current().id(), connect_timeout);
        let find = |pools: &Vec<(Key, Pool<B>)>| {
            pools.iter().find(|(other, _)| *other == key).map(|(_, pool)| pool.clone())
        };
        if let Some(pool) = find(&self.all.load()) {
            return pool;
        }
        let pool: Pool<B> = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(Connector::new(self.tls.clone(), connect_timeout));
        self.all.rcu(|pools| {
            let mut pools = Vec::clone(pools);
            if find(&pools).is_none() {
                if pools.len() >= MAX_POOLS {
                    pools.remove(0);
                }
                pools.push((key, pool.clone()));
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
    use rustls::RootCertStore;

    use super::*;

    #[tokio::test]
    async fn each_connect_timeout_has_one_pool() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let pools: Pools<Full<Bytes>> = Pools::new(Arc::new(tls));
        for seconds in [1, 2, 1, 2, 2] {
            pools.get(Duration::from_secs(seconds));
        }
        assert_eq!(pools.all.load().len(), 2);
        for seconds in 0..1_000 {
            pools.get(Duration::from_secs(seconds));
        }
        assert_eq!(pools.all.load().len(), MAX_POOLS);
    }
}
