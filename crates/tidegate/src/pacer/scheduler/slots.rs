//! The number of calls in flight, and its limit.

/// The concurrency of a pacer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// `None`: unlimited.
    limit: Option<u64>,
    in_flight: u64,
}

impl Slots {
    pub(crate) const fn new(limit: Option<u64>) -> Self {
        Self { limit, in_flight: 0 }
    }

    pub(crate) const fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// More calls than the limit may be in flight after it was lowered: they drain.
    pub(crate) fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.in_flight >= limit)
    }

    pub(crate) fn take(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn give_back(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Returns whether the limit was raised.
    pub(crate) fn resize(&mut self, limit: Option<u64>) -> bool {
        let before = std::mem::replace(&mut self.limit, limit);
        match (before, limit) {
            (Some(_), None) => true,
            (Some(before), Some(after)) => after > before,
            (None, _) => false,
        }
    }
}
