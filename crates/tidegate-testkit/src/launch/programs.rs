//! Where the programs of the servers are.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Flavor;

/// The program of a flavor.
///
/// # Panics
/// When it is not installed.
pub(super) fn server(flavor: Flavor) -> PathBuf {
    let found = match flavor {
        Flavor::Redis => chosen("TIDEGATE_REDIS_SERVER").or_else(|| on_path("redis-server")),
        Flavor::Valkey => chosen("TIDEGATE_VALKEY_SERVER")
            .or_else(|| on_path("valkey-server"))
            .or_else(|| among_tools("valkey/valkey-server")),
    };
    found.unwrap_or_else(|| {
        panic!(
            "{flavor} is not installed, and tests need the real one: run `cargo xtask tools`, \
             which installs what they need (`cargo xtask test` does so too)"
        )
    })
}

/// A program that the environment names. It is not looked for elsewhere if it is not there.
fn chosen(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What `cargo xtask tools` has unpacked. It does so below the workspace, wherever else cargo may
/// have been told to build.
fn among_tools(name: &str) -> Option<PathBuf> {
    // Cargo tells the package whose tests run. What was true when this was built may be another
    // checkout: several may share one folder for builds.
    let told = env::var_os("CARGO_MANIFEST_DIR");
    let package = told.as_deref().unwrap_or(OsStr::new(env!("CARGO_MANIFEST_DIR")));
    let tools = Path::new(package).ancestors().map(|folder| folder.join("target/tools"));
    tools.map(|tools| tools.join(name)).find(|path| path.is_file())
}
