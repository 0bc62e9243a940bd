//! `cargo xtask dist`: packages the program as an archive and a Debian package.
//!
//! The same commit gives the same bytes: the program is built twice, in two folders, and compared;
//! entries are sorted and have the time of the commit. The program must keep its bounds on size,
//! idle memory and start time. Nothing is uploaded or signed here.

mod archive;
mod bounds;
mod build;
mod contents;
mod debian;
mod licences;
mod linked;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::sanitize;
use crate::test::now;
use crate::tools;

/// Arguments of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder for the packages [default: target/dist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build once, without the second build that shows that the first can be reproduced
    #[arg(long)]
    once: bool,
    /// Package this program instead of building one; its bounds are not checked, and compression is
    /// fast. For tests
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// What is packaged.
#[derive(Debug)]
struct Release {
    version: String,
    /// The compiler's name of the platform, such as `x86_64-unknown-linux-gnu`.
    target: String,
    /// Time of the commit, in seconds: the time of every entry.
    epoch: u64,
    /// Whether packages are made for a test, with fast compression.
    is_test: bool,
}

impl Release {
    fn find(is_test: bool) -> Result<Self> {
        let metadata = project::metadata()?;
        let package = metadata.packages.iter().find(|package| package.name == build::PACKAGE);
        let package = package.context("the workspace has no package tidegate-cli")?;
        Ok(Self {
            version: package.version.to_string(),
            target: sanitize::host()?,
            epoch: commit_time()?,
            is_test,
        })
    }

    /// The name of the archive without its ending, and of the folder in it.
    fn name(&self) -> String {
        format!("tidegate-{}-{}", self.version, self.target)
    }
}

/// Builds, checks and packages the program.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let steps = Steps::start();
    let release = Release::find(arguments.program.is_some())?;
    let out = match &arguments.out {
        Some(out) => std::path::absolute(out)?,
        None => project::target_folder("dist")?,
    };
    let staging = out.join("staging");
    remove(&staging)?;
    fs::create_dir_all(&staging).with_context(|| format!("cannot create {}", out.display()))?;
    let program = staging.join("tidegate");
    match &arguments.program {
        Some(given) => build::strip(given, &program)?,
        None => {
            steps.begin("building the program, which takes minutes");
            build::build(&project::target_folder("dist-first")?, project::root(), &program)?;
            if !arguments.once {
                steps.begin("building it again in another folder, to compare");
                build::compare(&program)?;
            }
            steps.begin("checking size, idle memory and start time");
            bounds::check(&program)?;
        }
    }
    steps.begin("collecting licences, bill of materials, man pages and completions");
    let folder = staging.join(release.name());
    contents::collect(&folder, &program, &release)?;
    steps.begin("packing");
    let packed = [
        archive::pack(&folder, &out, &release)?,
        debian::pack(&folder, &staging.join("debian"), &out, &release)?,
    ];
    if !release.is_test {
        tools::lintian()?;
        debian::lint(&packed[1])?;
    }
    remove(&staging)?;
    archive::write_sums(&out, &packed)?;
    for file in &packed {
        println!("{}: {} bytes", file.display(), fs::metadata(file)?.len());
    }
    steps.end();
    Ok(())
}

/// Prints what is done, and how long it took.
struct Steps {
    started: Instant,
}

impl Steps {
    fn start() -> Self {
        Self { started: now() }
    }

    fn begin(&self, title: &str) {
        println!("[{:4.0} s] {title}", self.started.elapsed().as_secs_f64());
    }

    fn end(&self) {
        println!("[{:4.0} s] done", self.started.elapsed().as_secs_f64());
    }
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

/// Time of the commit in seconds; of the epoch in a source archive without `SOURCE_DATE_EPOCH`.
fn commit_time() -> Result<u64> {
    let given = std::env::var_os("SOURCE_DATE_EPOCH").map(std::ffi::OsString::into_string);
    let time = match given {
        Some(Ok(time)) => time,
        Some(Err(time)) => bail!("SOURCE_DATE_EPOCH is {time:?}, which is not a number of seconds"),
        None if project::is_clone() => process::read(process::git(["log", "-1", "--format=%ct"]))?,
        None => "0".to_owned(),
    };
    let time = time.trim();
    time.parse().with_context(|| {
        format!("the time of the commit is {time:?}, which is not a number of seconds")
    })
}
