//! Atomic replacement of a file: after a crash, either the old or the new file is in place.
//!
//! The new file is written next to the old one under a temporary name, synced, and then renamed. It
//! is readable only by its owner, since it contains the secret of the hash.
//!
//! The temporary name contains the process id, so that two processes on the same path, which is a
//! misconfiguration, replace each other's files but never write into them. Processes in different
//! containers may have the same id and are not distinguished. Temporary files left behind by killed
//! processes are removed by the next save.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::SnapshotError;

/// Separates the file name from the process id in a temporary name.
const INFIX: &str = ".tmp.";

/// Only one file is written at a time in this process: two saves to one path would use the same
/// temporary file.
static WRITING: Mutex<()> = Mutex::new(());

/// Replaces a file with what `write` writes, or leaves it unchanged. If only syncing the directory
/// fails, that is an error too, but the new file is already in place.
pub(super) fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    let _guard = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    remove_leftovers(path);
    let temporary = temporary_path(path, std::process::id());
    let written = write_whole(&temporary, write).and_then(|written| {
        fs::rename(&temporary, path)?;
        sync_directory(path)?;
        Ok(written)
    });
    if written.is_err() {
        // Best effort: the next attempt removes it otherwise.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Opens a file for reading. Anything but a regular file, such as a pipe, is not opened.
pub(super) fn open(path: &Path) -> Result<File, SnapshotError> {
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SnapshotError::NotFound,
        _ => error.into(),
    })?;
    if found.is_file() { Ok(File::open(path)?) } else { Err(SnapshotError::NotAFile) }
}

fn write_whole<T>(
    temporary: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    let mut file = BufWriter::new(create(temporary)?);
    let written = write(&mut file)?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(written)
}

/// Creates a file readable only by its owner. A leftover of the same name is removed and not
/// reused: it may have other permissions, or be a link to another file.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the temporary name of a file: `FILE.tmp.PID`.
fn temporary_path(path: &Path, process: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!("{INFIX}{process}"));
    name.into()
}

/// Removes temporary files of processes that no longer exist. Best effort: a leftover only takes up
/// space.
fn remove_leftovers(path: &Path) {
    // Without `/proc`, it is unknown which processes are alive.
    let alive = Path::new("/proc");
    if !alive.join("self").exists() {
        return;
    }
    let (Some(name), Ok(found)) = (path.file_name(), fs::read_dir(directory_of(path))) else {
        return;
    };
    let name = name.as_encoded_bytes();
    for found in found.flatten() {
        let found = found.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name);
        let process = rest.and_then(|rest| rest.strip_prefix(INFIX.as_bytes()));
        let process = process.and_then(|process| std::str::from_utf8(process).ok()?.parse().ok());
        let Some(process) = process else { continue };
        let leftover = temporary_path(path, process);
        // The same number can be written in several ways, such as `0123`; only the canonical one is
        // ours.
        if leftover.file_name() == Some(&found) && !alive.join(process.to_string()).exists() {
            let _ = fs::remove_file(leftover);
        }
    }
}

/// Returns the directory of a file.
fn directory_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Makes the rename durable.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// On other systems, a directory cannot be opened as a file; the system writes its entries itself.
#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
