//! A file that is either the old one or the new one, whenever the machine stops.
//!
//! The new one is written beside the old one under another name, brought to the disk, and then
//! given the name. The file is readable by its owner alone: it holds the secret of the hash.
//!
//! The other name has the number of the process in it, so that two processes on one path, which is
//! one too many, replace each other's files but never write into them. Containers may have the
//! same number, and are not told apart. What a process that was killed has left is removed by the
//! next one that saves.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::error::SnapshotError;

/// Between the name of a file and the number of the process that is writing it.
const INFIX: &str = ".tmp.";

/// One file at a time is written in this process: two on one path would write into each other.
static WRITING: Mutex<()> = Mutex::new(());

/// Replaces a file by what `write` writes, or leaves it as it is. If only the folder cannot be
/// brought to the disk, that is an error too, but the new file has its name already.
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
        // Best effort: the next attempt removes it all the same.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A file to read. What is no file, such as a pipe, is not opened.
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

/// A new file, for the owner alone. What an earlier process left under the name is removed rather
/// than written into: it may have other rights, or be a link to somewhere else.
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

/// The name of a file until it is whole: `FILE.tmp.PROCESS`.
fn temporary_path(path: &Path, process: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!("{INFIX}{process}"));
    name.into()
}

/// Removes what processes that are no more have left beside a file. Best effort: what cannot be
/// removed does no harm but for its size.
fn remove_leftovers(path: &Path) {
    // Without it nobody knows who is alive.
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
        // A number may be written in several ways; only one of them is ours.
        if leftover.file_name() == Some(&found) && !alive.join(process.to_string()).exists() {
            let _ = fs::remove_file(leftover);
        }
    }
}

/// Where a file is.
fn directory_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Brings the new name to the disk as well.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Elsewhere a folder cannot be opened as a file; the system writes its names by itself.
#[cfg(not(unix))]
fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}
