//! Events: what a line of a log means to a policy.

use std::io;

use tidegate_core::Time;

/// A request in a log: its key, by number, its time since the Unix epoch, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the key in the [`KeyTable`](crate::KeyTable).
    pub key: u32,
    /// Time since the Unix epoch.
    pub time: Time,
    /// Tokens that the request spends.
    pub cost: u64,
}

/// What receives the events of a log, one by one, in the order of its lines.
pub trait EventSink {
    /// Receives the next event. Numbers of keys start at zero, without gaps.
    ///
    /// # Errors
    /// If it keeps events in a file that cannot be written.
    fn event(&mut self, event: Event) -> io::Result<()>;
}

impl<A: EventSink, B: EventSink> EventSink for (&mut A, &mut B) {
    #[inline]
    fn event(&mut self, event: Event) -> io::Result<()> {
        self.0.event(event)?;
        self.1.event(event)
    }
}

impl<S: EventSink> EventSink for Option<S> {
    #[inline]
    fn event(&mut self, event: Event) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |sink| sink.event(event))
    }
}

impl EventSink for Vec<Event> {
    fn event(&mut self, event: Event) -> io::Result<()> {
        self.push(event);
        Ok(())
    }
}
