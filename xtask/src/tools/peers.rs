//! Installs the peers of `bench outcome` below the target folder: LiteLLM's proxy from PyPI, with the
//! OpenAI client that all contenders are called with, and Portkey's gateway from npm.
//!
//! Both are pinned and have folders of their own, because tests need neither. Nothing of them is
//! distributed.

use std::path::PathBuf;

use anyhow::Result;

use super::{folder, npm, python};

/// Pinned packages, relative to the root.
const PYTHON: &str = "bench/src/outcome/requirements.txt";
pub(super) const NPM: &str = "xtask/npm/outcome";

/// The installed peers.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Python, beside the command `litellm`.
    pub(crate) python: PathBuf,
    /// The entry file of Portkey's gateway.
    pub(crate) portkey: PathBuf,
}

/// Installs the peers unless they are up to date.
pub(crate) fn install() -> Result<Peers> {
    python::environment("outcome-python", PYTHON)?;
    npm::packages("outcome-npm", NPM)?;
    let portkey = "outcome-npm/node_modules/@portkey-ai/gateway/build/start-server.js";
    Ok(Peers {
        python: folder().join("outcome-python/bin/python3"),
        portkey: folder().join(portkey),
    })
}
