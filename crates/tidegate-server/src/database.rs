//! The database of settings changed at run time, with an audit trail of the changes.
//!
//! SQLite stores the settings in a file and needs nothing else; PostgreSQL is for several nodes.
//! Both store values as JSON under their key, increase a revision with every write, and enforce
//! constraints of their own. The meaning of a setting is not known here.
//!
//! A write is atomic. An unreachable database is an error that the caller handles; nothing is
//! cached here.

mod error;
mod postgres;
mod record;
mod schema;
mod sqlite;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::wall_now;
use tidegate_config::{Config, DatabaseUrl};
use tidegate_http::ThrottledLog;

pub use self::error::DatabaseError;
pub(crate) use self::record::json_value;
pub use self::record::{AuditEntry, ChangeOrigin, MigrationResult, SettingUpdate, StoredSettings};

use self::postgres::Postgres;
use self::schema::Schema;
use self::sqlite::Sqlite;

/// Name of the SQLite file in the state directory.
const FILE_NAME: &str = "tidegate.db";
/// Polling interval for changes of an SQLite file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// First and longest pause after a failure to read changes.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Minimum interval between logged failures of a database.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Whether tables of an older format are migrated automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoMigrate {
    /// They are refused with an error that says what to do. Other nodes may still need the old
    /// format.
    #[default]
    No,
    /// They are migrated. Nodes that start at the same time wait for each other.
    Yes,
}

/// A database of settings. Cheap to clone; clones share their connections.
///
/// Constructors do no I/O. All other methods must be called in a tokio runtime.
///
/// ```
/// use tidegate_server::{ChangeOrigin, Database, SettingUpdate};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tidegate.db");
/// let database = Database::sqlite(path);
/// assert_eq!(database.read().await?.revision, 0);
///
/// let changes = [SettingUpdate::set("limits.client.capacity", "200")];
/// let note = ChangeOrigin { door: "cli", who: None };
/// let stored = database.write(&changes, &note, Some(0)).await?;
/// assert_eq!((stored.revision, stored.settings["limits.client.capacity"].as_str()), (1, "200"));
/// assert_eq!(database.history(10).await?[0].new.as_deref(), Some("200"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    kind: Kind,
    /// Failures recur with every attempt, so their log is throttled.
    failures: ThrottledLog,
}

enum Kind {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// Returns the configured database; `None` if the configuration disables it.
    ///
    /// # Errors
    /// If its URL is invalid.
    pub fn from_config(plan: &Config) -> Result<Option<Self>, DatabaseError> {
        let migrate = match plan.database.auto_migrate.value {
            true => AutoMigrate::Yes,
            false => AutoMigrate::No,
        };
        Ok(match &plan.database.url.value {
            DatabaseUrl::Sqlite(Some(path)) => Some(Self::sqlite(path)),
            DatabaseUrl::Sqlite(None) => Some(Self::sqlite(plan.state_dir.value.join(FILE_NAME))),
            DatabaseUrl::Postgres(url) => Some(Self::postgres(url.with_credentials(), migrate)?),
            _ => None,
        })
    }

    /// Uses an SQLite file. The first write creates it and its parent directories, readable by the
    /// owner only. A file of an older format is migrated when it is used, after a backup copy was
    /// made next to it. A read-only file can still be read.
    #[must_use]
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::new(Kind::Sqlite(Sqlite::new(path.into(), Schema::CURRENT)))
    }

    /// Uses a PostgreSQL database: `postgres://user:password@host:port/name`.
    ///
    /// `sslmode` in the URL controls encryption. Certificates are always verified, against the
    /// system's root certificates or those in the file `sslrootcert`. Tables are created in the
    /// first schema of the `search_path`; their names begin with `tidegate_`.
    ///
    /// # Errors
    /// If the URL is invalid. The error does not contain the URL.
    pub fn postgres(url: &str, auto: AutoMigrate) -> Result<Self, DatabaseError> {
        Ok(Self::new(Kind::Postgres(Postgres::new(url, auto, Schema::CURRENT)?)))
    }

    /// Reads all settings. A missing file counts as empty and is not created.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn read(&self) -> Result<StoredSettings, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.read().await,
            Kind::Postgres(postgres) => postgres.read().await,
        }
    }

    /// Applies changes atomically and records them with `note` in the audit trail. Returns the
    /// resulting settings.
    ///
    /// With `expected`, changes are applied only if that is still the revision. An empty list
    /// writes nothing. At most 4,096 changes are accepted at once, and at most as many settings are
    /// stored.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn write(
        &self,
        changes: &[SettingUpdate],
        note: &ChangeOrigin,
        expected: Option<u64>,
    ) -> Result<StoredSettings, DatabaseError> {
        record::check(changes)?;
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.write(changes, note, expected).await,
            Kind::Postgres(postgres) => postgres.write(changes, note, expected).await,
        }
    }

    /// Returns past changes, newest first: up to `most`, and never more than 1,000. The newest
    /// 100,000 are stored.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn history(&self, most: usize) -> Result<Vec<AuditEntry>, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.history(most).await,
            Kind::Postgres(postgres) => postgres.history(most).await,
        }
    }

    /// Migrates the database to the format of this version, or creates it.
    ///
    /// # Errors
    /// See [`DatabaseError`]. Nothing was changed then.
    pub async fn migrate(&self) -> Result<MigrationResult, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.migrate().await,
            Kind::Postgres(postgres) => postgres.migrate().await,
        }
    }

    /// Waits until the revision differs from `since`, then returns the settings. An SQLite file is
    /// polled every second. PostgreSQL sends notifications on a separate connection, which is open
    /// from the first call of this method until the last clone is dropped.
    ///
    /// Failures are logged once a minute and retried. Cancel safe.
    pub async fn changed(&self, since: u64) -> StoredSettings {
        let mut notifications = match &self.inner.kind {
            Kind::Sqlite(_) => None,
            Kind::Postgres(postgres) => Some(postgres.notifications()),
        };
        let mut delay = FIRST_RETRY_DELAY;
        loop {
            if let Some(notifications) = &mut notifications {
                notifications.mark_unchanged();
            }
            match self.read_if_changed(since).await {
                Ok(Some(stored)) => return stored,
                Ok(None) => {
                    delay = FIRST_RETRY_DELAY;
                    match &mut notifications {
                        // The listener lives as long as `self`, so the sender is never dropped.
                        Some(notifications) => drop(notifications.changed().await),
                        None => tokio::time::sleep(POLL_INTERVAL).await,
                    }
                }
                Err(error) => {
                    self.log_failure(&error);
                    tokio::time::sleep(delay).await;
                    delay = (delay * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    fn new(kind: Kind) -> Self {
        Self { inner: Arc::new(Inner { kind, failures: ThrottledLog::every(LOG_INTERVAL) }) }
    }

    async fn read_if_changed(&self, since: u64) -> Result<Option<StoredSettings>, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.read_if_changed(since).await,
            Kind::Postgres(postgres) => postgres.read_if_changed(since).await,
        }
    }

    fn log_failure(&self, error: &DatabaseError) {
        if let Some(suppressed) = self.inner.failures.due(wall_now()) {
            tracing::warn!(%error, suppressed, "cannot read changes from the database; will retry");
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => write!(f, "SQLite at {}", sqlite.path().display()),
            Kind::Postgres(postgres) => write!(f, "{postgres}"),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Database({self})")
    }
}
