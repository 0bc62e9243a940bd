//! Where the project is and what cargo knows about it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// The folder of the workspace.
///
/// Cargo tells it when it runs a task. What was true when the task was built may be another
/// checkout: several may share one folder for builds, and then they share the program.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let at_run_time = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest_dir = at_run_time.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        manifest_dir.parent().map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
    })
}

/// Writes a generated file at a path from the root, and says how long it is.
pub(crate) fn write(file: &str, text: &str) -> Result<()> {
    let path = root().join(file);
    let folder = path.parent().with_context(|| format!("{file} has no folder"))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
    println!("{file}: {} bytes", text.len());
    Ok(())
}

/// Whether this is a clone, as against the files of a source archive.
pub(crate) fn is_clone() -> bool {
    root().join(".git").exists()
}

/// What cargo knows about the members of the workspace, without looking at dependencies.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).no_deps();
    command.exec().context("cargo metadata failed; is a manifest broken?")
}

/// What cargo knows about the members and everything they depend on, on any platform.
pub(crate) fn metadata_with_dependencies() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).other_options(vec!["--all-features".to_owned()]);
    command.exec().context("cargo metadata failed; is a manifest broken?")
}

/// A folder for builds that must not disturb the usual one, such as those with other flags.
pub(crate) fn target_folder(name: &str) -> Result<PathBuf> {
    Ok(metadata()?.target_directory.join(name).into_std_path_buf())
}
