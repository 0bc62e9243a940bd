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
use super::{Silent, meaning, migrate, tls};

/// Timeout for connecting and for each statement, in seconds.
const PATIENCE: u64 = 5;
/// Timeout for the liveness check of a kept connection, in seconds.
const SIGN_OF_LIFE: u64 = 1;

/// Session settings: the server gives up when we do, and rolls back transactions that a client
/// abandoned.
const GREETING: &str = "SET statement_timeout = 5000; SET lock_timeout = 5000; \
                        SET idle_in_transaction_session_timeout = 10000";

/// The driver's connection type, with or without TLS.
pub(super) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The connection to one database.
pub(super) struct Line {
    address: Address,
    auto: AutoMigrate,
    schema: Schema,
    tls: OnceCell<MakeRustlsConnect>,
    kept: Mutex<Option<Kept>>,
}

/// A client with the task that drives its connection.
struct Kept {
    client: Client,
    _carrier: Task,
}

/// A task that is aborted on drop.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

/// The connection, checked out by one caller.
pub(super) struct Turn<'a> {
    slot: MutexGuard<'a, Option<Kept>>,
    kept: Kept,
}

impl Line {
    pub(super) fn new(address: Address, auto: AutoMigrate, schema: Schema) -> Self {
        Self { address, auto, schema, tls: OnceCell::new(), kept: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns a working connection, after earlier callers are done.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, DatabaseError> {
        let mut slot = within(PATIENCE, async { Ok(self.kept.lock().await) }).await?;
        if let Some(kept) = slot.take() {
            let sign = async { kept.client.check_connection().await.map_err(meaning) };
            if within(SIGN_OF_LIFE, sign).await.is_ok() {
                return Ok(Turn { slot, kept });
            }
        }
        let (client, wire) = self.connect().await?;
        let carrier = Task(tokio::spawn(async move {
            // The client's calls report why the connection ended.
            let _ = wire.await;
        }));
        let mut kept = Kept { client, _carrier: carrier };
        ask(kept.client.batch_execute(GREETING)).await?;
        if self.auto == AutoMigrate::Yes {
            migrate::run(&mut kept.client, self.schema).await?;
        }
        Ok(Turn { slot, kept })
    }

    /// Opens a connection. No data flows until the second value is polled.
    pub(super) async fn connect(&self) -> Result<(Client, Wire), DatabaseError> {
        let tls = self.tls.get_or_try_init(|| async { tls::connector(&self.address) }).await?;
        ask(self.address.config().connect(tls.clone())).await
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Turn<'_> {
    pub(super) fn client(&mut self) -> &mut Client {
        &mut self.kept.client
    }

    /// Returns the connection for reuse, unless the result shows that it is broken.
    pub(super) fn end<T>(mut self, done: Result<T, DatabaseError>) -> Result<T, DatabaseError> {
        if !matches!(done, Err(DatabaseError::Unavailable(_) | DatabaseError::Damaged(_))) {
            *self.slot = Some(self.kept);
        }
        done
    }
}

impl Task {
    pub(super) fn new(handle: JoinHandle<()>) -> Self {
        Self(handle)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for a statement, at most [`PATIENCE`] seconds.
pub(super) async fn ask<T>(
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, DatabaseError> {
    within(PATIENCE, async { answer.await.map_err(meaning) }).await
}

async fn within<T>(
    seconds: u64,
    answer: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    let answer = tokio::time::timeout(Duration::from_secs(seconds), answer).await;
    answer.map_err(|_| DatabaseError::unavailable(Silent(seconds)))?
}
