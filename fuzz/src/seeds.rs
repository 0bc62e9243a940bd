//! The committed seeds: one folder per target, one file per seed.

use std::fs;
use std::path::PathBuf;

/// The folder of a target's seeds.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    // Several checkouts may share a target folder, so the variable at run time takes precedence.
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest_dir = manifest_dir.filter(|path| path.join("seeds").is_dir());
    manifest_dir.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("seeds").join(target)
}

/// All seeds of a target, in the order of their names.
///
/// # Panics
/// If there are none: without seeds, inputs would only be noise.
#[must_use]
pub fn read(target: &str) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {}", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}
