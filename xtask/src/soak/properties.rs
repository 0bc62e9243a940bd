//! `cargo xtask soak properties`: the property tests with many more cases.

use anyhow::{Result, bail};

use crate::process;
use crate::test_counts::TestCounts;

/// Number of cases per property; the usual tests run a few hundred.
const CASES: &str = "20000";

/// Runs all tests in release mode with many cases per property.
pub(crate) fn run() -> Result<()> {
    let mut command = process::cargo(["test", "--workspace", "--all-features", "--release"]);
    command.env("TIDEGATE_SOAK", "1").env("PROPTEST_CASES", CASES);
    let mut counts = TestCounts::default();
    let outcome = process::watch(command, |line| counts.parse_line(line));
    println!("{counts}");
    outcome?;
    if counts.not_passed() > 0 {
        bail!("{} tests were ignored", counts.ignored);
    }
    Ok(())
}
