//! The vector file: scenarios with the oracle's answers, committed so that stores in any language
//! can run them.
//!
//! The file is a JSON object with a format number and a list of scenarios, one step per line.
//! Times are whole nanoseconds after `origin_ns`, which counts from the Unix epoch; some exceed
//! 2^53. The file is generated from the oracle and never edited by hand.

mod builder;
mod named;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::scenario::replay::{Difference, Scenario, run};

use crate::scenario::compose::{Composer, LimitSeed, PolicySeed, StepSeed, limit};
use crate::scenario::random::Random;
use crate::scenario::step::ORIGIN_NS;
use crate::subject::{Resolution, Subject};

/// Version of the file format.
pub const FORMAT: u32 = 1;
/// The committed file.
const COMMITTED: &str = include_str!("../../vectors/vectors.json");
/// Number of random scenarios in the file, a third for each resolution.
const RANDOM_SCENARIOS: u32 = 60;
/// Number of steps to try in each random scenario.
const RANDOM_STEPS: u32 = 60;

/// The parsed vector file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    format: u32,
    origin_ns: u64,
    scenarios: Vec<Scenario>,
}

/// Why a vector file cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum VectorError {
    /// Invalid JSON, or JSON of another structure.
    Malformed(serde_json::Error),
    /// An unsupported format version.
    Format(u32),
    /// Times that start at another origin.
    Origin(u64),
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a vector file: {error}"),
            Self::Format(format) => {
                write!(f, "vector format {format} is not supported; expected {FORMAT}")
            }
            Self::Origin(origin) => write!(f, "times start at {origin}; expected {ORIGIN_NS}"),
        }
    }
}

impl std::error::Error for VectorError {}

/// Returns the scenarios of the committed file.
///
/// # Errors
/// If the file has another format or is invalid.
pub fn committed() -> Result<Vec<Scenario>, VectorError> {
    parse(COMMITTED)
}

/// Parses a vector file.
///
/// # Errors
/// If the text has another format or is invalid.
pub fn parse(text: &str) -> Result<Vec<Scenario>, VectorError> {
    let file: File = serde_json::from_str(text).map_err(VectorError::Malformed)?;
    match file {
        File { format, .. } if format != FORMAT => Err(VectorError::Format(format)),
        File { origin_ns, .. } if origin_ns != ORIGIN_NS => Err(VectorError::Origin(origin_ns)),
        File { scenarios, .. } => Ok(scenarios),
    }
}

/// Replays every committed scenario that the subject supports by its contract and the resolution of
/// its clock. Returns their number.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// If the committed file is invalid.
pub async fn run_all(subject: &dyn Subject) -> Result<usize, Difference> {
    let mut count = 0;
    for scenario in committed().expect("the committed vectors are invalid") {
        if scenario.resolution >= subject.resolution() && scenario.contract() <= subject.contract()
        {
            run(subject, &scenario).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// Generates the text of the file. The result is deterministic.
#[must_use]
pub fn generate() -> String {
    let mut scenarios = named::all();
    let mut random = Random::new(20_261_116);
    scenarios.extend((0..RANDOM_SCENARIOS).map(|index| random_scenario(index, &mut random)));
    write(&scenarios)
}

fn random_scenario(index: u32, random: &mut Random) -> Scenario {
    let resolution = [Resolution::Ns, Resolution::Us, Resolution::Ms][index as usize % 3];
    let name = format!("random-{index}");
    let count = 1 + random.below(3);
    let limits = (0..count).map(|number| limit(format!("{name}.l{number}"), &limit_seed(random)));
    let mut composer = Composer::new(&name, resolution, limits.collect());
    for _ in 0..RANDOM_STEPS {
        composer.add(&StepSeed {
            time: random.below(65_536),
            op: random.below(128),
            charges: [0; 4].map(|_| random.below(65_536)),
            extra: random.below(4_096),
        });
    }
    composer.finish()
}

fn limit_seed(random: &mut Random) -> LimitSeed {
    let count = 1 + random.below(4);
    let policies = (0..count).map(|_| PolicySeed {
        rate: random.below(4_096),
        capacity: random.below(4_096),
        rest: random.below(8_192),
    });
    LimitSeed { policies: policies.collect(), kind: random.below(36) }
}

/// Writes one limit or step per line, so that diffs are readable.
fn write(scenarios: &[Scenario]) -> String {
    let mut text = format!("{{\"format\":{FORMAT},\"origin_ns\":{ORIGIN_NS},\"scenarios\":[");
    for (index, scenario) in scenarios.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let (name, resolution) = (json(&scenario.name), json(&scenario.resolution));
        text += &format!("{comma}\n{{\"name\":{name},\"resolution\":{resolution},\"limits\":[");
        text += &lines(&scenario.limits);
        text += "],\"steps\":[";
        text += &lines(&scenario.steps);
        text += "]}";
    }
    text += "\n]}\n";
    text
}

fn lines(items: &[impl Serialize]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("\n{}", json(item))).collect();
    items.join(",")
}

fn json(item: &impl Serialize) -> String {
    serde_json::to_string(item).expect("plain data has a JSON form")
}
