//! Captures log lines.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Captured log lines. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

/// With a single dispatcher, a callsite caches whether the thread that reached it first was
/// interested. A second dispatcher prevents a concurrent test from disabling it.
static SECOND_DISPATCH: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));

impl Log {
    /// Runs `action` and captures its log.
    pub(crate) fn capture(&self, action: impl FnOnce()) {
        LazyLock::force(&SECOND_DISPATCH);
        tracing::subscriber::with_default(self.clone(), action);
    }

    /// Returns the number of lines that contain `text`. A line is the message followed by the
    /// fields.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }
}

impl Subscriber for Log {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            // The message comes first, whatever the order of the fields.
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}
