//! The caller's deadline: how long a store may be waited for on behalf of one task.
//!
//! No operation carries the caller's time, and none needs to: a deadline belongs to the task that
//! will give up, so the task carries it, through every engine and store that it asks.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static DEADLINE: Option<Instant>;
}

/// Runs a future of a caller who gives up after `deadline`: whatever it asks of a
/// [`Guarded`](super::Guarded) store is answered in three quarters of what is left of that, if
/// that is less than the time-out. The rest is the caller's, to act on the answer. Timers are exact
/// to a millisecond, so a deadline of a few of them is kept only as well as that.
///
/// What the store does not answer in that time is decided by the limit's rule, but as local where
/// that is open: a caller in a hurry is no outage. Nor does it take the store away from others:
/// that is left to a probe with the whole time-out.
///
/// The time counts from the call of this function. Of deadlines inside each other the nearest
/// counts. It holds for the task that awaits the future, not for tasks that this one spawns.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::guard::{Guarded, within};
/// use tidegate::{Engine, MemoryStore, Policy};
///
/// let store = Guarded::builder(Arc::new(MemoryStore::new())).build()?;
/// let engine = Engine::on(store);
/// let limiter = engine.limiter("api", Policy::per_second(10).build()?)?;
/// let take = async { limiter.take("alice").await };
/// assert!(within(Duration::from_millis(20), take).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub fn within<F: Future>(deadline: Duration, future: F) -> impl Future<Output = F::Output> {
    let own = Instant::now().checked_add(deadline);
    async move {
        let outer = DEADLINE.try_with(|outer| *outer).ok().flatten();
        // A deadline too far away to be an instant is none.
        let nearest = own.into_iter().chain(outer).min();
        DEADLINE.scope(nearest, future).await
    }
}

/// How long a store may take for the present task.
pub(super) fn time_for(timeout: Duration) -> Duration {
    let Ok(Some(deadline)) = DEADLINE.try_with(|deadline| *deadline) else { return timeout };
    let left = deadline.saturating_duration_since(Instant::now());
    timeout.min(left - left / 4)
}
