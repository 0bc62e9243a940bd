//! Configuration and opening of a store.

use std::sync::Arc;
use std::time::Duration;

use redis::Client;
use redis::io::tcp::TcpSettings;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::address::Address;
use crate::batcher;
use crate::connection::Connection;
use crate::error::OpenError;
use crate::format::names::Names;
use crate::heartbeat;
use crate::script::Scripts;
use crate::store::RedisStore;

/// Builds a [`RedisStore`].
///
/// ```no_run
/// use tidegate_redis::RedisStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::builder("redis://gate:secret@127.0.0.1:6379/0").prefix("shop:").open()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `open` to open the store"]
pub struct RedisBuilder {
    address: Address,
    prefix: Option<String>,
    ttl: Option<Duration>,
    #[cfg(feature = "tls")]
    tls: Tls,
    #[cfg(feature = "manual-clock")]
    clock: Option<String>,
}

/// Certificates in PEM format.
#[cfg(feature = "tls")]
#[derive(Clone, Default)]
struct Tls {
    root: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(feature = "tls")]
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

impl RedisBuilder {
    pub(crate) fn new(address: &str) -> Self {
        Self {
            address: Address::new(address),
            prefix: None,
            ttl: None,
            #[cfg(feature = "tls")]
            tls: Tls::default(),
            #[cfg(feature = "manual-clock")]
            clock: None,
        }
    }

    /// Sets the prefix of all keys. The default is `tidegate:`. Stores with different prefixes on
    /// one server are independent.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets how long an unused bucket is kept. The default is twice its time to full, at least a
    /// minute. However short this is, a bucket is kept until it is full, and a held one until it
    /// reopens: otherwise its expiry would return tokens early.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Trusts this certificate authority (PEM) instead of those of the system.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.root = Some(pem.into());
        self
    }

    /// Sets the client certificate and key (PEM) for servers that require one.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Reads the time from a list on the server, seconds and microseconds, instead of its clock.
    #[cfg(feature = "manual-clock")]
    pub fn manual_clock(mut self, list: impl Into<String>) -> Self {
        self.clock = Some(list.into());
        self
    }

    /// Opens the store on the current tokio runtime, which then runs its connection. The server
    /// need not be available yet: the store connects in the background, and operations fail until
    /// it has. [`RedisStore::connected`] waits for the first attempt.
    ///
    /// # Errors
    /// Returns an error if the address or the prefix is invalid, or if there is no runtime.
    pub fn open(self) -> Result<RedisStore, OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let names = self.prefix.as_deref().map_or_else(|| Ok(Names::default()), Names::new)?;
        #[cfg(feature = "manual-clock")]
        let scripts = self.clock.as_deref().map_or_else(Scripts::new, Scripts::with_clock_in);
        #[cfg(not(feature = "manual-clock"))]
        let scripts = Scripts::new();
        let client = self.client()?;
        let node = getrandom::u64().map_err(|error| OpenError::Random(error.into()))?;
        let leases = getrandom::u64().map_err(|error| OpenError::Random(error.into()))?;
        let connection = Arc::new(Connection::new(client, names, scripts));
        let (outbox, inbox) = mpsc::unbounded_channel();
        let store = RedisStore::new(connection.clone(), outbox, self.ttl, leases);
        let heartbeat = heartbeat::run(store.downgrade(), node, connection.watch());
        store.set_tasks([
            runtime.spawn(batcher::run(connection.clone(), inbox)).abort_handle(),
            runtime.spawn(connection.run(node)).abort_handle(),
            runtime.spawn(heartbeat).abort_handle(),
        ]);
        Ok(store)
    }

    fn client(&self) -> Result<Client, OpenError> {
        if self.address.uses_tls() && !cfg!(feature = "tls") {
            return Err(OpenError::NoTls);
        }
        let info = self.address.parse()?;
        // Without it, small calls wait for the acknowledgement of previous ones.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        // Setting the library name is one more command that an ACL would have to permit.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(settings);
        #[cfg(feature = "tls")]
        if self.address.uses_tls() {
            use redis::{ClientTlsConfig, TlsCertificates};
            // Fails if the program has already installed a provider, which is then used.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let identity = self.tls.identity.clone();
            let client_tls = identity
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            let certificates = TlsCertificates { client_tls, root_cert: self.tls.root.clone() };
            let client = Client::build_with_tls(info, certificates);
            return client.map_err(|error| OpenError::Certificate(error.to_string()));
        }
        Client::open(info).map_err(|_| self.address.invalid())
    }
}
