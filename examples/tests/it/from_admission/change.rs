//! Changing the thresholds, and a pending count from outside.

use std::error::Error;
use std::time::Duration;

use tidegate::admission::Admission;
use tidegate::{Policy, PolicyChange};

/// Replaces the thresholds together. No check sees some of the old and some of the new.
pub fn update(admission: &Admission, threshold: u32, rate: u64) -> Result<(), Box<dyn Error>> {
    let client = Policy::per_second(rate).capacity(2 * rate).build()?;
    let rules = admission.rules().backpressure(threshold).client(client);
    Ok(admission.reconfigure(rules, PolicyChange::KeepTokens)?)
}

/// Reports the depth of a queue that others fill as well.
pub fn observe(admission: &Admission, proposals: u32) {
    admission.set_pending(proposals, Duration::from_secs(5));
}
