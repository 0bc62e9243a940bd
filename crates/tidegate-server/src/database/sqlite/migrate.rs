//! Migrates a file to the current format: makes a backup, then applies all migrations in one
//! transaction.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::backup::StepResult;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::super::DatabaseError;
use super::super::record::MigrationResult;
use super::super::schema::{Schema, SchemaState};
use super::file::{is_read_only, private_file};
use super::{map_error, tables};

/// Maximum number of backups of one format next to a file, so that they cannot fill the disk.
const MAX_BACKUPS: usize = 100;

/// Makes backups of a file.
#[derive(Debug)]
pub(super) struct Backup {
    path: PathBuf,
}

/// Migrates a file. Concurrent migrations are serialized, and the second finds nothing to do.
pub(super) fn run(
    connection: &mut Connection,
    schema: Schema,
    backup: &Backup,
) -> Result<MigrationResult, DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(map_error)?;
    let from = tables::format(&transaction)?;
    let to = schema.format();
    let SchemaState::Behind(migrations) = schema.state(from)? else {
        return Ok(MigrationResult { from, to, backup: None });
    };
    let backup = from.map(|format| backup.create(format)).transpose()?;
    for migration in migrations {
        transaction.execute_batch(migration.sqlite).map_err(map_error)?;
    }
    transaction.execute("UPDATE tidegate_meta SET format = ?1", [to]).map_err(map_error)?;
    transaction.commit().map_err(map_error)?;
    if let Some(backup) = &backup {
        tracing::info!(from, to, backup = %backup.display(), "database migrated");
    }
    Ok(MigrationResult { from, to, backup })
}

impl Backup {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Copies the file; the caller's transaction keeps others from writing. The final name never
    /// holds a partial copy, and existing backups are not replaced.
    fn create(&self, format: u32) -> Result<PathBuf, DatabaseError> {
        let partial = self.with_suffix(&format!(".format{format}.bak.new"));
        let copy = self.copy(&partial);
        let renamed = copy.and_then(|()| self.rename(&partial, format));
        if renamed.is_err() {
            let _ = fs::remove_file(&partial);
        }
        renamed
    }

    fn copy(&self, to: &Path) -> Result<(), DatabaseError> {
        // A partial copy of an earlier attempt is useless.
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(map_io_error(error));
            }
            _ => {}
        }
        private_file().create_new(true).open(to).map_err(map_io_error)?;
        // The writing connection cannot be the source of a backup, but another one can.
        let readable = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let from = Connection::open_with_flags(&self.path, readable).map_err(map_error)?;
        let mut copy = Connection::open(to).map_err(map_error)?;
        let backup = rusqlite::backup::Backup::new(&from, &mut copy).map_err(map_error)?;
        if backup.step(-1).map_err(map_error)? != StepResult::Done {
            return Err(DatabaseError::unavailable(io::Error::from(io::ErrorKind::ResourceBusy)));
        }
        drop(backup);
        copy.close().map_err(|(_, error)| map_error(error))
    }

    fn rename(&self, partial: &Path, format: u32) -> Result<PathBuf, DatabaseError> {
        let name = |copy: usize| match copy {
            1 => self.with_suffix(&format!(".format{format}.bak")),
            _ => self.with_suffix(&format!(".format{format}.{copy}.bak")),
        };
        let free = (1..=MAX_BACKUPS).map(name).find(|path| !path.exists());
        let too_many =
            || DatabaseError::TooMany { what: "backups of the database", most: MAX_BACKUPS };
        let path = free.ok_or_else(too_many)?;
        fs::rename(partial, &path).map_err(map_io_error)?;
        // Sync the directory before the original changes.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or(Path::new("."))).map_err(map_io_error)?;
        folder.sync_all().map_err(map_io_error)?;
        Ok(path)
    }

    fn with_suffix(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }
}

