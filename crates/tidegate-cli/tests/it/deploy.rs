//! The files in `deploy/`: units, container files, dashboard and alerts, checked by the tools that
//! read them and against the program.

mod container;
mod expressions;
mod metrics;
mod systemd;

use std::path::{Path, PathBuf};

/// Returns the path of a file, relative to the root of the repository.
pub(crate) fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the text of a file, relative to the root of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap()
}
