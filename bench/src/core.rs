//! `core`: in-process decisions, compared with peers and with minimal baselines.
//!
//! One run measures every axis with all contenders interleaved. Baselines ("floors") use the same
//! clock as the store, so the difference is what the store adds: growth, bounds, exactness, policy
//! changes.

mod axis;
mod contenders;
mod report;
mod results;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use indicatif::ProgressBar;

use crate::measure::{self, Effort};
use crate::progress;

pub(crate) use axis::Axis;
pub(crate) use axis::footprint::{Subject, alone as memory_alone};
use axis::{footprint, growth, keyed, new_keys, sweep, unkeyed};
use report::plot;
use results::Results;

/// Number of decisions per batch.
const BATCH: usize = 16;

/// Amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    effort: Effort,
    /// Number of passes that insert a million new keys.
    passes: usize,
    /// Maximum number of keys of the growth axis, if there is enough memory.
    largest: usize,
}

/// Settings for quotable results.
pub(crate) const THOROUGH: Settings =
    Settings { effort: measure::THOROUGH, passes: 7, largest: 100_000_000 };

/// Settings for a quick overview.
pub(crate) const QUICK: Settings = Settings {
    effort: Effort { runs: 3, throw_aways: 2, run: Duration::from_millis(25) },
    passes: 2,
    largest: 1_000_000,
};

/// Measures these axes, or all if none are given, prints the tables, and plots the growth.
pub(crate) fn run(settings: Settings, only: &[Axis], picture: Option<&Path>) -> Result<()> {
    // The unkeyed axis is last: cached clocks start threads that do not end.
    let order = Axis::value_variants().iter().copied().filter(|axis| *axis != Axis::Unkeyed);
    let order = order.chain([Axis::Unkeyed]);
    let axes: Vec<_> = order.filter(|axis| only.is_empty() || only.contains(axis)).collect();
    let steps: usize = axes.iter().map(|axis| steps(*axis, settings)).sum();
    let progress = progress::bar(steps as u64)?;
    let mut results = Results::default();
    for axis in axes {
        measure(axis, settings, &mut results, &progress)?;
    }
    progress.finish_and_clear();
    print!("{}", report::tables(&results, settings));
    match picture {
        Some(file) if !results.growth.is_empty() => draw(file, &results),
        _ => Ok(()),
    }
}

fn steps(axis: Axis, settings: Settings) -> usize {
    let Settings { effort, passes, largest } = settings;
    match axis {
        Axis::Unkeyed => unkeyed::steps(effort),
        Axis::Keyed | Axis::Batch => keyed::steps(axis, effort),
        Axis::FirstTouch | Axis::Pauses => new_keys::steps(passes),
        Axis::Memory => footprint::steps(),
        Axis::Growth => growth::steps(largest, effort),
        Axis::Sweep => sweep::steps(passes),
    }
}

fn measure(
    axis: Axis,
    settings: Settings,
    results: &mut Results,
    progress: &ProgressBar,
) -> Result<()> {
    let Settings { effort, passes, largest } = settings;
    match axis {
        Axis::Unkeyed => results.points.extend(unkeyed::measure(effort, progress)?),
        Axis::Keyed | Axis::Batch => {
            results.points.extend(keyed::measure(axis, effort, progress)?);
        }
        Axis::FirstTouch => results.new_keys = new_keys::measure(passes, progress)?,
        Axis::Pauses => results.pauses = new_keys::pauses(passes, progress)?,
        Axis::Memory => results.footprints = footprint::measure(progress)?,
        Axis::Growth => results.growth = growth::measure(largest, effort, progress)?,
        Axis::Sweep => results.sweeps = sweep::measure(passes, progress)?,
    }
    Ok(())
}

fn draw(file: &Path, results: &Results) -> Result<()> {
    let write = || {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(file, plot::svg(&results.growth))
    };
    write().with_context(|| format!("cannot write the plot to {}", file.display()))?;
    println!("\nThe growth is plotted in {}.", file.display());
    Ok(())
}

/// Number of cores to which threads can be pinned.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
