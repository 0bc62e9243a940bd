//! `attacks`: runs all attacks on the program at once, and measures how legitimate callers fare.
//!
//! The provider runs in this process, the program in its own. Callers use addresses from
//! 127.0.0.101 on, attackers 127.0.0.1 to 9, all on loopback. The callers are measured alone first,
//! then during the attack. Every attack has bounded connections and a bounded rate, so that the
//! program is measured and not the scheduling of the machine.

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

/// Duration of the measurement without attackers.
const BASELINE: Duration = Duration::from_secs(60);

/// Attacks the program for `length`, prints the report, and fails if a bound is missed.
pub(crate) fn run(tidegate: &Path, length: Duration) -> Result<()> {
    machine::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(soak(tidegate, length));
    // Do not wait for attackers that still hold connections.
    runtime.shutdown_background();
    let (text, missed) = outcome?;
    print!("{text}");
    missed.map_or(Ok(()), |missed| anyhow::bail!("bounds missed: {missed}"))
}

/// Returns the report, and the names of missed bounds.
async fn soak(tidegate: &Path, length: Duration) -> Result<(String, Option<String>)> {
    let provider = provider::start().await?;
    let mut running = program::RunningProgram::start(tidegate, provider.address)?;
    let alone = length.min(BASELINE);
    eprintln!("callers alone, {} s", alone.as_secs());
    callers::call(running.http, Duration::from_secs(2)).await;
    let before = callers::call(running.http, alone).await;
    eprintln!("callers during the attack, {} s", length.as_secs());
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
