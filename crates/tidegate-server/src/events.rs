//! Events of the server for watchers: a ring of the latest events, each with an id.
//!
//! Subscribers read from an id onwards, whether they are new or reconnect. Publishing never blocks:
//! the ring drops its oldest event, and a watcher that was too slow is told that it missed some.
//! No event contains a key, a prompt or a token.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tidegate_config::SettingChange;
use tokio::sync::watch;

/// Maximum number of events kept.
pub(crate) const MAX_EVENTS: usize = 1_024;

/// Maximum total size of the events kept, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Event {
    /// The configuration was changed.
    Config {
        revision: u64,
        changes: Vec<SettingChange>,
        /// What the change came through: `admin`, `rpc`, `file` and others.
        door: &'static str,
        /// The author: the first digits of the token's digest, or the peer address.
        who: Option<String>,
    },
    /// A provider throttled a call, and the calls that share its key pause.
    Throttled { provider: String, pause_ms: u64 },
    /// The circuit breaker of a provider, or of one of its models, changed state.
    Breaker { provider: String, state: &'static str },
    /// The store went down or came back.
    Store { store: &'static str, state: &'static str },
    /// A warning for operators.
    Warning { message: String },
}

impl Event {
    /// Returns the event type on the wire.
    const fn name(&self) -> &'static str {
        match self {
            Self::Config { .. } => "config",
            Self::Throttled { .. } => "throttled",
            Self::Breaker { .. } => "breaker",
            Self::Store { .. } => "store",
            Self::Warning { .. } => "warning",
        }
    }
}

/// Position in the sequence of events. `run` is a random number that distinguishes runs of the
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    run: u32,
    number: u64,
}

impl Id {
    /// Parses the output of [`Display`](fmt::Display).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (run, number) = text.split_once('-')?;
        Some(Self { run: u32::from_str_radix(run, 16).ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.run, self.number)
    }
}

/// A published event, serialized once for all watchers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PublishedEvent {
    pub(crate) id: Id,
    pub(crate) name: &'static str,
    /// JSON on one line.
    pub(crate) data: String,
}

/// The events of the server. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: u32,
    ring: Mutex<Ring>,
    /// Number of the latest event.
    latest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<PublishedEvent>>,
    bytes: usize,
    /// Number of the latest event; the first one is 1.
    latest: u64,
}

impl Default for Events {
    fn default() -> Self {
        // Without randomness two runs may have the same number, and a watcher that reconnects
        // misses events of the second. That must not prevent the start.
        let run = getrandom::u32().unwrap_or_default();
        let (ring, latest) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Inner { run, ring, latest }))
    }
}

impl Events {
    /// Publishes an event to all watchers. Never blocks.
    pub(crate) fn publish(&self, event: &Event) {
        // Strings and numbers always serialize, with line breaks escaped.
        let data = serde_json::to_string(event).unwrap_or_default();
        let mut ring = self.ring();
        ring.latest += 1;
        let number = ring.latest;
        ring.push(PublishedEvent { id: Id { run: self.0.run, number }, name: event.name(), data });
        // Sent under the lock, so that watchers never see numbers out of order.
        self.0.latest.send_replace(number);
    }

    /// Watches events published from now on, or after the event `seen`.
    pub(crate) fn watch(&self, seen: Option<Id>) -> Watcher {
        let latest = self.0.latest.subscribe();
        let now = self.ring().latest;
        let (seen, missed) = match seen {
            Some(id) if id.run == self.0.run && id.number <= now => (id.number, false),
            // The id is from another run or invalid: send everything kept, and report that more may
            // be missing.
            Some(_) => (0, true),
            None => (now, false),
        };
        Watcher { events: self.clone(), latest, seen, missed }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, event: PublishedEvent) {
        self.bytes += event.data.len();
        self.events.push_back(Arc::new(event));
        while self.events.len() > MAX_EVENTS || (self.bytes > MAX_BYTES && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.data.len();
        }
    }

    /// Returns the event that follows `number`.
    fn after(&self, number: u64) -> Next {
        if number >= self.latest {
            return Next::NotPublished;
        }
        let kept = u64::try_from(self.events.len()).unwrap_or(u64::MAX);
        let first = self.latest - kept + 1;
        let Some(position) = (number + 1).checked_sub(first) else {
            return Next::Dropped { first };
        };
        let event = usize::try_from(position).ok().and_then(|position| self.events.get(position));
        event.map_or(Next::NotPublished, |event| Next::Event(event.clone()))
    }
}

