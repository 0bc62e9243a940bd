//! `tidegate simulate`: replays traffic logs against token buckets.
//!
//! The work and the reports are in `tidegate-replay`; here are files, and which report is printed.

use std::fs;
use std::path::PathBuf;

use tidegate_config::{Loader, process_environment};
use tidegate_core::Policy;
use tidegate_replay::{
    BusiestWindows, CountBy, NamedPolicy, Replay, SimulationReport, Spool, ladder, search,
};

use crate::args::replay::{By, SimulateArgs};
use crate::failure::Failure;
use crate::log_files;
use crate::progress::PassBar;
use crate::terminal::{eprint_line, print};

/// Replays the logs and prints the report.
pub(crate) fn simulate(args: SimulateArgs) -> Result<(), Failure> {
    let mut policies = args.policy;
    if let Some(file) = args.config {
        policies.extend(configured(file)?);
    }
    let goal = args.deny_below.by(match args.by {
        By::Requests => CountBy::Requests,
        By::Cost => CountBy::Cost,
    });
    let mut replay = Replay::new(policies, args.wait.duration());
    // A search needs several passes, and to know the busiest second of any key.
    let mut spool = args.search.then(Spool::new).transpose()?;
    let mut seconds = BusiestWindows::new(std::time::Duration::from_secs(1));
    let (keys, summary) = match &mut spool {
        None => log_files::read(&args.log, &mut replay)?,
        Some(spool) => log_files::read(&args.log, &mut (&mut replay, &mut (spool, &mut seconds)))?,
    };
    let mut report = SimulationReport::new(&replay, &keys, &summary, args.wait.duration());
    if let Some(spool) = &mut spool {
        let rates = ladder(seconds.largest().max().unwrap_or(0));
        let found = search(spool, keys.len(), &rates, goal, &mut PassBar::new())?;
        report.add_search(goal, &found);
    }
    if let Some(file) = args.html {
        fs::write(&file, report.to_html()).map_err(|error| Failure::Html(file, error))?;
    }
    match args.log.json {
        true => print(&serde_json::to_string_pretty(&report).map_err(Failure::Json)?),
        false => print(report.to_table().trim_end()),
    }
}

/// Returns the token buckets of a configuration file, and reports the other limits.
fn configured(file: PathBuf) -> Result<Vec<NamedPolicy>, Failure> {
    let loader = Loader::default().file(file.clone()).environment(process_environment());
    let config = loader.layers()?.validate()?;
    let mut policies = Vec::new();
    for (name, limit) in &config.limits.by_name {
        match limit.limit.policy() {
            Policy::Bucket(bucket) => {
                policies.push(NamedPolicy { name: name.clone(), bucket: *bucket });
            }
            _ => eprint_line(&format!("limits.{name} is not a token bucket; it is not replayed")),
        }
    }
    if policies.is_empty() { Err(Failure::NoBucket(file)) } else { Ok(policies) }
}
