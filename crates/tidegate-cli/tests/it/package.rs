//! The packages of `cargo xtask dist`, made around the built program: the archive is unpacked in an
//! empty folder and used from there.

mod archive;
mod debian;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::deploy::root;
use crate::program::program;

/// The packages, made once.
struct Packages {
    folder: TempDir,
}

impl Packages {
    fn get() -> &'static Self {
        static PACKAGES: OnceLock<Packages> = OnceLock::new();
        PACKAGES.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            make(folder.path());
            Packages { folder }
        })
    }

    /// Returns the path of the package with this ending.
    fn ending(&self, ending: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        let found = paths.iter().find(|path| path.to_string_lossy().ends_with(ending));
        found.unwrap_or_else(|| panic!("no {ending} in {paths:?}")).clone()
    }
}

/// Makes both packages around the built program.
fn make(out: &Path) {
    // `cargo xtask test` runs this program; it is beside the one under test.
    let tasks = Path::new(env!("CARGO_BIN_EXE_tidegate")).with_file_name("xtask");
    assert!(tasks.exists(), "{} is missing; run: cargo build -p xtask", tasks.display());
    let mut command = Command::new(tasks);
    command.args(["dist", "--program"]).arg(program()).arg("--out").arg(out);
    // Cargo sets it when it runs a task.
    command.env("CARGO_MANIFEST_DIR", root("xtask"));
    run(&mut command);
}

/// Runs a command and returns its standard output. Panics if it fails.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}{stderr}");
    stdout
}

/// Cargo's checks before the build of `cargo install`, without the build.
#[test]
fn the_program_can_be_installed_from_source() {
    let to = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(["install", "--locked", "--offline", "--path"]).arg(root("crates/tidegate-cli"));
    // Stable cargo has the check as an unstable option.
    command.args(["--dry-run", "-Zunstable-options", "--root"]).arg(to.path());
    let output = command.env("RUSTC_BOOTSTRAP", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("bin/tidegate"), "{text}");
}

/// Two runs give the same bytes.
#[test]
fn packages_are_reproducible() {
    let (first, second) = (Packages::get(), tempfile::tempdir().unwrap());
    make(second.path());
    let second = Packages { folder: second };
    for ending in [".tar.gz", ".deb", "SHA256SUMS"] {
        let [one, other] = [first, &second].map(|it| std::fs::read(it.ending(ending)).unwrap());
        assert!(one == other, "{ending} differs");
    }
    run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&first.folder));
}
