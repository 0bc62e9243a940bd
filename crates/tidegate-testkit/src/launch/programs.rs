//! Finds the programs that tests start.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::Flavor;

/// The server program of a flavor.
///
/// # Panics
/// If it is not installed.
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
/// If it is not installed.
pub(super) fn postgres() -> PathBuf {
    let found = from_env("TIDEGATE_POSTGRES_BIN").or_else(debian_postgres).or_else(|| {
        // Some systems put links to the programs on the path.
        let server = on_path("postgres")?.canonicalize().ok()?;
        server.parent().map(Path::to_owned)
    });
    found.unwrap_or_else(|| missing("PostgreSQL"))
}

/// The folder of the newest version that Debian has installed.
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

/// The program that checks metrics as Prometheus reads them.
///
/// # Panics
/// If it is not installed.
pub(super) fn promtool() -> PathBuf {
    let found = from_env("TIDEGATE_PROMTOOL")
        .or_else(|| on_path("promtool"))
        .or_else(|| in_tools_folder("prometheus/promtool"));
    found.unwrap_or_else(|| missing("promtool"))
}

/// The library that gives a process another wall clock.
///
/// # Panics
/// If it is not installed.
pub(super) fn faketime() -> PathBuf {
    let found =
        from_env("TIDEGATE_FAKETIME").or_else(|| in_tools_folder("faketime/libfaketimeMT.so.1"));
    found.unwrap_or_else(|| missing("libfaketime"))
}

/// The interpreter of the virtual environment with the official client libraries. The interpreter
/// of the system lacks them and is not considered.
///
/// # Panics
/// If the environment does not exist.
pub(super) fn python() -> PathBuf {
    let found = from_env("TIDEGATE_PYTHON").or_else(|| in_tools_folder("python/bin/python3"));
    found.unwrap_or_else(|| missing("Python with the client libraries of providers"))
}

/// The Workers runtime of this platform.
///
/// # Panics
/// If it is not installed.
pub(super) fn workerd() -> PathBuf {
    let packages = "npm/node_modules/@cloudflare";
    let found = from_env("TIDEGATE_WORKERD").or_else(|| {
        let mut platforms = ["64", "arm64"].into_iter();
        platforms.find_map(|name| {
            in_tools_folder(&format!("{packages}/workerd-linux-{name}/bin/workerd"))
        })
    });
    found.unwrap_or_else(|| missing("workerd"))
}

/// The folder with the bundled Worker.
///
/// # Panics
/// If the Worker is not bundled.
pub(super) fn worker_bundle() -> PathBuf {
    let module = in_tools_folder("../worker/index.js");
    let folder = module.as_deref().and_then(Path::parent).map(Path::to_owned);
    folder.unwrap_or_else(|| {
        panic!(
            "the Worker is not bundled; run `cargo xtask worker` (`cargo xtask test` does so too)"
        )
    })
}

fn missing(program: impl fmt::Display) -> ! {
    panic!(
        "{program} is not installed; run `cargo xtask tools`, which \
         installs what the tests need (`cargo xtask test` does so too)"
    )
}

/// The path in an environment variable. It overrides the search, even if it does not exist.
fn from_env(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A file that `cargo xtask tools` has unpacked. It does so below the workspace, even if cargo
/// builds in another folder.
fn in_tools_folder(name: &str) -> Option<PathBuf> {
    // The variable at run time names the package whose tests run. The one at compile time may name
    // another checkout, because several may share a target folder.
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR");
    let package = manifest_dir.as_deref().unwrap_or(OsStr::new(env!("CARGO_MANIFEST_DIR")));
    let tools = Path::new(package).ancestors().map(|folder| folder.join("target/tools"));
    tools.map(|tools| tools.join(name)).find(|path| path.is_file())
}
