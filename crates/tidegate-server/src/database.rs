//! Operational settings that outlive a restart, and the trail of who changed them.
//!
//! Two databases hold the same: a file of SQLite, which needs nothing else, and PostgreSQL, for
//! several nodes. Both keep values as JSON under their paths, count a revision that grows by one
//! with every write, and refuse by rules of their own what no value may be. What a setting means is
//! not known here.
//!
//! A write is done whole or not at all. A database that is away is an error, and what to do about
//! it is for the caller to say: nothing here is remembered in its place.

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
use tidegate_config::{DatabaseUrl, Plan};
use tidegate_http::ThrottledLog;

pub use self::error::DatabaseError;
pub(crate) use self::record::json_value;
pub use self::record::{Audit, Change, Migrated, Note, Stored};

use self::postgres::Postgres;
use self::schema::Schema;
use self::sqlite::Sqlite;

/// The file in the state directory.
const FILE: &str = "tidegate.db";
/// How often a file is looked at by those who wait for changes.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure, those who wait for changes rest: at first and at most.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(2);
/// How long the failures of one database are not logged again.
const SILENCE: Duration = Duration::from_secs(60);

/// Whether tables of an older format are migrated when they are met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AutoMigrate {
    /// They are refused, with an error that says what to do. Other nodes may need them as they are.
    #[default]
    No,
    /// They are migrated. Nodes that start at once take turns.
    Yes,
}

/// A database of settings. Cheap to clone; clones share their connections.
///
/// Making one touches neither the disk nor the network. Everything else is to be called in a tokio
/// runtime.
///
/// ```
/// use tidegate_server::{Change, Database, Note};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("tidegate.db");
/// let database = Database::sqlite(path);
/// assert_eq!(database.read().await?.revision, 0);
///
/// let changes = [Change::set("limits.client.capacity", "200")];
/// let note = Note { door: "cli", who: None };
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
    /// Failures, which come with every try.
    failures: ThrottledLog,
}

enum Kind {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Database {
    /// The database that a plan names, if it names one.
    ///
    /// # Errors
    /// When its address cannot be used.
    pub fn of(plan: &Plan) -> Result<Option<Self>, DatabaseError> {
        let migrate = match plan.database.auto_migrate.value {
            true => AutoMigrate::Yes,
            false => AutoMigrate::No,
        };
        Ok(match &plan.database.url.value {
            DatabaseUrl::Sqlite(Some(path)) => Some(Self::sqlite(path)),
            DatabaseUrl::Sqlite(None) => Some(Self::sqlite(plan.state_dir.value.join(FILE))),
            DatabaseUrl::Postgres(url) => Some(Self::postgres(url.with_credentials(), migrate)?),
            _ => None,
        })
    }

    /// A file. It is made by the first write, with the folders above it, and readable for its
    /// owner alone. A file of an older version is migrated when it is used, after a copy beside it
    /// was made. A file that cannot be written is read all the same.
    #[must_use]
    pub fn sqlite(path: impl Into<PathBuf>) -> Self {
        Self::new(Kind::Sqlite(Sqlite::new(path.into(), Schema::CURRENT)))
    }

    /// A database on a server: `postgres://user:password@host:port/name`.
    ///
    /// The connection is encrypted as `sslmode` in the URL says; certificates are always checked,
    /// against those of the system or of the file `sslrootcert`. Tables go to the first schema of
    /// the `search_path`, and their names begin with `tidegate_`.
    ///
    /// # Errors
    /// If the URL is none. The error does not repeat it.
    pub fn postgres(url: &str, auto: AutoMigrate) -> Result<Self, DatabaseError> {
        Ok(Self::new(Kind::Postgres(Postgres::new(url, auto, Schema::CURRENT)?)))
    }

    /// What is stored. A file that is not there holds nothing, and is not made.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn read(&self) -> Result<Stored, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.read().await,
            Kind::Postgres(postgres) => postgres.read().await,
        }
    }

    /// Makes changes, all or none, and remembers them with their note. Returns what is stored then.
    ///
    /// With `expected` the changes are made only if that is still the revision. An empty list of
    /// changes writes nothing. At most 4,096 changes are taken at once, and as many settings are kept.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn write(
        &self,
        changes: &[Change],
        note: &Note,
        expected: Option<u64>,
    ) -> Result<Stored, DatabaseError> {
        record::check(changes)?;
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.write(changes, note, expected).await,
            Kind::Postgres(postgres) => postgres.write(changes, note, expected).await,
        }
    }

    /// The changes of the past, the newest first: at most so many, and never more than 1,000. The
    /// newest 100,000 are kept.
    ///
    /// # Errors
    /// See [`DatabaseError`].
    pub async fn history(&self, most: usize) -> Result<Vec<Audit>, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.history(most).await,
            Kind::Postgres(postgres) => postgres.history(most).await,
        }
    }

    /// Brings the database to the format of this version, or makes it.
    ///
    /// # Errors
    /// See [`DatabaseError`]. Nothing has changed then.
    pub async fn migrate(&self) -> Result<Migrated, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.migrate().await,
            Kind::Postgres(postgres) => postgres.migrate().await,
        }
    }

    /// Waits until the revision is another than `since`, whoever wrote it, and returns what is
    /// stored then. A file is looked at every second; PostgreSQL tells, over a connection that
    /// listens from the first call of this to the end of the last clone.
    ///
    /// Failures are logged, once a minute, and waited out. Dropping the future loses nothing.
    pub async fn changed(&self, since: u64) -> Stored {
        let mut bell = match &self.inner.kind {
            Kind::Sqlite(_) => None,
            Kind::Postgres(postgres) => Some(postgres.bell()),
        };
        let mut rest = FIRST_REST;
        loop {
            if let Some(bell) = &mut bell {
                bell.mark_unchanged();
            }
            match self.newer(since).await {
                Ok(Some(stored)) => return stored,
                Ok(None) => {
                    rest = FIRST_REST;
                    match &mut bell {
                        // The listener lives as long as we do, so the bell is never taken away.
                        Some(bell) => drop(bell.changed().await),
                        None => tokio::time::sleep(LOOK).await,
                    }
                }
                Err(error) => {
                    self.failed(&error);
                    tokio::time::sleep(rest).await;
                    rest = (rest * 2).min(LONGEST_REST);
                }
            }
        }
    }

    fn new(kind: Kind) -> Self {
        Self { inner: Arc::new(Inner { kind, failures: ThrottledLog::every(SILENCE) }) }
    }

    async fn newer(&self, since: u64) -> Result<Option<Stored>, DatabaseError> {
        match &self.inner.kind {
            Kind::Sqlite(sqlite) => sqlite.newer(since).await,
            Kind::Postgres(postgres) => postgres.newer(since).await,
        }
    }

    fn failed(&self, error: &DatabaseError) {
        if let Some(suppressed) = self.inner.failures.due(wall_now()) {
            tracing::warn!(%error, suppressed, "changes in the database are not seen for now");
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
