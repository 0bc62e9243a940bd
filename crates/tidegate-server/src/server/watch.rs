//! What the configuration comes from, watched while the server runs: the file, the database, and the
//! state of the store, which people are told of.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Store;
use tidegate::guard::{Guarded, StoreState};
use tokio::time::{MissedTickBehavior, interval};

use crate::door::admin::By;
use crate::drain::Stop;
use crate::events::Event;
use crate::live::{FileWatch, Live};

/// How often the store is looked at. Its guard knows at once; this is for people.
const LOOK: Duration = Duration::from_millis(500);

/// Watches until told to stop.
pub(super) async fn sources(live: Arc<Live>, store: Option<Guarded<dyn Store>>, stop: Stop) {
    tokio::select! {
        () = stop.told() => {}
        () = file(&live) => {}
        () = database(&live) => {}
        () = store_state(&live, store) => {}
    }
}

/// Reads the file whenever it has changed.
async fn file(live: &Live) {
    let path = live.current().plan.file.clone();
    let Some(path) = path else { return std::future::pending().await };
    let mut watch = FileWatch::new(&path);
    loop {
        watch.changed().await;
        live.follow_file().await;
    }
}

/// Takes over what another process has written.
async fn database(live: &Live) {
    let Some(database) = live.parts().database.clone() else {
        return std::future::pending().await;
    };
    let mut revision = live.current().revision;
    loop {
        let stored = database.changed(revision).await;
        revision = stored.revision;
        live.take_over(stored, &By::ELSEWHERE).await;
    }
}

/// Tells people when the store goes away, and when it is back.
async fn store_state(live: &Live, store: Option<Guarded<dyn Store>>) {
    let Some(store) = store else { return std::future::pending().await };
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = StoreState::Up;
    loop {
        ticks.tick().await;
        let now = store.state();
        if now != known {
            known = now;
            let state = if now == StoreState::Up { "up" } else { "down" };
            live.parts().events.publish(&Event::Store { store: "shared", state });
        }
    }
}
