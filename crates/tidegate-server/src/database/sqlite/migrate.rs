//! Migrates a file to the current format: makes a backup, then applies all migrations in one
//! transaction.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::backup::StepResult;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::super::DatabaseError;
use super::super::record::Migrated;
use super::super::schema::{Schema, Standing};
use super::file::{is_read_only, private_file};
use super::{meaning, tables};

/// Maximum number of backups of one format next to a file, so that they cannot fill the disk.
const MOST_COPIES: usize = 100;

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
) -> Result<Migrated, DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(meaning)?;
    let from = tables::format(&transaction)?;
    let to = schema.format();
    let Standing::Behind(steps) = schema.standing(from)? else {
        return Ok(Migrated { from, to, backup: None });
    };
    let backup = from.map(|format| backup.take(format)).transpose()?;
    for step in steps {
        transaction.execute_batch(step.sqlite).map_err(meaning)?;
    }
    transaction.execute("UPDATE tidegate_meta SET format = ?1", [to]).map_err(meaning)?;
    transaction.commit().map_err(meaning)?;
    if let Some(backup) = &backup {
        tracing::info!(from, to, backup = %backup.display(), "database migrated");
    }
    Ok(Migrated { from, to, backup })
}

impl Backup {
    pub(super) fn beside(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Copies the file; the caller's transaction keeps others from writing. The final name never
    /// holds a partial copy, and existing backups are not replaced.
    fn take(&self, format: u32) -> Result<PathBuf, DatabaseError> {
        let unfinished = self.named(&format!(".format{format}.bak.new"));
        let copied = self.copy(&unfinished);
        let named = copied.and_then(|()| self.put(&unfinished, format));
        if named.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        named
    }

    fn copy(&self, to: &Path) -> Result<(), DatabaseError> {
        // A partial copy of an earlier attempt is useless.
        match fs::remove_file(to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
            _ => {}
        }
        private_file().create_new(true).open(to).map_err(cannot)?;
        // The writing connection cannot be the source of a backup, but another one can.
        let readable = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let from = Connection::open_with_flags(&self.path, readable).map_err(meaning)?;
        let mut copy = Connection::open(to).map_err(meaning)?;
        let backup = rusqlite::backup::Backup::new(&from, &mut copy).map_err(meaning)?;
        if backup.step(-1).map_err(meaning)? != StepResult::Done {
            return Err(DatabaseError::unavailable(io::Error::from(io::ErrorKind::ResourceBusy)));
        }
        drop(backup);
        copy.close().map_err(|(_, error)| meaning(error))
    }

    fn put(&self, unfinished: &Path, format: u32) -> Result<PathBuf, DatabaseError> {
        let name = |copy: usize| match copy {
            1 => self.named(&format!(".format{format}.bak")),
            _ => self.named(&format!(".format{format}.{copy}.bak")),
        };
        let free = (1..=MOST_COPIES).map(name).find(|path| !path.exists());
        let most = || DatabaseError::TooMany { what: "backups of the database", most: MOST_COPIES };
        let path = free.ok_or_else(most)?;
        fs::rename(unfinished, &path).map_err(cannot)?;
        // Sync the directory before the original changes.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::File::open(folder.unwrap_or(Path::new("."))).map_err(cannot)?;
        folder.sync_all().map_err(cannot)?;
        Ok(path)
    }

    fn named(&self, ending: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    }
}

fn cannot(error: io::Error) -> DatabaseError {
    if is_read_only(&error) { DatabaseError::ReadOnly } else { DatabaseError::unavailable(error) }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::{Change, Note};
    use super::super::super::schema::Step;
    use super::super::Sqlite;
    use super::*;

    const FIRST: &str = include_str!("../schema/sqlite-1.sql");
    const ONE: Schema = Schema(&[Step { sqlite: FIRST, postgres: "" }]);
    const TWO: Schema = Schema(&[
        Step { sqlite: FIRST, postgres: "" },
        Step {
            sqlite: "ALTER TABLE tidegate_setting ADD COLUMN note TEXT; \
                     UPDATE tidegate_setting SET value = '7' WHERE key = 'a';",
            postgres: "",
        },
    ]);
    const BROKEN: Schema = Schema(&[
        Step { sqlite: FIRST, postgres: "" },
        Step { sqlite: "DELETE FROM tidegate_setting; SELECT no_such_column;", postgres: "" },
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
        async fn of_format_1() -> Self {
            let folder = Self::new();
            folder.set(ONE, "1").await.unwrap();
            folder
        }

        async fn set(&self, schema: Schema, value: &str) -> Result<(), DatabaseError> {
            let note = Note { door: "cli", who: None };
            let change = [Change::set("a", value)];
            self.database(schema).write(&change, &note, None).await.map(|_| ())
        }
    }

    async fn a_of(database: &Sqlite) -> String {
        database.read().await.unwrap().settings["a"].clone()
    }

    #[tokio::test]
    async fn an_older_file_is_copied_and_migrated_by_whoever_reads_it() {
        let folder = Folder::of_format_1().await;
        assert_eq!(a_of(&folder.database(TWO)).await, "7", "the step was taken");
        let old = folder.database(ONE).read().await;
        let new_format = DatabaseError::NewFormat { found: 2, known: 1 };
        assert_eq!(old.unwrap_err().to_string(), new_format.to_string());
        let copy = folder.at("tidegate.db.format1.bak");
        assert_eq!(a_of(&Sqlite::new(copy, ONE)).await, "1", "the copy is as it was before");
    }

    #[tokio::test]
    async fn an_older_file_is_migrated_before_it_is_written() {
        let folder = Folder::of_format_1().await;
        folder.set(TWO, "9").await.unwrap();
        let database = folder.database(TWO);
        assert_eq!(a_of(&database).await, "9");
        let again = database.migrate().await.unwrap();
        assert_eq!(again, Migrated { from: Some(2), to: 2, backup: None });
    }

    #[tokio::test]
    async fn a_copy_that_is_there_stays() {
        let folder = Folder::of_format_1().await;
        let copy = folder.at("tidegate.db.format1.bak");
        fs::write(&copy, "dear to somebody").unwrap();
        fs::write(folder.at("tidegate.db.format1.bak.new"), "left from a crash").unwrap();
        let migrated = folder.database(TWO).migrate().await.unwrap();
        let second = folder.at("tidegate.db.format1.2.bak");
        assert_eq!(migrated.backup.as_ref(), Some(&second));
        assert_eq!(fs::read_to_string(copy).unwrap(), "dear to somebody");
        assert_eq!(a_of(&Sqlite::new(second, ONE)).await, "1");
        assert!(!folder.at("tidegate.db.format1.bak.new").exists());
    }

    #[tokio::test]
    async fn a_step_that_fails_leaves_everything_as_it_was() {
        let folder = Folder::of_format_1().await;
        assert!(folder.database(BROKEN).read().await.is_err());
        assert_eq!(a_of(&folder.database(ONE)).await, "1");
    }

    #[tokio::test]
    async fn two_who_migrate_at_once_do_it_once() {
        let folder = Folder::of_format_1().await;
        let (one, other) = (folder.database(TWO), folder.database(TWO));
        let (one, other) = tokio::join!(one.migrate(), other.migrate());
        let copies = [one.unwrap().backup, other.unwrap().backup];
        assert_eq!(copies.iter().flatten().count(), 1, "{copies:?}");
    }
}
