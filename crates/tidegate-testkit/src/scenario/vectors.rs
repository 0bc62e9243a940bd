//! The vector file: scenarios with the oracle's answers, committed so that stores in any language
//! can run them.
//!
//! The file is a JSON object with a format number and a list of scenarios, one step a line.
//! Times are whole nanoseconds after `origin_ns`, which counts from the Unix epoch; some are
//! above 2^53. The oracle is the source: the file is never edited by hand, and nothing here
//! decides anything.

mod builder;
mod named;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::scenario::replay::{Difference, Scenario, run};

use crate::scenario::compose::{Composer, LimitSeed, PolicySeed, StepSeed, limit};
use crate::scenario::random::Random;
use crate::scenario::step::ORIGIN_NS;
use crate::subject::{Resolution, Subject};

/// The format that is written and read.
pub const FORMAT: u32 = 1;
/// The committed file.
const COMMITTED: &str = include_str!("../../vectors/vectors.json");
/// Random scenarios in the file, a third for each resolution.
const RANDOM_SCENARIOS: u32 = 60;
/// Steps that are tried in each.
const RANDOM_STEPS: u32 = 60;

/// The file.
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
    /// Not JSON of the right shape.
    Malformed(serde_json::Error),
    /// A format that this version does not know.
    Format(u32),
    /// Times that count from another origin.
    Origin(u64),
}

impl fmt::Display for VectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a vector file: {error}"),
            Self::Format(format) => {
                write!(f, "vector format {format} is unknown; this version reads {FORMAT}")
            }
            Self::Origin(origin) => write!(f, "times start at {origin}, not at {ORIGIN_NS}"),
        }
    }
}

impl std::error::Error for VectorError {}

/// The scenarios of the committed file.
///
/// # Errors
/// When the file is of another format or not readable.
pub fn committed() -> Result<Vec<Scenario>, VectorError> {
    parse(COMMITTED)
}

/// The scenarios of a file.
///
/// # Errors
/// When the text is of another format or not readable.
pub fn parse(text: &str) -> Result<Vec<Scenario>, VectorError> {
    let file: File = serde_json::from_str(text).map_err(VectorError::Malformed)?;
    match file {
        File { format, .. } if format != FORMAT => Err(VectorError::Format(format)),
        File { origin_ns, .. } if origin_ns != ORIGIN_NS => Err(VectorError::Origin(origin_ns)),
        File { scenarios, .. } => Ok(scenarios),
    }
}

/// Replays every committed scenario whose time stamps the subject's clock can show; says how many.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// When the committed file is not readable.
pub async fn run_all(subject: &dyn Subject) -> Result<usize, Difference> {
    let mut count = 0;
    for scenario in committed().expect("the committed vectors are readable") {
        if scenario.resolution >= subject.resolution() {
            run(subject, &scenario).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// The text of the file, always the same.
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

/// One limit or step a line, so that differences read well.
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
