//! Every combination of dialect, charging rule, binding limit, call length, `max_tokens`, and
//! configured or learned limits.
//!
//! In each cell, forty agents call without a pause. No call may fail, and the provider may refuse
//! hardly any (one in two hundred, or three to infer how it charges). Nearly as many calls must be
//! admitted as for a client that always knows whether the provider would admit a call. Where
//! nothing binds, the run must take no longer than without a limiter. Where a provider charges
//! output differently from its dialect, the rule has to be inferred first, and the bounds are
//! wider.

mod cell;
mod direct;

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_llm::rate_limit::Account;
use tidegate_llm::{Call, CallError};
use tidegate_providers::Credential;
use tidegate_sim::Simulator;
use tidegate_testkit::property::is_soak_run;
use tokio::time::{Instant, sleep};
use tower::ServiceExt as _;

use crate::traffic::{Dice, KEY, adapter, provider, stack};
use cell::{Binds, Cell, Refused};

const SECOND: Duration = Duration::from_secs(1);

/// Number of agents.
const AGENTS: u32 = 40;
/// Maximum wait of a call: the gateway's default.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Result of a cell.
#[derive(Debug)]
#[allow(dead_code, reason = "shown if a cell fails")]
struct Outcome {
    completed: u64,
    failed: u64,
    first_error: Option<String>,
    refused: Refused,
    /// Calls that the provider admitted in the measured time.
    admitted: u64,
    duration: Duration,
}

/// Makes one call.
async fn make_call(
    cell: &Cell,
    simulator: &Simulator,
    account: &Account,
    dice: &Dice,
) -> Result<(), CallError> {
    let seed = dice.below(1 << 20);
    let model = stack(adapter(simulator, cell.dialect, dice), cell.dialect, account, seed);
    let call: Call = cell.call(dice).max_wait(MAX_WAIT);
    model.oneshot(call).await?.into_reply().await.map(drop)
}

/// Runs all agents through one account.
async fn run_limited(cell: &Cell) -> Outcome {
    let simulator = cell.simulator();
    let builder = Account::builder(provider(cell.dialect), &Credential::new(KEY));
    let account = cell.configure(builder).build().unwrap();
    let (dice, start) = (Dice::new(7), Instant::now());
    let agents = (0..AGENTS).map(|_| async {
        let (mut completed, mut failed, mut first_error) = (0, 0, None);
        while cell.should_continue(completed, start.elapsed()) {
            match make_call(cell, &simulator, &account, &dice).await {
                Ok(()) => completed += 1,
                Err(error) => {
                    failed += 1;
                    first_error = first_error.or(Some(format!("{error:?}")));
                    sleep(SECOND).await;
                }
            }
        }
        (completed, failed, first_error)
    });
    let done = join_all(agents).await;
    Outcome {
        completed: done.iter().map(|agent| agent.0).sum(),
        failed: done.iter().map(|agent| agent.1).sum(),
        first_error: done.into_iter().find_map(|agent| agent.2),
        refused: cell.refused(&simulator),
        admitted: cell.admitted(&simulator),
        duration: start.elapsed(),
    }
}

/// Runs a cell and returns its row in the table and what is wrong with it, if anything.
async fn evaluate(cell: &Cell) -> (String, Option<String>) {
    let outcome = run_limited(cell).await;
    let (figure, is_enough) = if cell.binds == Binds::Nothing {
        let ratio = outcome.duration.as_secs_f64() / direct::time(cell).await.as_secs_f64();
        (format!("{ratio:.3} of the time"), ratio <= 1.1)
    } else {
        let best = direct::admitted(cell).await;
        let ratio = outcome.admitted as f64 / best as f64;
        (format!("{ratio:.3} of {best} calls"), ratio >= cell.min_used_ratio())
    };
    let per_mille = outcome.refused.per_mille();
    let row = format!("{cell}: {figure}, {per_mille:.1} per mille refused");
    let failed_per_mille = outcome.failed as f64 * 1_000.0 / outcome.completed.max(1) as f64;
    let is_good = failed_per_mille <= cell.max_failed_per_mille()
        && outcome.completed > 0
        && outcome.refused.is_at_most(cell.max_refused_per_mille())
        && is_enough;
    let violation = (!is_good).then(|| format!("{row}; {outcome:?}"));
    (row, violation)
}

#[allow(clippy::print_stdout, reason = "prints a table")]
async fn run(cells: impl IntoIterator<Item = Cell>) {
    let (mut violations, mut count) = (Vec::new(), 0);
    for cell in cells {
        let (row, violation) = evaluate(&cell).await;
        println!("{row}{}", if violation.is_some() { "  <-- MISSED" } else { "" });
        violations.extend(violation);
        count += 1;
    }
    assert!(
        violations.is_empty(),
        "{} of {count} cells:\n{}",
        violations.len(),
        violations.join("\n")
    );
}

/// Returns part `number` of the cells: of all of them in a soak test, else of enough that every two
/// values of two axes meet.
fn part(number: usize, parts: usize) -> impl Iterator<Item = Cell> {
    let step = if is_soak_run() { 1 } else { 17 };
    let cells = Cell::all().into_iter().enumerate().filter(move |(index, _)| index % step == 0);
    cells.map(|(_, cell)| cell).skip(number).step_by(parts)
}

#[tokio::test(start_paused = true)]
async fn every_mix_of_calls_uses_its_quota_and_is_not_refused_1() {
    run(part(0, 4)).await;
}

#[tokio::test(start_paused = true)]
async fn every_mix_of_calls_uses_its_quota_and_is_not_refused_2() {
    run(part(1, 4)).await;
}

#[tokio::test(start_paused = true)]
async fn every_mix_of_calls_uses_its_quota_and_is_not_refused_3() {
    run(part(2, 4)).await;
}

#[tokio::test(start_paused = true)]
async fn every_mix_of_calls_uses_its_quota_and_is_not_refused_4() {
    run(part(3, 4)).await;
}
