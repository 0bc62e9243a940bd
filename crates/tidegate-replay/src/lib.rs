//! Replays traffic logs against rate limit policies: what they would have admitted and denied, and
//! which limits fit the traffic.
//!
//! This crate is behind `tidegate simulate` and `tidegate suggest`. It reads streams and keeps
//! temporary files, but opens no other files and no sockets, and reads no clock: time comes from
//! the log. Decisions are made by the arithmetic of [`tidegate_core`]; there is no second one here.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_replay::{LogOptions, LogReader, Replay, SimulationReport};
//! let log = "time,key\n1700000000,alice\n1700000000,alice\n1700000001,bob\n";
//! let policy = "capacity=1,rate=1/s".parse()?;
//! let mut replay = Replay::new(vec![policy], Duration::ZERO);
//! let mut reader = LogReader::new(LogOptions::default());
//! reader.read("traffic.csv", log.as_bytes(), &mut replay)?;
//! let (keys, summary) = reader.finish()?;
//! assert_eq!((replay.totals()[0].admitted, replay.totals()[0].denied), (2, 1));
//! let report = SimulationReport::new(&replay, &keys, &summary, Duration::ZERO);
//! println!("{}", report.to_table());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A log is read once, from front to back. Memory grows with the number of keys, not with the
//! number of lines. What needs several passes keeps [events](Event) in a [`Spool`].

mod busiest;
mod decide;
mod distribution;
mod error;
mod event;
mod goal;
mod key_table;
mod log;
mod max_wait;
mod policy;
mod progress;
mod replay;
mod report;
mod search;
mod spool;
mod suggest;
mod timeline;

pub use busiest::BusiestWindows;
pub use decide::Ruling;
pub use distribution::Distribution;
pub use error::ReplayError;
pub use event::{Event, EventSink};
pub use goal::{CountBy, DenyBelow, ShareError};
pub use key_table::KeyTable;
pub use log::line_error::LineError;
#[doc(hidden)]
pub use log::parse_line;
pub use log::{InvalidLine, LogFormat, LogOptions, LogReader, LogSummary};
pub use max_wait::{MaxWait, MaxWaitError};
pub use policy::{NamedPolicy, PolicyTextError, rate_text};
pub use progress::Progress;
pub use replay::{KeyTraffic, Replay, Totals};
pub use report::{ChoiceReport, LogReport, PolicyReport, SimulationReport, SuggestionReport};
pub use search::{FrontierPoint, best, ladder, search};
pub use spool::Spool;
pub use suggest::{Choice, Suggestion, busiest_minutes, suggest};
pub use timeline::{Bin, Timeline};
