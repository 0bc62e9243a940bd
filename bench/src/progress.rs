//! How far a benchmark is, on standard error.

use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar for people; indicatif draws nothing when standard error is not a terminal.
pub(crate) fn bar(steps: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed}  {msg}")?;
    let bar = ProgressBar::new(steps).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    Ok(bar)
}
