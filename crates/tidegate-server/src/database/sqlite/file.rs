//! The file of an SQLite database: created by the first write, opened with as much access as
//! possible.
//!
//! A writable file is opened in WAL mode, with every commit synced to disk before it is reported. A
//! read-only file is read as it is. The connection is kept until another file replaces the one that
//! was opened.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::super::record::MigrationResult;
use super::super::{DatabaseError, Schema};
use super::migrate::{self, Backup};
use super::{map_error, tables};

/// How long to wait for another process that has locked the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The file, and the connection to it if open.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    schema: Schema,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    connection: Connection,
    identity: Identity,
    access: Access,
}

/// Access to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Full,
    Read,
    /// Opened as immutable, which is only safe for a moment.
    Immutable,
}

/// Identifies a file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

impl File {
    pub(super) fn new(path: PathBuf, schema: Schema) -> Self {
        Self { path, schema, open: None }
    }

    /// Returns a connection for reading, after migration. `None` if the file is missing or empty.
    pub(super) fn for_reading(
        &mut self,
    ) -> Result<Option<(&mut Connection, Schema)>, DatabaseError> {
        let schema = self.schema;
        let Some(identity) = self.identity()? else {
            self.open = None;
            return Ok(None);
        };
        let open = self.open_connection(identity)?;
        let found = tables::format(&open.connection)?;
        if found.is_none() {
            return Ok(None);
        }
        if open.access == Access::Full && schema.require(found).is_err() {
            self.migrate_open()?;
        }
        Ok(self.open.as_mut().map(|open| (&mut open.connection, schema)))
    }

    /// Returns a connection for writing. Creates the file if it is missing.
    pub(super) fn for_writing(&mut self) -> Result<(&mut Connection, Schema), DatabaseError> {
        let schema = self.schema;
        self.create()?;
        let open = self.writable()?;
        if schema.require(tables::format(&open.connection)?).is_err() {
            self.migrate_open()?;
        }
        Ok((&mut self.writable()?.connection, schema))
    }

    /// Migrates the file to the current format, or creates it.
    pub(super) fn migrate(&mut self) -> Result<MigrationResult, DatabaseError> {
        self.create()?;
        self.writable()?;
        self.migrate_open()
    }

    /// Closes a connection that must not be reused. Call it after every use.
    pub(super) fn after_use(&mut self, error: Option<&DatabaseError>) {
        let broken =
            matches!(error, Some(DatabaseError::Unavailable(_) | DatabaseError::Damaged(_)));
        self.open.take_if(|open| broken || open.access != Access::Full);
    }

    fn migrate_open(&mut self) -> Result<MigrationResult, DatabaseError> {
        let backup = Backup::of(&self.path);
        let Some(open) = self.open.as_mut() else { return Err(DatabaseError::ReadOnly) };
        migrate::run(&mut open.connection, self.schema, &backup)
    }

    fn writable(&mut self) -> Result<&mut OpenFile, DatabaseError> {
        let gone = || DatabaseError::unavailable(io::Error::from(ErrorKind::NotFound));
        let identity = self.identity()?.ok_or_else(gone)?;
        match self.open_connection(identity)? {
            open if open.access == Access::Full => Ok(open),
            _ => Err(DatabaseError::ReadOnly),
        }
    }

    fn open_connection(&mut self, identity: Identity) -> Result<&mut OpenFile, DatabaseError> {
        self.open.take_if(|open| open.identity != identity);
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let (connection, access) = connect(&self.path)?;
                OpenFile { connection, identity, access }
            }
        };
        Ok(self.open.insert(open))
    }

    fn identity(&self) -> Result<Option<Identity>, DatabaseError> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(Some(Identity::of(&metadata))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DatabaseError::unavailable(error)),
        }
    }

    /// Creates the file and its parent directories, accessible to the owner only.
    fn create(&self) -> Result<(), DatabaseError> {
        if self.identity()?.is_some() {
            return Ok(());
        }
        let created = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => create_directories(directory),
            _ => Ok(()),
        };
        match created.and_then(|()| private_file().create_new(true).open(&self.path)) {
            Ok(_) => Ok(()),
            // Another process created it first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) if is_read_only(&error) => Err(DatabaseError::ReadOnly),
            Err(error) => Err(DatabaseError::unavailable(error)),
        }
    }
}

/// Opens an existing file with as much access as possible.
fn connect(path: &Path) -> Result<(Connection, Access), DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match Connection::open_with_flags(path, flags).and_then(configure) {
        Ok(connection) => connection,
        Err(error) if lacks_shared_files(&error) => {
            return Ok((open_immutable(path)?, Access::Immutable));
        }
        Err(error) => return Err(map_error(error)),
    };
    if connection.is_readonly("main").map_err(map_error)? {
        return Ok((connection, Access::Read));
    }
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
    match mode {
        Ok(()) => {}
        // Another process is using the file and decides about its journal. Every journal mode is
        // durable.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
        // The file is writable but its directory is not, so a journal cannot be created.
        Err(error) if lacks_shared_files(&error) => return Ok((connection, Access::Read)),
        Err(error) => return Err(map_error(error)),
    }
    connection.pragma_update(None, "synchronous", "full").map_err(map_error)?;
    Ok((connection, Access::Full))
}

/// Applies the common settings, and checks that the file can be read.
fn configure(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Returns whether the shared files of WAL mode cannot be created next to the database.
fn lacks_shared_files(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
}

/// Opens a file on a read-only file system, where readers need no locks.
fn open_immutable(path: &Path) -> Result<Connection, DatabaseError> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        // An immutable connection ignores the log, which contains the latest changes.
        return Err(DatabaseError::unavailable(io::Error::other(
            "its latest changes are in its -wal file, which needs a writable directory",
        )));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(immutable_uri(path), flags).and_then(configure).map_err(map_error)
}

/// Returns the SQLite URI of an immutable file.
fn immutable_uri(path: &Path) -> String {
    let is_unescaped = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        if is_unescaped(*byte) {
            uri.push(char::from(*byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri.push_str("?immutable=1");
    uri
}

/// Returns whether the error means that writing is not permitted.
pub(super) fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

#[cfg(unix)]
pub(super) fn private_file() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

#[cfg(not(unix))]
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

#[cfg(unix)]
fn create_directories(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn create_directories(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(directory)
}

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self(metadata.dev(), metadata.ino())
    }

    /// On other systems an open file cannot be replaced.
    #[cfg(not(unix))]
    fn of(_metadata: &fs::Metadata) -> Self {
        Self(0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_in_uris_are_escaped() {
        assert_eq!(
            immutable_uri(Path::new("/a b/c?d#e%.db")),
            "file:/a%20b/c%3Fd%23e%25.db?immutable=1"
        );
    }
}
