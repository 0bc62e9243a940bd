//! `outcome`: agents on a limited account, directly and through gateways.
//!
//! All contenders get the same work from the same client, the official OpenAI client for Python. The
//! provider is the simulator, on a socket of this process; the contenders have processes of their
//! own. Everything happens in real time, so a run takes as long as the limits make it take, and the
//! speed of the machine hardly matters.

mod contender;
mod figures;
mod report;
mod scenario;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tidegate_sim::Simulator;
use tokio::runtime::Runtime;

use crate::progress;
use contender::Contender;
pub(crate) use contender::Programs;
use figures::{Figures, Seen};
use scenario::Plan;
pub(crate) use scenario::{Effort, QUICK, THOROUGH};

/// The agents.
const SCRIPT: &str = "src/outcome/agents.py";

/// Runs all measurements and prints the table.
pub(crate) fn run(effort: Effort, programs: &Programs) -> Result<()> {
    let progress = progress::bar(Contender::ALL.len() as u64 * effort.runs)?;
    let mut results: Vec<_> = Contender::ALL.map(|contender| (contender, Vec::new())).into();
    // Contenders take turns, so that whatever the machine does meanwhile hits all alike.
    for seed in 1..=effort.runs {
        let alone = alone(effort, programs, seed)?;
        for (contender, runs) in &mut results {
            progress.set_message(contender.name());
            runs.push(measure(*contender, effort, programs, seed, alone)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    print!("{}", report::table(&results, effort));
    Ok(())
}

/// Measures the quiet tenant when it is alone: the median time of its calls.
fn alone(effort: Effort, programs: &Programs, seed: u64) -> Result<f64> {
    let provider = Provider::start(seed)?;
    let running = Contender::Nothing.start(programs, &provider.url)?;
    let seen = ask(programs, &running.plan(|url| Plan::new(effort, seed, url).alone()))?;
    let median = seen.quiet_median();
    ensure!(median > 0.0, "the quiet tenant got no answer");
    Ok(median)
}

/// Makes one run with a new provider.
fn measure(
    contender: Contender,
    effort: Effort,
    programs: &Programs,
    seed: u64,
    alone: f64,
) -> Result<Figures> {
    let provider = Provider::start(seed)?;
    let running = contender.start(programs, &provider.url)?;
    let plan = running.plan(|url| Plan::new(effort, seed, url));
    let seen = ask(programs, &plan).with_context(|| contender.name())?;
    let limits = scenario::limits(seed);
    Ok(Figures::new(&seen, &provider.simulator, &limits, &plan.tenants, alone))
}

/// A provider on a socket. It ends with its runtime.
struct Provider {
    simulator: Simulator,
    url: String,
    _runtime: Runtime,
}

impl Provider {
    fn start(seed: u64) -> Result<Self> {
        let runtime = Runtime::new()?;
        let (simulator, url) = runtime.block_on(async {
            let simulator = scenario::provider(seed)?;
            let url = simulator.serve_on_loopback().await?;
            Ok::<_, anyhow::Error>((simulator, url))
        })?;
        Ok(Self { simulator, url, _runtime: runtime })
    }
}

/// Runs the agents and returns what they saw.
fn ask(programs: &Programs, plan: &Plan) -> Result<Seen> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    let mut command = Command::new(&programs.python);
    command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the agents")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(serde_json::to_string(plan)?.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the agents ended with {}", output.status);
    serde_json::from_slice(&output.stdout).context("the agents printed no result")
}