fn map_io_error(error: io::Error) -> DatabaseError {
    if is_read_only(&error) { DatabaseError::ReadOnly } else { DatabaseError::unavailable(error) }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{ChangeOrigin, SettingUpdate};
    use super::super::super::schema::Migration;
    use super::super::Sqlite;
    use super::*;

    const FIRST: &str = include_str!("../schema/sqlite-1.sql");
    const ONE: Schema = Schema(&[Migration { sqlite: FIRST, postgres: "" }]);
    const TWO: Schema = Schema(&[
        Migration { sqlite: FIRST, postgres: "" },
        Migration {
            sqlite: "ALTER TABLE tidegate_setting ADD COLUMN note TEXT; \
                     UPDATE tidegate_setting SET value = '7' WHERE key = 'a';",
            postgres: "",
        },
    ]);
    const BROKEN: Schema = Schema(&[
        Migration { sqlite: FIRST, postgres: "" },
        Migration { sqlite: "DELETE FROM tidegate_setting; SELECT no_such_column;", postgres: "" },
    ]);

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn database(&self, schema: Schema) -> Sqlite {
            Sqlite::new(self.at("tidegate.db"), schema)
        }

        /// Creates a file of format 1 with `a = 1`.
        async fn with_format_1() -> Self {
            let folder = Self::new();
            folder.set(ONE, "1").await.unwrap();
            folder
        }

        async fn set(&self, schema: Schema, value: &str) -> Result<(), DatabaseError> {
            let note = ChangeOrigin { door: "cli", who: None };
            let change = [SettingUpdate::set("a", value)];
            self.database(schema).write(&change, &note, None).await.map(|_| ())
        }
    }

    async fn value_of_a(database: &Sqlite) -> String {
        database.read().await.unwrap().settings["a"].clone()
    }

    #[tokio::test]
    async fn reading_an_older_file_backs_it_up_and_migrates_it() {
        let folder = Folder::with_format_1().await;
        assert_eq!(value_of_a(&folder.database(TWO)).await, "7", "the migration was applied");
        let old = folder.database(ONE).read().await;
        let new_format = DatabaseError::NewFormat { found: 2, known: 1 };
        assert_eq!(old.unwrap_err().to_string(), new_format.to_string());
        let backup = folder.at("tidegate.db.format1.bak");
        assert_eq!(
            value_of_a(&Sqlite::new(backup, ONE)).await,
            "1",
            "the backup has the old content"
        );
    }

    #[tokio::test]
    async fn writing_an_older_file_migrates_it_first() {
        let folder = Folder::with_format_1().await;
        folder.set(TWO, "9").await.unwrap();
        let database = folder.database(TWO);
        assert_eq!(value_of_a(&database).await, "9");
        let again = database.migrate().await.unwrap();
        assert_eq!(again, MigrationResult { from: Some(2), to: 2, backup: None });
    }

    #[tokio::test]
    async fn an_existing_backup_is_kept() {
        let folder = Folder::with_format_1().await;
        let backup = folder.at("tidegate.db.format1.bak");
        fs::write(&backup, "an older backup").unwrap();
        fs::write(folder.at("tidegate.db.format1.bak.new"), "left from a crash").unwrap();
        let migrated = folder.database(TWO).migrate().await.unwrap();
        let second = folder.at("tidegate.db.format1.2.bak");
        assert_eq!(migrated.backup.as_ref(), Some(&second));
        assert_eq!(fs::read_to_string(backup).unwrap(), "an older backup");
        assert_eq!(value_of_a(&Sqlite::new(second, ONE)).await, "1");
        assert!(!folder.at("tidegate.db.format1.bak.new").exists());
    }

    #[tokio::test]
    async fn a_failed_migration_changes_nothing() {
        let folder = Folder::with_format_1().await;
        assert!(folder.database(BROKEN).read().await.is_err());
        assert_eq!(value_of_a(&folder.database(ONE)).await, "1");
    }

    #[tokio::test]
    async fn concurrent_migrations_run_once() {
        let folder = Folder::with_format_1().await;
        let (one, other) = (folder.database(TWO), folder.database(TWO));
        let (one, other) = tokio::join!(one.migrate(), other.migrate());
        let backups = [one.unwrap().backup, other.unwrap().backup];
        assert_eq!(backups.iter().flatten().count(), 1, "{backups:?}");
    }
}
