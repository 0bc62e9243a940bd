//! The PostgreSQL database of settings, for several nodes.
//!
//! One connection is kept for reads and writes, and reopened when it breaks. Waiting for changes
//! opens a second one, which listens for notifications. Every wait for the server is limited to a
//! few seconds.
//!
//! Tables are created and migrated only on request: other nodes may run another version.

mod address;
mod connection;
mod listen;
mod migrate;
mod tables;
mod tls;

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use self::address::Address;
use self::connection::Connector;
use self::listen::Listener;
use super::record::{AuditEntry, ChangeOrigin, MigrationResult, SettingUpdate, StoredSettings};
use super::{AutoMigrate, DatabaseError, Schema};

/// A database on a server. The constructor does no I/O.
#[derive(Debug)]
pub(super) struct Postgres {
    connector: Arc<Connector>,
    listener: Listener,
    schema: Schema,
}

impl Postgres {
    pub(super) fn new(url: &str, auto: AutoMigrate, schema: Schema) -> Result<Self, DatabaseError> {
        let connector = Arc::new(Connector::new(Address::parse(url)?, auto, schema));
        Ok(Self { listener: Listener::new(Arc::clone(&connector)), connector, schema })
    }

    pub(super) async fn read(&self) -> Result<StoredSettings, DatabaseError> {
        let mut connection = self.connector.acquire().await?;
        let result = tables::read(connection.client(), self.schema).await;
        connection.finish(result)
    }

    /// Returns the settings if the revision differs from `since`.
    pub(super) async fn read_if_changed(
        &self,
        since: u64,
    ) -> Result<Option<StoredSettings>, DatabaseError> {
        let mut connection = self.connector.acquire().await?;
        let result = tables::read_if_changed(connection.client(), self.schema, since).await;
        connection.finish(result)
    }

    pub(super) async fn write(
        &self,
        changes: &[SettingUpdate],
        note: &ChangeOrigin,
        expected: Option<u64>,
    ) -> Result<StoredSettings, DatabaseError> {
        let mut connection = self.connector.acquire().await?;
        let result = tables::write(connection.client(), self.schema, changes, note, expected).await;
        connection.finish(result)
    }

    pub(super) async fn history(&self, most: usize) -> Result<Vec<AuditEntry>, DatabaseError> {
        let mut connection = self.connector.acquire().await?;
        let result = tables::history(connection.client(), self.schema, most).await;
        connection.finish(result)
    }

    pub(super) async fn migrate(&self) -> Result<MigrationResult, DatabaseError> {
        let mut connection = self.connector.acquire().await?;
        let result = migrate::run(connection.client(), self.schema).await;
        connection.finish(result)
    }

    /// Returns a receiver that changes whenever the settings may have changed.
    pub(super) fn notifications(&self) -> watch::Receiver<()> {
        self.listener.notifications()
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL at {}", self.connector.address())
    }
}

/// An error message of the server, without the details, in which the server repeats values.
#[derive(Debug, thiserror::Error)]
#[error("{message} ({code})")]
struct ServerError {
    message: String,
    code: String,
}

/// The server did not respond in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no response within {0} s")]
struct NoResponse(u64);

/// Maps an error of the driver.
fn map_error(error: tokio_postgres::Error) -> DatabaseError {
    use tokio_postgres::error::SqlState;
    let Some(error_response) = error.as_db_error() else {
        // All driver errors except a column type mismatch concern the connection.
        return DatabaseError::unavailable(error);
    };
    let code = error_response.code();
    if *code == SqlState::UNDEFINED_TABLE {
        return DatabaseError::NotMigrated;
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        return DatabaseError::ReadOnly;
    }
    let error_response =
        ServerError { message: error_response.message().to_owned(), code: code.code().to_owned() };
    if *code == SqlState::UNDEFINED_COLUMN || *code == SqlState::DATA_CORRUPTED {
        return DatabaseError::Damaged(error_response.into());
    }
    DatabaseError::unavailable(error_response)
}
