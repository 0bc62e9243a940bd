//! A file that is kept under another name, and takes no name that another has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::super::StartError;

/// How many files are kept with one suffix. Whoever has so many has not looked for long, and the
/// disk has an end.
const MOST: u32 = 100;

/// Gives a file the first free name with this suffix; which one.
pub(super) fn moved(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    keep(path, suffix, |aside| fs::rename(path, aside))
}

/// Copies a file to the first free name with this suffix; which one.
pub(super) fn copied(path: &Path, suffix: &str) -> Result<PathBuf, StartError> {
    // The copy has the rights of the file, which are its owner's alone.
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
        let why = io::Error::new(io::ErrorKind::AlreadyExists, "too many are kept already");
        return Err(refused(&with_suffix(path, suffix), why));
    };
    how(&aside).map_err(|why| refused(&aside, why))?;
    Ok(aside)
}

/// `FILE.suffix`, `FILE.suffix.1` and so on.
fn names(path: &Path, suffix: &str) -> impl Iterator<Item = PathBuf> {
    let first = with_suffix(path, suffix);
    let others = first.clone();
    std::iter::once(first)
        .chain((1..MOST).map(move |number| with_suffix(&others, &format!(".{number}"))))
}

/// Whether nothing has this name, also no link to nowhere.
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
        assert!(error.ends_with("buckets.damaged: too many are kept already"), "{error}");
        assert!(path.exists());
    }
}
