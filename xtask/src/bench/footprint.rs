//! The footprint of the library in a program: number of crates and time of a clean build, compared
//! with governor.
//!
//! Two programs are compared: one that depends on the limiter alone, and one that also depends on
//! tokio, as every program does that waits for a limit. They are empty and built alternately, each
//! in an empty target folder. All use the versions of our lock file. Dependencies are downloaded
//! beforehand.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{self as system, Command};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::test::now;
use crate::{process, project};

/// Maximum number of crates, including ours, so that the library stays as light as it was when its
/// first users measured it.
const MAX_CRATES: usize = 29;
/// Maximum build time of a program with tokio as a multiple of governor's, for the same reason. The
/// limiter alone takes longer than governor alone, because governor waits without a runtime.
const MAX_RATIO: f64 = 1.2;

/// Measures both programs, prints a table, and fails if a bound is exceeded.
pub(super) fn run(quick: bool) -> Result<()> {
    let folder = Folder::new()?;
    let path = project::root().join("crates/tidegate");
    let tidegate = format!("tidegate = {{ path = {:?} }}", path.display());
    let governor = format!("governor = \"={}\"", locked_version("governor")?);
    let tokio = format!(
        "tokio = {{ version = \"={}\", features = [\"macros\", \"rt\"] }}",
        locked_version("tokio")?
    );
    let rounds = if quick { 1 } else { 5 };
    let measure = |name: &str, extra: &str| -> Result<Comparison> {
        let program = |limiter: &str, dependency: &str| {
            Project::new(folder.0.join(name).join(limiter), &[dependency, extra])
        };
        Comparison::measure(
            &program("tidegate", &tidegate)?,
            &program("governor", &governor)?,
            rounds,
        )
    };
    let report =
        Report { alone: measure("alone", "")?, with_tokio: measure("with-tokio", &tokio)? };
    println!("{report}");
    report.check()
}

/// One program with each of the limiters; ours first.
#[derive(Clone, Copy)]
struct Comparison {
    crates: (usize, usize),
    seconds: (f64, f64),
}

impl Comparison {
    fn measure(ours: &Project, theirs: &Project, rounds: usize) -> Result<Self> {
        let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            our_times.push(ours.build()?);
            their_times.push(theirs.build()?);
            eprintln!("round {round} of {rounds}");
        }
        Ok(Self {
            crates: (ours.crates()?, theirs.crates()?),
            seconds: (median(our_times), median(their_times)),
        })
    }

    fn ratio(&self) -> f64 {
        self.seconds.0 / self.seconds.1
    }
}

struct Report {
    alone: Comparison,
    with_tokio: Comparison,
}

impl Report {
    fn check(&self) -> Result<()> {
        let crates = self.alone.crates.0.max(self.with_tokio.crates.0);
        if crates > MAX_CRATES {
            bail!(
                "a program with tidegate has {crates} crates, at most {MAX_CRATES} allowed. Find \
                 the new one with `cargo tree -p tidegate` and make it optional or remove it"
            );
        }
        let ratio = self.with_tokio.ratio();
        if ratio > MAX_RATIO {
            bail!(
                "tidegate takes {ratio:.2} times governor's build time, at most {MAX_RATIO} \
                 allowed. If the machine is otherwise idle, find the slow crate with `cargo build \
                 --timings`"
            );
        }
        Ok(())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "| clean build, default features | tidegate | governor | ratio |")?;
        write!(f, "| --- | --- | --- | --- |")?;
        for (program, compared) in [("alone", self.alone), ("with tokio", self.with_tokio)] {
            let Comparison { crates: (ours, theirs), seconds } = compared;
            let fewer = ratio(ours, theirs);
            write!(f, "\n| {program}: crates | {ours} | {theirs} | {fewer:.2} |")?;
            let (ours, theirs) = seconds;
            let longer = compared.ratio();
            write!(f, "\n| {program}: seconds | {ours:.1} | {theirs:.1} | {longer:.2} |")?;
        }
        Ok(())
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

/// A library without code that has some dependencies.
struct Project {
    folder: PathBuf,
}

impl Project {
    fn new(folder: PathBuf, dependencies: &[&str]) -> Result<Self> {
        fs::create_dir_all(&folder).context("cannot create a project")?;
        let manifest = format!(
            "[package]\nname = \"empty\"\nedition = \"2024\"\n\n[lib]\npath = \"empty.rs\"\n\n\
             [dependencies]\n{}\n\n[workspace]\n",
            dependencies.join("\n")
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
        let report = |crates, seconds| {
            let compared = Comparison { crates: (crates, 40), seconds: (seconds, 10.0) };
            Report { alone: Comparison { seconds: (30.0, 10.0), ..compared }, with_tokio: compared }
        };
        assert!(report(29, 12.0).check().is_ok());
        assert!(report(30, 12.0).check().unwrap_err().to_string().contains("has 30 crates"));
        assert!(report(29, 12.2).check().unwrap_err().to_string().contains("1.22 times"));
        let table = report(20, 5.0).to_string();
        assert!(table.contains("| alone: seconds | 30.0 | 10.0 | 3.00 |"), "{table}");
        assert!(table.ends_with("| with tokio: seconds | 5.0 | 10.0 | 0.50 |"), "{table}");
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let times = [9, 1, 2].map(Duration::from_secs).to_vec();
        assert!((median(times) - 2.0).abs() < f64::EPSILON);
    }
}
