//! The connection that is kept, and how every connection is made.
//!
//! One caller has it at a time. Whoever leaves in the middle takes it along: the server then sees
//! it end, and undoes what was begun.

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

/// How long a connection may take to be made, and a statement to be answered, in seconds.
const PATIENCE: u64 = 5;
/// How long a kept connection may take to show that it still works, in seconds.
const SIGN_OF_LIFE: u64 = 1;

/// What the server is told at the beginning: it gives up at the same time as we do, and it undoes
/// what somebody has begun who does not come back.
const GREETING: &str = "SET statement_timeout = 5000; SET lock_timeout = 5000; \
                        SET idle_in_transaction_session_timeout = 10000";

/// What a connection over TLS or without is to the driver.
pub(super) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The way to one database.
pub(super) struct Line {
    address: Address,
    auto: AutoMigrate,
    schema: Schema,
    tls: OnceCell<MakeRustlsConnect>,
    kept: Mutex<Option<Kept>>,
}

/// A connection, with the task that carries its bytes.
struct Kept {
    client: Client,
    _carrier: Task,
}

/// A task that ends with whoever has it.
#[derive(Debug)]
pub(super) struct Task(JoinHandle<()>);

/// The connection, in the hands of one caller.
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

    /// A connection that works, once those before have ended.
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
            // Whoever asks through the client hears why it ended.
            let _ = wire.await;
        }));
        let mut kept = Kept { client, _carrier: carrier };
        ask(kept.client.batch_execute(GREETING)).await?;
        if self.auto == AutoMigrate::Yes {
            migrate::run(&mut kept.client, self.schema).await?;
        }
        Ok(Turn { slot, kept })
    }

    /// Makes a connection. Nothing is carried over it until its second half is polled.
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

    /// Puts the connection back, unless what was done with it says that it is no good any more.
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

/// Waits for the server as long as for any statement.
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
