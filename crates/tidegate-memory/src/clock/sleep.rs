//! Sleeping until a clock has moved.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::{ClockSource, ClockWatcher, TimerBackoff};

/// Notifies a sleeping task.
#[derive(Default)]
struct Moved(Notify);

impl ClockWatcher for Moved {
    fn on_move(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Waits until a clock has moved forward by `span`, and returns by how much it has moved. The
/// machine's timers are used only if the clock does not notify. A clock that is set back delays the
/// end only by the time that it shows again.
pub(crate) async fn sleep(clock: &ClockSource, span: Duration) -> Duration {
    let moved = Arc::new(Moved::default());
    let watcher: Weak<Moved> = Arc::downgrade(&moved);
    let is_watched = clock.watch(watcher);
    let (mut timers, mut has_fired) = (TimerBackoff::default(), false);
    let (mut last, mut elapsed) = (clock.now(), Duration::ZERO);
    while elapsed < span {
        if is_watched {
            moved.0.notified().await;
        } else {
            tokio::time::sleep(timers.span(span - elapsed, last, has_fired)).await;
            has_fired = true;
        }
        let now = clock.now();
        elapsed += now.since(last);
        last = now;
    }
    elapsed
}
