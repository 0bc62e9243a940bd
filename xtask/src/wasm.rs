//! `cargo xtask wasm`: builds the WebAssembly modules that the Worker and the npm package contain.
//!
//! The built files are committed, so that users and most contributors need no compiler for this
//! target. The same compiler makes the same bytes in any folder: paths are remapped, locations of
//! panics left out, and symbols do not depend on the folder. `--check` runs clippy, builds again and
//! compares.
//!
//! Cargo hashes the absolute paths of crates outside the workspace into their symbols, which decide
//! the order of functions. So this program runs between cargo and the compiler, and gives our crates
//! their name and version instead of that hash.
//!
//! Debian updates its compiler, and another version makes other bytes. `wasm/BUILT_WITH` has the
//! version that built the committed files. If the installed one differs, `--check` only notes
//! different bytes: it then proves that the sources compile, and the tests of the Worker and the
//! package test the committed files. The next `cargo xtask wasm` records the new version.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::tools::{self, WasmToolchain};

const TARGET: &str = "wasm32-unknown-unknown";

/// The file with the version of the compiler.
const BUILT_WITH: &str = "wasm/BUILT_WITH";

/// Built modules and the committed files.
const MODULES: [(&str, &str); 2] = [
    ("tidegate_shard_wasm.wasm", "worker/src/shard.wasm"),
    ("tidegate_bucket_wasm.wasm", "clients/typescript/src/bucket.wasm"),
];

/// Flags of the compiler. A panic is a trap at once: the host can do nothing with a message, and
/// the code that formats one is a good part of a small module.
const FLAGS: [&str; 3] =
    ["-Zlocation-detail=none", "-Zunstable-options", "-Cpanic=immediate-abort"];

/// Set while this program runs in place of the compiler: the root of the project.
const AS_COMPILER: &str = "TIDEGATE_XTASK_WASM_ROOT";

/// Runs the compiler if cargo started this program in its place, with symbols that do not depend on
/// the folder. Cargo passes the path of the compiler as the first argument.
pub(crate) fn run_as_compiler() -> Option<ExitCode> {
    let root = env::var_os(AS_COMPILER)?;
    let mut arguments = env::args_os().skip(1);
    let mut command = Command::new(arguments.next()?);
    let package = |name| env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
    let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let is_ours = folder.is_some_and(|folder| folder.starts_with(root));
    for argument in arguments {
        if is_ours && argument.to_string_lossy().starts_with("metadata=") {
            let [name, version] = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION"].map(package);
            command.arg(format!("metadata={name}-{version}"));
        } else {
            command.arg(argument);
        }
    }
    let ran = command.status().is_ok_and(|status| status.success());
    Some(if ran { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the modules and writes the committed files.
pub(crate) fn write() -> Result<()> {
    let toolchain = tools::wasm()?;
    let built = build(&toolchain, &[])?;
    for (module, file) in MODULES {
        let bytes = read_built(&built, module)?;
        let path = project::root().join(file);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, &bytes).with_context(|| format!("cannot write {file}"))?;
        println!("{file}: {} bytes", bytes.len());
    }
    project::write(BUILT_WITH, &format!("{}\n", toolchain.version))
}

/// Builds the modules and compares them with the committed files.
pub(crate) fn check() -> Result<()> {
    // `cargo fmt --all` does not include another workspace.
    let mut format = process::cargo(["fmt", "--all", "--check", "--manifest-path"]);
    format.arg(project::root().join("wasm/Cargo.toml"));
    process::run(format)?;
    let toolchain = tools::wasm()?;
    lint(&toolchain)?;
    let built = build(&toolchain, &["--locked"])?;
    let recorded = fs::read_to_string(project::root().join(BUILT_WITH)).unwrap_or_default();
    let same_compiler = recorded.trim() == toolchain.version;
    for (module, file) in MODULES {
        let bytes = read_built(&built, module)?;
        let committed = fs::read(project::root().join(file)).unwrap_or_default();
        match (bytes == committed, same_compiler) {
            (true, _) => println!("{file}: {} bytes, up to date", bytes.len()),
            (false, true) => bail!("{file} is out of date; run: cargo xtask wasm"),
            (false, false) if committed.is_empty() => {
                bail!("{file} is missing; run: cargo xtask wasm")
            }
            (false, false) => println!(
                "note: {file} was built with {}, this is {}: the bytes cannot be compared",
                recorded.trim(),
                toolchain.version
            ),
        }
    }
    Ok(())
}

/// Runs clippy, which the linter of the developer's toolchain cannot do for this target.
fn lint(toolchain: &WasmToolchain) -> Result<()> {
    let target = project::target_folder("wasm-modules")?;
    let mut command = command(toolchain, toolchain.clippy, "clippy", &target);
    command.args(["--locked", "--", "--deny", "warnings"]).env("CARGO", toolchain.cargo);
    process::run(command).context("clippy rejects the crates in wasm/")
}

/// A command for all modules, without the options of a build.
fn command(toolchain: &WasmToolchain, program: &str, subcommand: &str, target: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([subcommand, "--workspace", "--release", "--target", TARGET, "--target-dir"]);
    command.arg(target).arg("-Zbuild-std=core,alloc");
    command.current_dir(project::root().join("wasm")).stdin(Stdio::null());
    // The task itself runs under another cargo, which has set these for its own compiler.
    for variable in ["LD_LIBRARY_PATH", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command.env("RUSTC", toolchain.rustc).env("RUSTC_BOOTSTRAP", "1");
    command
}

/// Builds all modules and returns the folder with them.
fn build(toolchain: &WasmToolchain, arguments: &[&str]) -> Result<PathBuf> {
    let target = project::target_folder("wasm-modules")?;
    let mut command = command(toolchain, toolchain.cargo, "build", &target);
    command.args(arguments);
    let wrapper = env::current_exe().context("this program has no path")?;
    command.env("RUSTC_WRAPPER", wrapper).env(AS_COMPILER, project::root());
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &toolchain.linker);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(toolchain)?);
    command.env("CARGO_INCREMENTAL", "0");
    process::run(command).context("cannot build WebAssembly")?;
    Ok(target.join(TARGET).join("release"))
}

/// The flags in cargo's encoding, in which paths may have spaces.
fn flags(toolchain: &WasmToolchain) -> Result<String> {
    let cargo_home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => env::home_dir().context("the user has no home folder")?.join(".cargo"),
    };
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = FLAGS.map(ToOwned::to_owned).to_vec();
    flags.push(remap(project::root(), "tidegate"));
    flags.push(remap(&cargo_home, "cargo"));
    flags.push(remap(&toolchain.source, "rust"));
    Ok(flags.join("\u{1f}"))
}

fn read_built(folder: &Path, module: &str) -> Result<Vec<u8>> {
    fs::read(folder.join(module)).with_context(|| format!("the build made no {module}"))
}
