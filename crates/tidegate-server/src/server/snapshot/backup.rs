//! Renames or copies a file to a free name, never overwriting another file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::super::StartError;

/// Maximum number of files kept with one suffix, so that they cannot fill the disk.
const MAX_BACKUPS: u32 = 100;

/// Renames a file to the first free name with this suffix, and returns that name.
pub(super) fn rename(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    back_up(path, suffix, |backup| fs::rename(path, backup))
}

/// Copies a file to the first free name with this suffix, and returns that name.
pub(super) fn copy(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    // `fs::copy` keeps the permissions, so the copy is as private as the original.
    back_up(path, suffix, |backup| fs::copy(path, backup).map(drop))
}

fn back_up(
    path: &Path,
    suffix: &str,
    operation: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, StartError> {
    let error = |backup: &Path, why| {
        let (path, backup) = (path.display().to_string(), backup.display().to_string());
        StartError::Backup { path, backup, why }
    };
    let Some(backup) = names(path, suffix).find(|name| is_free(name)) else {
        let why =
            io::Error::new(io::ErrorKind::AlreadyExists, "too many backup files; remove some");
        return Err(error(&with_suffix(path, suffix), why));
    };
    operation(&backup).map_err(|why| error(&backup, why))?;
    Ok(backup)
}

/// Yields `FILE.suffix`, `FILE.suffix.1` and so on.
fn names(path: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let first = with_suffix(path, suffix);
    let others = first.clone();
    std::iter::once(first)
        .chain((1..MAX_BACKUPS).map(move |number| with_suffix(&others, &format!(".{number}"))))
}

/// Returns whether nothing has this name, not even a dangling symbolic link.
fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_reused_and_their_number_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        for number in 0..MAX_BACKUPS {
            fs::write(&path, number.to_string()).unwrap();
            let backup = rename(&path, ".damaged").unwrap();
            assert_eq!(fs::read_to_string(backup).unwrap(), number.to_string());
        }
        assert!(folder.path().join("buckets.damaged.99").exists());
        fs::write(&path, "one too many").unwrap();
        let error = rename(&path, ".damaged").unwrap_err().to_string();
        assert!(error.starts_with("store.snapshot: "), "{error}");
        assert!(error.ends_with("buckets.damaged: too many backup files; remove some"), "{error}");
        assert!(path.exists());
    }
}
