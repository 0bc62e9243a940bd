//! Watches the configuration file, the database and the state of the store while the server runs.

use std::sync::Arc;
use std::time::Duration;

use tidegate::guard::GuardedStore;
use tokio::time::{MissedTickBehavior, interval};

use crate::configuration::{ActiveConfig, FileWatch};
use crate::events::Event;
use crate::listener::drain::StopSignal;

/// How often the state of the store is polled. This only delays events; the guard itself reacts at
/// once.
const STORE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Watches until the server stops.
pub(super) async fn sources(
    config: Arc<ActiveConfig>,
    store: Option<GuardedStore>,
    stop: StopSignal,
) {
    tokio::select! {
        () = stop.wait() => {}
        () = file(&config) => {}
        () = database(&config) => {}
        () = store_state(&config, store) => {}
    }
}

/// Reloads the configuration file whenever it changes.
async fn file(config: &ActiveConfig) {
    let path = config.current().plan.file.clone();
    let Some(path) = path else { return std::future::pending().await };
    let mut watch = FileWatch::new(&path);
    loop {
        watch.changed().await;
        config.reload_if_changed().await;
    }
}

/// Applies settings that another process wrote to the database.
async fn database(config: &ActiveConfig) {
    let Some(database) = config.parts().database.clone() else {
        return std::future::pending().await;
    };
    let mut revision = config.current().revision;
    loop {
        let stored = database.changed(revision).await;
        revision = stored.revision;
        config.apply_stored_changes(stored).await;
    }
}

/// Publishes an event when the store goes down or comes back.
async fn store_state(config: &ActiveConfig, store: Option<GuardedStore>) {
    let Some(store) = store else { return std::future::pending().await };
    let mut ticks = interval(STORE_POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_up = true;
    loop {
        ticks.tick().await;
        let is_up = store.is_up();
        if is_up != was_up {
            was_up = is_up;
            let state = if is_up { "up" } else { "down" };
            config.parts().events.publish(&Event::Store { store: "shared", state });
        }
    }
}
