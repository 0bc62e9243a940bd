//! The footprint of the library in a program: number of crates and time of a clean build, compared
//! with governor.
//!
//! Two empty programs with one dependency each are built alternately, each in an empty target
//! folder. Both use the versions of our lock file. Dependencies are downloaded beforehand.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self as system, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::test::now;
use crate::{process, project};

/// Maximum number of crates, including ours, so that the library stays as light as it was when its
/// first users measured it.
const MAX_CRATES: usize = 29;
/// Maximum build time as a multiple of governor's, for the same reason.
const MAX_RATIO: f64 = 1.2;

/// Measures both, prints a table, and fails if a bound is exceeded.
pub(super) fn run(quick: bool) -> Result<()> {
    let folder = Folder::new()?;
    let root = project::root().join("crates/tidegate");
    let ours = Project::new(&folder.0, "tidegate", &format!("path = {:?}", root.display()))?;
    let version = format!("version = \"={}\"", locked_version("governor")?);
    let theirs = Project::new(&folder.0, "governor", &version)?;
    let turns = if quick { 1 } else { 5 };
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for turn in 1..=turns {
        our_times.push(ours.build()?);
        their_times.push(theirs.build()?);
        eprintln!("round {turn} of {turns}");
    }
    let report = Report {
        crates: (ours.crates()?, theirs.crates()?),
        seconds: (median(our_times), median(their_times)),
        turns,
    };
    println!("{report}");
    report.check()
}

/// What was measured, ours first.
struct Report {
    crates: (usize, usize),
    seconds: (f64, f64),
    turns: usize,
}

impl Report {
    fn ratio(&self) -> f64 {
        self.seconds.0 / self.seconds.1
    }

    fn check(&self) -> Result<()> {
        if self.crates.0 > MAX_CRATES {
            bail!(
                "tidegate adds {} crates, at most {MAX_CRATES} allowed. Find the new one with \
                 `cargo tree -p tidegate` and make it optional or remove it",
                self.crates.0
            );
        }
        if self.ratio() > MAX_RATIO {
            bail!(
                "tidegate takes {:.2} times governor's build time, at most {MAX_RATIO} allowed. If \
                 the machine is otherwise idle, find the slow crate with `cargo build --timings`",
                self.ratio()
            );
        }
        Ok(())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { crates, seconds, turns } = self;
        writeln!(f, "| fresh dependency tree, default features | tidegate | governor | ratio |")?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        let ratio = ratio(crates.0, crates.1);
        writeln!(f, "| crates | {} | {} | {ratio:.2} |", crates.0, crates.1)?;
        let (ours, theirs) = seconds;
        let ratio = self.ratio();
        write!(f, "| seconds to build, median of {turns} | {ours:.1} | {theirs:.1} | {ratio:.2} |")
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of crates are small")]
fn ratio(ours: usize, theirs: usize) -> f64 {
    ours as f64 / theirs as f64
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = env::temp_dir().join(format!("tidegate-footprint-{}", system::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the folder stays below the system's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A library without code that depends on one crate.
struct Project {
    folder: PathBuf,
}

impl Project {
    fn new(parent: &Path, dependency: &str, source: &str) -> Result<Self> {
        let folder = parent.join(dependency);
        fs::create_dir_all(&folder).context("cannot create a project")?;
        let manifest = format!(
            "[package]\nname = \"empty\"\nedition = \"2024\"\n\n[lib]\npath = \"empty.rs\"\n\n\
             [dependencies]\n{dependency} = {{ {source} }}\n\n[workspace]\n"
        );
        fs::write(folder.join("Cargo.toml"), manifest)?;
        fs::write(folder.join("empty.rs"), "")?;
        fs::copy(project::root().join("Cargo.lock"), folder.join("Cargo.lock"))
            .context("cannot copy Cargo.lock")?;
        let project = Self { folder };
        process::run(project.cargo(&["fetch", "--quiet"]))?;
        Ok(project)
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = process::cargo(arguments);
        command.current_dir(&self.folder);
        // A compiler cache would falsify the measurement.
        command.env_remove("RUSTC_WRAPPER").env_remove("CARGO_BUILD_RUSTC_WRAPPER");
        command
    }

    /// Runs a clean build and returns its duration.
    fn build(&self) -> Result<Duration> {
        let target = self.folder.join("target");
        let mut command = self.cargo(&["build", "--quiet", "--offline", "--target-dir"]);
        command.arg(&target);
        let started = now();
        process::run(command)?;
        let took = started.elapsed();
        fs::remove_dir_all(&target)
            .with_context(|| format!("cannot empty {}", target.display()))?;
        Ok(took)
    }

    /// Number of crates built, without the empty one. Two versions of a crate count as two.
    fn crates(&self) -> Result<usize> {
        let arguments = ["tree", "--offline", "--edges", "normal,build", "--prefix", "none"];
        Ok(count_crates(&process::read(self.cargo(&arguments))?))
    }
}

/// Counts the distinct lines of `cargo tree`, without the first, which is the root crate.
fn count_crates(tree: &str) -> usize {
    let lines = tree.lines().skip(1).map(|line| line.trim_end_matches(" (*)"));
    lines.filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len()
}

fn locked_version(name: &str) -> Result<String> {
    let metadata = project::metadata_with_dependencies()?;
    let found = metadata.packages.iter().find(|package| package.name.as_str() == name);
    let package = found.with_context(|| format!("{name} is not in Cargo.lock"))?;
    Ok(package.version.to_string())
}

/// The median in seconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_counts_once_and_the_program_does_not() {
        let tree = "empty v0.0.0 (/x)\na v1.0.0\nb v1.0.0\na v1.0.0 (*)\nb v2.0.0 (proc-macro)\n";
        assert_eq!(count_crates(tree), 3);
    }

    #[test]
    fn too_many_crates_or_seconds_fail() {
        let report =
            |crates, seconds| Report { crates: (crates, 40), seconds: (seconds, 10.0), turns: 5 };
        assert!(report(29, 12.0).check().is_ok());
        assert!(report(30, 12.0).check().unwrap_err().to_string().contains("adds 30 crates"));
        assert!(report(29, 12.2).check().unwrap_err().to_string().contains("1.22 times"));
        let table = report(20, 5.0).to_string();
        assert!(
            table.ends_with("| seconds to build, median of 5 | 5.0 | 10.0 | 0.50 |"),
            "{table}"
        );
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let times = [9, 1, 2].map(Duration::from_secs).to_vec();
        assert!((median(times) - 2.0).abs() < f64::EPSILON);
    }
}
