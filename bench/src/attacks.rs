//! `attacks`: the program under everything at once, and what callers who mean well notice of it.
//!
//! A provider in this process, the program in one of its own, callers at addresses 127.0.0.101 and
//! following, attackers at 127.0.0.1 to 9: all on loopback. First the callers go alone, then the
//! attackers join them. Every attack is bounded in connections and in its rate, so that it is the
//! program that is measured and not how the machine is shared.

mod attack;
mod callers;
mod provider;
mod report;
mod stage;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::machine;

/// How long callers are measured alone.
const ALONE: Duration = Duration::from_secs(60);

/// Attacks the program for so long, prints what came of it, and fails if a bound was missed.
pub(crate) fn run(tidegate: &Path, length: Duration) -> Result<()> {
    machine::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(soak(tidegate, length));
    // Attackers that still hold connections are not waited for.
    runtime.shutdown_background();
    let (text, missed) = outcome?;
    print!("{text}");
    missed.map_or(Ok(()), |missed| anyhow::bail!("bounds missed: {missed}"))
}

/// The report, and which bounds were missed.
async fn soak(tidegate: &Path, length: Duration) -> Result<(String, Option<String>)> {
    let provider = provider::start().await?;
    let mut stage = stage::Stage::start(tidegate, provider.address)?;
    let alone = length.min(ALONE);
    eprintln!("callers alone, {} s", alone.as_secs());
    callers::call(stage.http, Duration::from_secs(2)).await;
    let before = callers::call(stage.http, alone).await;
    eprintln!("callers beside attackers, {} s", length.as_secs());
    let attacks = attack::start(stage.http);
    let beside = {
        let calling = callers::call(stage.http, length);
        let mut watching = stage.watch();
        tokio::pin!(calling);
        loop {
            tokio::select! {
                figures = &mut calling => break figures,
                () = watching.tick() => {}
            }
        }
    };
    let attempts = attacks.stop();
    stage.settle().await;
    let figures = report::Figures { before, beside, attempts, stage, provider: provider.figures() };
    Ok(figures.report())
}
