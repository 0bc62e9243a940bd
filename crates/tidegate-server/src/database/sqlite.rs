//! The SQLite database of settings.
//!
//! All disk access runs on blocking threads, one operation at a time. Other processes may read,
//! write, replace or remove the file at any time.

mod file;
mod migrate;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use self::file::File;
use super::record::{AuditEntry, ChangeOrigin, MigrationResult, SettingUpdate, StoredSettings};
use super::{DatabaseError, Schema};

/// A database in a file. The constructor does no I/O.
#[derive(Debug)]
pub(super) struct Sqlite {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl Sqlite {
    pub(super) fn new(path: PathBuf, schema: Schema) -> Self {
        let file = File::new(path.clone(), schema);
        Self { path, file: Arc::new(Mutex::new(file)) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn read(&self) -> Result<StoredSettings, DatabaseError> {
        self.run(|file| match file.for_reading()? {
            Some((connection, schema)) => tables::read(connection, schema),
            None => Ok(StoredSettings::default()),
        })
        .await
    }

    /// Returns the settings if the revision differs from `since`.
    pub(super) async fn read_if_changed(
        &self,
        since: u64,
    ) -> Result<Option<StoredSettings>, DatabaseError> {
        self.run(move |file| match file.for_reading()? {
            Some((connection, schema)) => tables::read_if_changed(connection, schema, since),
            None => Ok((since != 0).then(StoredSettings::default)),
        })
        .await
    }

    pub(super) async fn write(
        &self,
        changes: &[SettingUpdate],
        note: &ChangeOrigin,
        expected: Option<u64>,
    ) -> Result<StoredSettings, DatabaseError> {
        let (changes, note) = (changes.to_vec(), note.clone());
        self.run(move |file| {
            let (connection, schema) = file.for_writing()?;
            tables::write(connection, schema, &changes, &note, expected)
        })
        .await
    }

    pub(super) async fn history(&self, most: usize) -> Result<Vec<AuditEntry>, DatabaseError> {
        self.run(move |file| match file.for_reading()? {
            Some((connection, schema)) => tables::history(connection, schema, most),
            None => Ok(Vec::new()),
        })
        .await
    }

    pub(super) async fn migrate(&self) -> Result<MigrationResult, DatabaseError> {
        self.run(File::migrate).await
    }

    /// Runs `work` on a blocking thread, to completion even if the future is dropped.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let mut file = Arc::clone(&self.file).lock_owned().await;
        let result = tokio::task::spawn_blocking(move || {
            let result = work(&mut file);
            file.after_use(result.as_ref().err());
            result
        });
        result.await.map_err(DatabaseError::unavailable)?
    }
}

/// Maps an error of SQLite.
fn map_error(error: rusqlite::Error) -> DatabaseError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => DatabaseError::ReadOnly,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            DatabaseError::Damaged(error.into())
        }
        Some(_) => DatabaseError::unavailable(error),
        // An error of the driver, not of SQLite: an unexpected column type or a missing row.
        None => DatabaseError::Damaged(error.into()),
    }
}
