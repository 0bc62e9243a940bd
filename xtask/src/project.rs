//! The location of the project, and its cargo metadata.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// The root folder of the workspace.
///
/// Cargo sets the variable when it runs a task. The value at compile time may belong to another
/// checkout: several may share a target folder, and thus this program.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let at_run_time = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest_dir = at_run_time.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        manifest_dir.parent().map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
    })
}

/// Writes a generated file at a path relative to the root, and prints its size.
pub(crate) fn write(file: &str, text: &str) -> Result<()> {
    let path = root().join(file);
    let folder = path.parent().with_context(|| format!("{file} has no folder"))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(&path, text).with_context(|| format!("cannot write {file}"))?;
    println!("{file}: {} bytes", text.len());
    Ok(())
}

/// Whether this is a git clone and not a source archive.
pub(crate) fn is_clone() -> bool {
    root().join(".git").exists()
}

/// Metadata of the workspace members, without dependencies.
pub(crate) fn metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).no_deps();
    command.exec().context("cargo metadata failed; is a manifest invalid?")
}

/// Metadata of the members and all of their dependencies on any platform.
pub(crate) fn metadata_with_dependencies() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(root()).other_options(vec!["--all-features".to_owned()]);
    command.exec().context("cargo metadata failed; is a manifest invalid?")
}

/// Metadata of the crates that run as WebAssembly, which have their own workspace, and of all of
/// their dependencies.
pub(crate) fn wasm_metadata() -> Result<Metadata> {
    let mut command = MetadataCommand::new();
    command.current_dir(root().join("wasm"));
    command.exec().context("cargo metadata failed; is a manifest below wasm invalid?")
}

/// A folder below the target folder, for builds with other flags.
pub(crate) fn target_folder(name: &str) -> Result<PathBuf> {
    Ok(metadata()?.target_directory.join(name).into_std_path_buf())
}
