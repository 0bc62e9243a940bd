//! Renames or copies a file to a free name, never overwriting another file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::super::StartError;

/// Maximum number of files kept with one suffix, so that they cannot fill the disk.
const MOST: u32 = 100;

/// Renames a file to the first free name with this suffix, and returns that name.
pub(super) fn moved(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    keep(path, suffix, |aside| fs::rename(path, aside))
}

/// Copies a file to the first free name with this suffix, and returns that name.
pub(super) fn copied(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    // `fs::copy` keeps the permissions, so the copy is as private as the original.
    keep(path, suffix, |aside| fs::copy(path, aside).map(drop))
}

fn keep(
    path: &Path,
    suffix: &str,
    how: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, StartError> {
    let refused = |aside: &Path, why| {
        let (path, aside) = (path.display().to_string(), aside.display().to_string());
        StartError::Aside { path, aside, why }
    };
    let Some(aside) = names(path, suffix).find(|name| is_free(name)) else {
        let why = io::Error::new(io::ErrorKind::AlreadyExists, "too many kept files, remove some");
        return Err(refused(&with_suffix(path, suffix), why));
    };
    how(&aside).map_err(|why| refused(&aside, why))?;
    Ok(aside)
}

/// Yields `FILE.suffix`, `FILE.suffix.1` and so on.
fn names(path: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let first = with_suffix(path, suffix);
    let others = first.clone();
    std::iter::once(first)
        .chain((1..MOST).map(move |number| with_suffix(&others, &format!(".{number}"))))
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
    fn no_name_is_taken_twice_and_there_is_an_end_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("buckets");
        for number in 0..MOST {
            fs::write(&path, number.to_string()).unwrap();
            let aside = moved(&path, ".damaged").unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), number.to_string());
        }
        assert!(folder.path().join("buckets.damaged.99").exists());
        fs::write(&path, "one too many").unwrap();
        let error = moved(&path, ".damaged").unwrap_err().to_string();
        assert!(error.starts_with("store.snapshot: "), "{error}");
        assert!(error.ends_with("buckets.damaged: too many kept files, remove some"), "{error}");
        assert!(path.exists());
    }
}
