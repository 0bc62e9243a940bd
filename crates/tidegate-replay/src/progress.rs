//! Progress of passes over a spooled log.

/// What is told about passes over the events.
pub trait Progress {
    /// A pass over this many events starts.
    fn start(&mut self, what: &str, events: u64);
    /// This many more events of the pass are done.
    fn advance(&mut self, events: u64);
}

/// Discards everything.
impl Progress for () {
    fn start(&mut self, _: &str, _: u64) {}
    fn advance(&mut self, _: u64) {}
}
