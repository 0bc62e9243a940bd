//! Checks and tests the TypeScript packages with their own npm scripts.

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::test_counts::TestCounts;
use crate::tools;

/// Folders of the packages. Each has the script `check`, which compiles without output. The example
/// uses the npm package as its tests have built it.
const PACKAGES: [&str; 3] = ["worker", "clients/typescript", "examples/worker"];

/// Runs the script `check` of every package, and `test` of those that have it. The tests print in
/// the format of Node's test runner.
pub(crate) fn check(counts: &mut TestCounts) -> Result<()> {
    for folder in PACKAGES {
        let scripts = scripts(folder)?;
        if !scripts.iter().any(|name| name == "check") {
            bail!("{folder}/package.json has no script \"check\"");
        }
        process::run(tools::npm_script(folder, "check"))
            .with_context(|| format!("{folder} does not compile"))?;
        if scripts.iter().any(|name| name == "test") {
            let before = counts.passed;
            process::watch(tools::npm_script(folder, "test"), |line| counts.parse_node(line))?;
            if counts.passed == before {
                bail!("no test ran in {folder}");
            }
        }
    }
    Ok(())
}

fn scripts(folder: &str) -> Result<Vec<String>> {
    let path = project::root().join(folder).join("package.json");
    let text = fs::read_to_string(path).with_context(|| format!("{folder} has no package.json"))?;
    let manifest: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("cannot parse {folder}/package.json"))?;
    let scripts = manifest["scripts"].as_object();
    Ok(scripts.map(|scripts| scripts.keys().cloned().collect()).unwrap_or_default())
}
