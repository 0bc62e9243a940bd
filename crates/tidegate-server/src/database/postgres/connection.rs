//! The persistent connection to the database, and how connections are opened.
//!
//! One caller uses it at a time. If the caller is cancelled, the connection is dropped with it, and
//! the server rolls back the open transaction.

use std::fmt;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::task::JoinHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{AutoMigrate, DatabaseError, Schema};
use super::address::Address;
use super::{NoResponse, map_error, migrate, tls};

/// Timeout for connecting and for each statement, in seconds.
const TIMEOUT_SECS: u64 = 5;
/// Timeout for the liveness check of a kept connection, in seconds.
const LIVENESS_TIMEOUT_SECS: u64 = 1;

/// Session settings: the server gives up when we do, and rolls back transactions that a client
/// abandoned.
const SESSION_SETTINGS: &str = "SET statement_timeout = 5000; SET lock_timeout = 5000; \
                        SET idle_in_transaction_session_timeout = 10000";

/// The driver's connection type, with or without TLS.
pub(super) type PgConnection =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The connection to one database.
pub(super) struct Connector {
    address: Address,
    auto: AutoMigrate,
    schema: Schema,
    tls: OnceCell<MakeRustlsConnect>,
    kept: Mutex<Option<KeptConnection>>,
}

/// A client with the task that drives its connection.
struct KeptConnection {
    client: Client,
    _driver: AbortOnDrop,
}

/// A task that is aborted on drop.
#[derive(Debug)]
pub(super) struct AbortOnDrop(JoinHandle<()>);

/// The connection, checked out by one caller.
pub(super) struct CheckedOut<'a> {
    slot: MutexGuard<'a, Option<KeptConnection>>,
    kept: KeptConnection,
}

impl Connector {
    pub(super) fn new(address: Address, auto: AutoMigrate, schema: Schema) -> Self {
        Self { address, auto, schema, tls: OnceCell::new(), kept: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a working connection, after earlier callers are done.
    pub(super) async fn acquire(&self) -> Result<CheckedOut<'_>, DatabaseError> {
        let mut slot = timeout_after(TIMEOUT_SECS, async { Ok(self.kept.lock().await) }).await?;
        if let Some(kept) = slot.take() {
            let check = async { kept.client.check_connection().await.map_err(map_error) };
            if timeout_after(LIVENESS_TIMEOUT_SECS, check).await.is_ok() {
                return Ok(CheckedOut { slot, kept });
            }
        }
        let (client, connection) = self.connect().await?;
        let driver = AbortOnDrop(tokio::spawn(async move {
            // The client's calls report why the connection ended.
            let _ = connection.await;
        }));
        let mut kept = KeptConnection { client, _driver: driver };
        with_timeout(kept.client.batch_execute(SESSION_SETTINGS)).await?;
        if self.auto == AutoMigrate::Yes {
            migrate::run(&mut kept.client, self.schema).await?;
        }
        Ok(CheckedOut { slot, kept })
    }

    /// Opens a connection. No data flows until the second value is polled.
    pub(super) async fn connect(&self) -> Result<(Client, PgConnection), DatabaseError> {
        let tls = self.tls.get_or_try_init(|| async { tls::connector(&self.address) }).await?;
        with_timeout(self.address.config().connect(tls.clone())).await
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl CheckedOut<'_> {
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.kept.client
    }

    /// Returns the connection for reuse, unless the result shows that it is broken.
    pub(super) fn finish<T>(
        mut self,
        result: Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        if !matches!(result, Err(DatabaseError::Unavailable(_) | DatabaseError::Damaged(_))) {
            *self.slot = Some(self.kept);
        }
        result
    }
}

impl AbortOnDrop {
    pub(super) fn new(handle: JoinHandle<()>) -> Self {
        Self(handle)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for a statement, at most [`TIMEOUT_SECS`] seconds.
pub(super) async fn with_timeout<T>(
    response: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseError> {
    timeout_after(TIMEOUT_SECS, async { response.await.map_err(map_error) }).await
}

async fn timeout_after<T>(
    seconds: u64,
    response: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let response = tokio::time::timeout(Duration::from_secs(seconds), response).await;
    response.map_err(|_| DatabaseError::unavailable(NoResponse(seconds)))?
}
