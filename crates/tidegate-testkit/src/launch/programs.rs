//! Where the programs are that tests start.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::Flavor;

/// The program of a flavor.
///
/// # Panics
/// When it is not installed.
pub(super) fn server(flavor: Flavor) -> PathBuf {
    let found = match flavor {
        Flavor::Redis => from_env("TIDEGATE_REDIS_SERVER").or_else(|| on_path("redis-server")),
        Flavor::Valkey => from_env("TIDEGATE_VALKEY_SERVER")
            .or_else(|| on_path("valkey-server"))
            .or_else(|| in_tools_folder("valkey/valkey-server")),
    };
    found.unwrap_or_else(|| missing(flavor))
}

/// The folder with the programs of PostgreSQL.
///
/// # Panics
/// When it is not installed.
pub(super) fn postgres() -> PathBuf {
    let found = from_env("TIDEGATE_POSTGRES_BIN").or_else(debian_postgres).or_else(|| {
        // Some systems put the programs on the path, as links to where they are.
        let server = on_path("postgres")?.canonicalize().ok()?;
        server.parent().map(Path::to_owned)
    });
    found.unwrap_or_else(|| missing("PostgreSQL"))
}

/// Where Debian keeps the newest version of those that are installed.
fn debian_postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let numbered = |folder: PathBuf| {
        let number: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        Some((number, folder.join("bin")))
    };
    let versions = versions.filter_map(|entry| numbered(entry.ok()?.path()));
    let newest = versions.filter(|(_, folder)| folder.join("initdb").is_file()).max();
    newest.map(|(_, folder)| folder)
}

/// The program that reads metrics as Prometheus does.
///
/// # Panics
/// When it is not installed.
pub(super) fn promtool() -> PathBuf {
    let found = from_env("TIDEGATE_PROMTOOL")
        .or_else(|| on_path("promtool"))
        .or_else(|| in_tools_folder("prometheus/promtool"));
    found.unwrap_or_else(|| missing("promtool"))
}

/// The interpreter of the environment that has the official clients. That of the system has them
/// not, and is not looked for.
///
/// # Panics
/// When the environment has not been made.
pub(super) fn python() -> PathBuf {
    let found = from_env("TIDEGATE_PYTHON").or_else(|| in_tools_folder("python/bin/python3"));
    found.unwrap_or_else(|| missing("Python with the clients of providers"))
}

fn missing(program: impl fmt::Display) -> ! {
    panic!(
        "{program} is not installed, and tests need the real one: run `cargo xtask tools`, which \
         installs what they need (`cargo xtask test` does so too)"
    )
}

/// A program that the environment names. It is not looked for elsewhere if it is not there.
fn from_env(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What `cargo xtask tools` has unpacked. It does so below the workspace, wherever else cargo may
/// have been told to build.
fn in_tools_folder(name: &str) -> Option<PathBuf> {
    // Cargo tells the package whose tests run. What was true when this was built may be another
    // checkout: several may share one folder for builds.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR");
    let package = manifest_dir.as_deref().unwrap_or(OsStr::new(env!("CARGO_MANIFEST_DIR")));
    let tools = Path::new(package).ancestors().map(|folder| folder.join("target/tools"));
    tools.map(|tools| tools.join(name)).find(|path| path.is_file())
}
