//! The caller's deadline: how long a task may wait for a store.
//!
//! No operation carries a deadline, and none needs to: a deadline belongs to the task that will
//! give up, so it is stored in the task and applies to every engine and store that the task calls.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static DEADLINE: Option<Instant>;
}

/// Runs a future on behalf of a caller that gives up after `deadline`.
///
/// A call to a [`GuardedStore`](super::GuardedStore) gets three quarters of the time left until the
/// deadline, if that is less than the timeout. The rest is for the caller to act on the answer.
/// Timers have a resolution of a millisecond, so a deadline of a few milliseconds is only that
/// precise.
///
/// What the store does not answer in that time is decided by the limit's failure rule, with local
/// in place of open: a short deadline is not an outage. It does not count as a failure of the store
/// either; a probe with the full timeout decides that.
///
/// The time counts from the call of this function. The nearest of nested deadlines applies. The
/// deadline holds for the task that awaits the future, not for tasks that it spawns.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::guard::{GuardedStore, with_deadline};
/// use tidegate::{Engine, MemoryStore, Policy};
///
/// let store = GuardedStore::builder(Arc::new(MemoryStore::new())).build()?;
/// let engine = Engine::on(store);
/// let limiter = engine.limiter("api", Policy::per_second(10).build()?)?;
/// let take = async { limiter.take("alice").await };
/// assert!(with_deadline(Duration::from_millis(20), take).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
pub fn with_deadline<F: Future>(deadline: Duration, future: F) -> impl Future<Output = F::Output> {
    let own = Instant::now().checked_add(deadline);
    async move {
        let outer = DEADLINE.try_with(|outer| *outer).ok().flatten();
        // A deadline too far away to be an `Instant` is no deadline.
        let nearest = own.into_iter().chain(outer).min();
        DEADLINE.scope(nearest, future).await
    }
}

/// Timeout for the current task.
pub(super) fn effective_timeout(timeout: Duration) -> Duration {
    let Ok(Some(deadline)) = DEADLINE.try_with(|deadline| *deadline) else { return timeout };
    let left = deadline.saturating_duration_since(Instant::now());
    timeout.min(left - left / 4)
}
