//! The database of settings, on a real file and a real server.

mod postgres;
mod sqlite;
mod suite;

use std::sync::LazyLock;

use tempfile::TempDir;
use tidegate_server::{
    AutoMigrate, ChangeOrigin, Database, DatabaseError, SettingUpdate, StoredSettings,
};
use tidegate_testkit::launch::PostgresServer;

/// One server for all tests that do not kill it; each test has its own database.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(PostgresServer::start);

/// An empty database of either kind, which any number of nodes can open.
#[derive(Debug)]
enum Location {
    Folder(TempDir),
    Server(String),
}

impl Location {
    fn both() -> [Self; 2] {
        [Self::Folder(tempfile::tempdir().unwrap()), Self::Server(SERVER.fresh_database())]
    }

    fn open(&self) -> Database {
        match self {
            Self::Folder(folder) => Database::sqlite(folder.path().join("tidegate.db")),
            Self::Server(url) => Database::postgres(url, AutoMigrate::Yes).unwrap(),
        }
    }
}

fn note() -> ChangeOrigin {
    ChangeOrigin { door: "admin", who: Some("ada".to_owned()) }
}

async fn set(database: &Database, key: &str, value: &str) -> Result<StoredSettings, DatabaseError> {
    database.write(&[SettingUpdate::set(key, value)], &note(), None).await
}
