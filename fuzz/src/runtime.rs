//! A runtime with virtual time for async targets, so that waits take no real time.

use std::time::Duration;

use tokio::runtime::Builder;

/// Timeout in virtual time; all timeouts of the product are shorter.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// Runs a future to completion, and stops all tasks that it started.
///
/// # Panics
/// If it takes longer than a day of virtual time, because then it hangs.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONGEST, future)
            .await
            .expect("the target hangs: no result within a day of virtual time")
    })
}
