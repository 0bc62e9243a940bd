//! `cargo xtask worker`: bundles the Worker to one JavaScript module and its WebAssembly, which
//! tests start in the real runtime.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::project;
use crate::tools;

/// The module with the Worker's handler and its class, relative to the root.
const SOURCE: &str = "worker/src/index.ts";

/// Bundles the Worker into `target/worker`, whatever folder cargo builds in: the launcher of the
/// testkit looks there.
pub(crate) fn bundle() -> Result<()> {
    let folder = project::root().join("target/worker");
    let mut command = Command::new(tools::npm_program("esbuild"));
    command.arg(SOURCE).arg(format!("--outdir={}", folder.display())).current_dir(project::root());
    command.args(["--bundle", "--format=esm", "--target=es2022", "--log-level=warning"]);
    // The runtime provides modules with this prefix. The WebAssembly stays a file of its own: the
    // runtime compiles it once, at the start.
    command.args(["--external:cloudflare:*", "--loader:.wasm=copy", "--asset-names=[name]"]);
    process::run(command).context("cannot bundle the Worker")?;
    for file in ["index.js", "shard.wasm"] {
        if !folder.join(file).exists() {
            bail!("the bundle of the Worker has no {file}; does {SOURCE} import shard.wasm?");
        }
    }
    println!("target/worker: bundled");
    Ok(())
}

/// Whether this source tree has the Worker.
pub(crate) fn exists() -> bool {
    Path::new(project::root()).join(SOURCE).exists()
}
