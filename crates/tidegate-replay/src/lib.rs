//! Replays traffic logs against rate limit policies.
mod error;
mod event;
mod key_table;
mod log;

pub use error::ReplayError;
pub use event::{Event, EventSink};
pub use key_table::KeyTable;
pub use log::line_error::LineError;
#[doc(hidden)]
pub use log::parse_line;
pub use log::{InvalidLine, LogFormat, LogOptions, LogReader, LogSummary};
