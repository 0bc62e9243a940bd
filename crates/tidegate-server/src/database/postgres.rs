//! The PostgreSQL database of settings, for several nodes.
//!
//! One connection is kept for reads and writes, and reopened when it breaks. Waiting for changes
//! opens a second one, which listens for notifications. Every wait for the server is limited to a
//! few seconds.
//!
//! Tables are created and migrated only on request: other nodes may run another version.

mod address;
mod line;
mod listen;
mod migrate;
mod tables;
mod tls;

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use self::address::Address;
use self::line::Line;
use self::listen::Listener;
use super::record::{Audit, Change, Migrated, Note, Stored};
use super::{AutoMigrate, DatabaseError, Schema};

/// A database on a server. The constructor does no I/O.
#[derive(Debug)]
pub(super) struct Postgres {
    line: Arc<Line>,
    listener: Listener,
    schema: Schema,
}

impl Postgres {
    pub(super) fn new(url: &str, auto: AutoMigrate, schema: Schema) -> Result<Self, DatabaseError> {
        let line = Arc::new(Line::new(Address::parse(url)?, auto, schema));
        Ok(Self { listener: Listener::new(Arc::clone(&line)), line, schema })
    }

    pub(super) async fn read(&self) -> Result<Stored, DatabaseError> {
        let mut turn = self.line.turn().await?;
        let done = tables::read(turn.client(), self.schema).await;
        turn.end(done)
    }

    /// Returns the settings if the revision differs from `since`.
    pub(super) async fn newer(&self, since: u64) -> Result<Option<Stored>, DatabaseError> {
        let mut turn = self.line.turn().await?;
        let done = tables::newer(turn.client(), self.schema, since).await;
        turn.end(done)
    }

    pub(super) async fn write(
        &self,
        changes: &[Change],
        note: &Note,
        expected: Option<u64>,
    ) -> Result<Stored, DatabaseError> {
        let mut turn = self.line.turn().await?;
        let done = tables::write(turn.client(), self.schema, changes, note, expected).await;
        turn.end(done)
    }

    pub(super) async fn history(&self, most: usize) -> Result<Vec<Audit>, DatabaseError> {
        let mut turn = self.line.turn().await?;
        let done = tables::history(turn.client(), self.schema, most).await;
        turn.end(done)
    }

    pub(super) async fn migrate(&self) -> Result<Migrated, DatabaseError> {
        let mut turn = self.line.turn().await?;
        let done = migrate::run(turn.client(), self.schema).await;
        turn.end(done)
    }

    /// Returns a receiver that changes whenever the settings may have changed.
    pub(super) fn bell(&self) -> watch::Receiver<()> {
        self.listener.bell()
    }
}

impl fmt::Display for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL at {}", self.line.address())
    }
}

/// An error message of the server, without the details, in which the server repeats values.
#[derive(Debug, thiserror::Error)]
#[error("{message} ({code})")]
struct Said {
    message: String,
    code: String,
}

/// The server did not respond in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no response within {0} s")]
struct Silent(u64);

/// Maps an error of the driver.
fn meaning(error: tokio_postgres::Error) -> DatabaseError {
    use tokio_postgres::error::SqlState;
    let Some(said) = error.as_db_error() else {
        // All driver errors except a column type mismatch concern the connection.
        return DatabaseError::unavailable(error);
    };
    let code = said.code();
    if *code == SqlState::UNDEFINED_TABLE {
        return DatabaseError::NotMigrated;
    }
    if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        return DatabaseError::ReadOnly;
    }
    let said = Said { message: said.message().to_owned(), code: code.code().to_owned() };
    if *code == SqlState::UNDEFINED_COLUMN || *code == SqlState::DATA_CORRUPTED {
        return DatabaseError::Damaged(said.into());
    }
    DatabaseError::unavailable(said)
}