enum Next {
    Event(Arc<PublishedEvent>),
    NotPublished,
    /// It has been dropped; `first` is the oldest event kept.
    Dropped {
        first: u64,
    },
}

/// What a watcher receives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// An event.
    Event(Arc<PublishedEvent>),
    /// Events were dropped before this watcher read them.
    Missed,
}

/// Reads events in order.
#[derive(Debug)]
pub(crate) struct Watcher {
    events: Events,
    latest: watch::Receiver<u64>,
    /// Number of the event read last.
    seen: u64,
    missed: bool,
}

impl Watcher {
    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next(&mut self) -> Received {
        loop {
            if std::mem::take(&mut self.missed) {
                return Received::Missed;
            }
            let next = self.events.ring().after(self.seen);
            match next {
                Next::Event(event) => {
                    self.seen = event.id.number;
                    return Received::Event(event);
                }
                Next::Dropped { first } => {
                    self.seen = first - 1;
                    return Received::Missed;
                }
                Next::NotPublished => {
                    let seen = self.seen;
                    // The watcher owns the events, so the sender exists.
                    let _ = self.latest.wait_for(|latest| *latest > seen).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns the output of a future that is ready immediately.
    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn warning(number: usize) -> Event {
        Event::Warning { message: format!("number {number}") }
    }

    fn number(seen: Option<Received>) -> u64 {
        match seen {
            Some(Received::Event(event)) => event.id.number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_watcher_gets_new_events_and_a_returning_one_what_it_missed() {
        let events = Events::default();
        events.publish(&warning(1));
        let mut new_watcher = events.watch(None);
        assert_eq!(ready(new_watcher.next()), None);
        events.publish(&warning(2));
        events.publish(&warning(3));
        assert_eq!(number(ready(new_watcher.next())), 2);
        let seen = Id { run: events.0.run, number: 1 };
        let mut returning = events.watch(Some(seen));
        assert_eq!(number(ready(returning.next())), 2);
        assert_eq!(number(ready(returning.next())), 3);
        assert_eq!(ready(returning.next()), None);
    }

    #[test]
    fn a_slow_watcher_learns_that_it_missed_events_and_does_not_block_publishing() {
        let events = Events::default();
        let mut slow = events.watch(None);
        for n in 0..MAX_EVENTS + 10 {
            events.publish(&warning(n));
        }
        assert_eq!(ready(slow.next()), Some(Received::Missed));
        assert_eq!(number(ready(slow.next())), 11);
        assert_eq!(events.ring().events.len(), MAX_EVENTS);
    }

    #[test]
    fn ids_of_another_run_are_recognized() {
        let events = Events::default();
        events.publish(&warning(1));
        for id in
            [Id { run: events.0.run ^ 1, number: 1 }, Id { run: events.0.run, number: u64::MAX }]
        {
            let id = Id::parse(&id.to_string()).unwrap();
            let mut watcher = events.watch(Some(id));
            assert_eq!(ready(watcher.next()), Some(Received::Missed));
            assert_eq!(number(ready(watcher.next())), 1);
        }
        assert_eq!(Id::parse("7"), None);
        assert_eq!(Id::parse("x-7"), None);
    }

    #[test]
    fn total_size_of_kept_events_is_bounded() {
        let events = Events::default();
        let large = Event::Warning { message: "x".repeat(1 << 20) };
        for _ in 0..10 {
            events.publish(&large);
        }
        assert!(events.ring().bytes <= MAX_BYTES);
        assert_eq!(events.ring().events.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_watcher_is_woken() {
        let events = Events::default();
        let mut watcher = events.watch(None);
        let waiting = tokio::spawn(async move { watcher.next().await });
        tokio::task::yield_now().await;
        events.publish(&Event::Store { store: "redis", state: "down" });
        let Received::Event(event) = waiting.await.unwrap() else { panic!("events missed") };
        assert_eq!(
            (event.name, event.data.as_str()),
            ("store", r#"{"store":"redis","state":"down"}"#)
        );
    }
}
