//! A progress bar on standard error.

use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// Creates a progress bar; indicatif draws nothing if standard error is not a terminal.
pub(crate) fn bar(steps: u64) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed}  {msg}")?;
    let bar = ProgressBar::new(steps).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    Ok(bar)
}
