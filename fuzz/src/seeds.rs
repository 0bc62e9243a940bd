//! The committed seeds: a folder for each target, a file for each seed.

use std::fs;
use std::path::PathBuf;

/// The folder of a target's seeds.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    // Several checkouts may share a folder of builds, so the one that cargo names counts.
    let told = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = told.filter(|path| path.join("seeds").is_dir());
    here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("seeds").join(target)
}

/// All seeds of a target, in the order of their names.
///
/// # Panics
/// If there are none: a target without seeds is not fuzzed, but fed noise.
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
