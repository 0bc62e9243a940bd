//! `attacks`: the program under everything at once, and what callers who mean well notice of it.
//!
//! A provider in this process, the program in one of its own, callers at addresses 127.0.0.101 and
//! following, attackers at 127.0.0.1 to 9: all on loopback. First the callers go alone, then the
//! attackers join them. Every attack is bounded in connections and in its rate, so that it is the
//! program that is measured and not how the machine is shared.

mod attack;
mod callers;
mod program;
mod provider;
mod report;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::machine;

/// How long callers are measured alone.
const BASELINE: Duration = Duration::from_secs(60);

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
    let mut running = program::RunningProgram::start(tidegate, provider.address)?;
    let alone = length.min(BASELINE);
    eprintln!("callers alone, {} s", alone.as_secs());
    callers::call(running.http, Duration::from_secs(2)).await;
    let before = callers::call(running.http, alone).await;
    eprintln!("callers beside attackers, {} s", length.as_secs());
    let attacks = attack::start(running.http);
    let attacked = {
        let calling = callers::call(running.http, length);
        let mut watching = running.watch();
        tokio::pin!(calling);
        loop {
            tokio::select! {
                figures = &mut calling => break figures,
                () = watching.tick() => {}
            }
        }
    };
    let attempts = attacks.stop();
    running.settle().await;
    let figures =
        report::Figures { before, attacked, attempts, running, provider: provider.figures() };
    Ok(figures.report())
}
