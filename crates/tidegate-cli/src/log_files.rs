//! Opens the logs of `simulate` and `suggest`, reads them, and reports their invalid lines.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tidegate_replay::{EventSink, KeyTable, LogOptions, LogReader, LogSummary};

use crate::args::replay::LogArgs;
use crate::failure::Failure;
use crate::progress;
use crate::terminal::eprint_line;

/// A line may be this much earlier than one before it, because servers write lines at the end of
/// requests. More is probably a mistake.
const USUAL_STEP_BACK_NANOS: u64 = 60_000_000_000;

/// Reads all logs into a sink.
pub(crate) fn read(
    args: &LogArgs,
    sink: &mut impl EventSink,
) -> Result<(KeyTable, LogSummary), Failure> {
    let mut reader = LogReader::new(LogOptions {
        format: args.format.map(Into::into),
        time_field: args.time_field.clone(),
        key: args.key.clone(),
        cost_field: args.cost_field.clone(),
    });
    for path in &args.log {
        let (name, source) = open(path)?;
        reader.read(&name, source, sink)?;
    }
    report(reader.summary());
    Ok(reader.finish()?)
}

fn open(path: &Path) -> Result<(String, Box<dyn Read>), Failure> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        let source = progress::reading(&name, io::stdin().lock(), None);
        return Ok((name, Box::new(source)));
    }
    let failed = |error| Failure::OpenLog(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let name = path.display().to_string();
    let bytes = metadata.is_file().then_some(metadata.len());
    let source = progress::reading(&name, file, bytes);
    Ok((name, Box::new(source)))
}

/// Reports invalid lines, and lines whose order is suspicious.
fn report(summary: &LogSummary) {
    for line in &summary.first_invalid {
        eprint_line(&line.to_string());
    }
    if summary.invalid > summary.first_invalid.len() as u64 {
        eprint_line(&format!("{} lines in all cannot be read", summary.invalid));
    }
    if summary.largest_step_back > USUAL_STEP_BACK_NANOS {
        eprint_line(&format!(
            "{} lines are earlier than one before them, by {} s at most; give the oldest log first, \
             and sort logs of several servers by time into one",
            summary.out_of_order,
            summary.largest_step_back / 1_000_000_000
        ));
    }
}
