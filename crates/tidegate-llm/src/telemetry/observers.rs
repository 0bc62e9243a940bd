//! Several observers in one.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::breaker::BreakerState;
use tidegate_providers::{Class, Provider};

use super::{Acquired, Observer, tracing_observer};

/// The observers that were added so far, else [`tracing_observer`].
#[derive(Clone, Debug)]
pub(crate) struct Observers {
    /// Notifies all of them.
    all: Arc<dyn Observer>,
    is_default: bool,
}

impl Default for Observers {
    fn default() -> Self {
        Self { all: tracing_observer(), is_default: true }
    }
}

impl Observers {
    /// Adds an observer. It is notified after those added before.
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        self.all = match std::mem::take(&mut self.is_default) {
            true => observer,
            false => both_observers(self.all.clone(), observer),
        };
    }

    /// Returns an observer that notifies all of them.
    pub(crate) const fn get(&self) -> &Arc<dyn Observer> {
        &self.all
    }
}

/// Returns an observer that notifies two observers, in this order.
///
/// ```
/// use tidegate_llm::telemetry::{both_observers, metrics_observer, tracing_observer};
/// let observer = both_observers(tracing_observer(), metrics_observer());
/// ```
#[must_use]
pub fn both_observers(first: Arc<dyn Observer>, second: Arc<dyn Observer>) -> Arc<dyn Observer> {
    Arc::new(Both { first, second })
}

#[derive(Debug)]
struct Both {
    first: Arc<dyn Observer>,
    second: Arc<dyn Observer>,
}

impl Both {
    fn each(&self, notify: impl Fn(&dyn Observer)) {
        notify(&*self.first);
        notify(&*self.second);
    }
}

impl Observer for Both {
    fn acquired(&self, acquired: &Acquired<'_>) {
        self.each(|observer| observer.acquired(acquired));
    }

    fn refused(&self, provider: &Provider, limited_by: Option<&'static str>) {
        self.each(|observer| observer.refused(provider, limited_by));
    }

    fn wait_started(&self, provider: &Provider) {
        self.each(|observer| observer.wait_started(provider));
    }

    fn wait_ended(&self, provider: &Provider) {
        self.each(|observer| observer.wait_ended(provider));
    }

    fn call_started(&self, provider: &Provider) {
        self.each(|observer| observer.call_started(provider));
    }

    fn call_ended(&self, provider: &Provider) {
        self.each(|observer| observer.call_ended(provider));
    }

    fn throttled(&self, provider: &Provider, limiter_key: &str, pause: Duration) {
        self.each(|observer| observer.throttled(provider, limiter_key, pause));
    }

    fn slowed_down(&self, provider: &Provider, limiter_key: &str) {
        self.each(|observer| observer.slowed_down(provider, limiter_key));
    }

    fn failed(
        &self,
        provider: &Provider,
        class: Class,
        attempt: u32,
        next_after: Option<Duration>,
    ) {
        self.each(|observer| observer.failed(provider, class, attempt, next_after));
    }

    fn recovered(&self, provider: &Provider, retries: u32) {
        self.each(|observer| observer.recovered(provider, retries));
    }

    fn breaker_changed(&self, provider: &Provider, state: BreakerState) {
        self.each(|observer| observer.breaker_changed(provider, state));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records the names of its notifications.
    #[derive(Debug, Default)]
    struct Recorder(Mutex<Vec<&'static str>>);

    impl Recorder {
        fn push(&self, name: &'static str) {
            self.0.lock().unwrap().push(name);
        }
    }

    impl Observer for Recorder {
        fn acquired(&self, _: &Acquired<'_>) {
            self.push("acquired");
        }

        fn refused(&self, _: &Provider, _: Option<&'static str>) {
            self.push("refused");
        }

        fn wait_started(&self, _: &Provider) {
            self.push("wait_started");
        }

        fn wait_ended(&self, _: &Provider) {
            self.push("wait_ended");
        }

        fn call_started(&self, _: &Provider) {
            self.push("call_started");
        }

        fn call_ended(&self, _: &Provider) {
            self.push("call_ended");
        }

        fn throttled(&self, _: &Provider, _: &str, _: Duration) {
            self.push("throttled");
        }

        fn slowed_down(&self, _: &Provider, _: &str) {
            self.push("slowed_down");
        }

        fn failed(&self, _: &Provider, _: Class, _: u32, _: Option<Duration>) {
            self.push("failed");
        }

        fn recovered(&self, _: &Provider, _: u32) {
            self.push("recovered");
        }

        fn breaker_changed(&self, _: &Provider, _: BreakerState) {
            self.push("breaker_changed");
        }
    }

    #[test]
    fn every_observer_gets_every_notification() {
        let recorders: [Arc<Recorder>; 3] = Default::default();
        let mut observers = Observers::default();
        recorders.iter().for_each(|recorder| observers.add(recorder.clone()));
        let (all, provider) = (observers.get(), Provider::new("openai"));
        all.acquired(&Acquired::new(&provider, "key"));
        all.refused(&provider, None);
        all.wait_started(&provider);
        all.wait_ended(&provider);
        all.call_started(&provider);
        all.call_ended(&provider);
        all.throttled(&provider, "key", Duration::ZERO);
        all.slowed_down(&provider, "key");
        all.failed(&provider, Class::Transient, 1, None);
        all.recovered(&provider, 1);
        all.breaker_changed(&provider, BreakerState::Open);
        for recorder in recorders {
            let seen = [
                "acquired",
                "refused",
                "wait_started",
                "wait_ended",
                "call_started",
                "call_ended",
                "throttled",
                "slowed_down",
                "failed",
                "recovered",
                "breaker_changed",
            ];
            assert_eq!(*recorder.0.lock().unwrap(), seen);
        }
    }
}
