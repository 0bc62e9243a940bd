//! What a client is told of limits, as numbers. Which of them are reported, and how, is for others
//! to decide.

/// One limit, as a client is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gauge {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Nanoseconds until all of the limit is there again.
    pub(crate) reset: u64,
}

/// All limits of a pool, as a client is told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) requests: Option<Gauge>,
    pub(crate) slice: Option<Gauge>,
    pub(crate) day: Option<Gauge>,
    /// The same, if it refills all day.
    pub(crate) refilling_day: Option<Gauge>,
    pub(crate) tokens: Option<Gauge>,
    pub(crate) input: Option<Gauge>,
    pub(crate) output: Option<Gauge>,
}
