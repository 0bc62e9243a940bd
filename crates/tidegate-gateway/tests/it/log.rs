//! What the log is told, in lines.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// A log that is kept. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

/// With one listener alone, a place that logs for the first time goes by whether its own thread
/// listens, and remembers that: a test beside could silence it.
static SECOND_DISPATCH: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));

impl Log {
    /// Does something, and hears what is logged of it.
    pub(crate) fn capture(&self, action: impl FnOnce()) {
        LazyLock::force(&SECOND_DISPATCH);
        tracing::subscriber::with_default(self.clone(), action);
    }

    /// How many lines have these words. A line is the message, and then the fields.
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
            // Comes first, whatever the order.
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => self.0.push_str(&format!(" {name}={value:?}")),
        }
    }
}
