//! Builds the program so that its bytes depend neither on the folder nor on the time.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;

/// The package of the program.
pub(super) const PACKAGE: &str = "tidegate-cli";

/// The profile for packages, if the manifest defines it.
const PROFILE: &str = "dist";

/// Builds the program from the sources in a folder, and writes it stripped to `to`.
pub(super) fn build(target: &Path, sources: &Path, to: &Path) -> Result<()> {
    let profile = profile(&fs::read_to_string(sources.join("Cargo.toml"))?)?;
    let mut command = process::cargo(["build", "--locked", "--package", PACKAGE]);
    command.args(["--profile", profile]).current_dir(sources).env("CARGO_TARGET_DIR", target);
    let cargo_home = cargo_home()?;
    let prefixes =
        [(target, "/target"), (sources, "/tidegate"), (Path::new(&cargo_home), "/cargo")];
    for (from, to) in prefixes {
        let from = from.display();
        process::add_rust_flags(&mut command, &format!("--remap-path-prefix={from}={to}"));
    }
    // The same for SQLite, the allocator and the cryptography, which are written in C.
    let flags = prefixes.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    command.env("CFLAGS", flags.join(" "));
    process::run(command)?;
    strip(&target.join(profile).join("tidegate"), to)
}

/// Builds the program again from a copy of the sources elsewhere, and compares it with the first.
pub(super) fn compare(first: &Path) -> Result<()> {
    let home = project::target_folder("dist-second")?;
    let sources = home.join("sources");
    super::remove(&sources)?;
    copy_sources(&sources)?;
    let second = home.join("tidegate");
    build(&home.join("target"), &sources, &second)?;
    if fs::read(first)? != fs::read(&second)? {
        bail!(
            "the program cannot be reproduced: {} and {} differ; compare them with diffoscope",
            first.display(),
            second.display()
        );
    }
    println!("both builds gave the same bytes");
    Ok(())
}

/// Copies the files that git knows or would add, or all but the target folder without git.
fn copy_sources(to: &Path) -> Result<()> {
    let files = match project::is_clone() {
        true => process::read(process::git(["ls-files", "-co", "--exclude-standard"]))?,
        false => bail!("comparing builds needs a git clone; use --once in a source archive"),
    };
    for file in files.lines() {
        let (from, to) = (project::root().join(file), to.join(file));
        // A deleted file is still listed.
        if !from.is_file() {
            continue;
        }
        let parent = to.parent().context("a path without a folder")?;
        fs::create_dir_all(parent)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// Copies a program without its symbols.
pub(super) fn strip(program: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("strip");
    command.arg("-o").arg(to).arg(program);
    process::run(command).context("cannot strip the program; strip is in the package binutils")
}

/// The profile to build with.
fn profile(manifest: &str) -> Result<&'static str> {
    let manifest: toml::Table = toml::from_str(manifest).context("the manifest is invalid")?;
    let has_profile = manifest.get("profile").is_some_and(|all| all.get(PROFILE).is_some());
    Ok(if has_profile { PROFILE } else { "release" })
}

fn cargo_home() -> Result<String> {
    let metadata = project::metadata_with_dependencies()?;
    let sources = metadata.packages.iter().filter(|package| package.source.is_some());
    let manifest = sources.map(|package| package.manifest_path.as_str()).next();
    let home = manifest.and_then(|path| path.split_once("/registry/"));
    Ok(home.context("no dependency is in a registry")?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_for_packages_is_used_if_there_is_one() {
        assert_eq!(profile("[profile.dist]\ninherits = \"release\"").unwrap(), "dist");
        assert_eq!(profile("[profile.release]\nlto = true").unwrap(), "release");
        assert_eq!(profile("").unwrap(), "release");
    }
}
