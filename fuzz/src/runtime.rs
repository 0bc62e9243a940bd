//! A runtime for targets that wait: one thread and virtual time, so that no input takes real time.

use std::time::Duration;

use tokio::runtime::Builder;

/// No answer may take longer than this, in virtual time: all time-outs of the product are shorter.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// Runs a future to its end, with all tasks that it starts, and leaves none of them behind.
///
/// # Panics
/// If it takes longer than a day of virtual time: then it waits for something that never comes.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONGEST, future).await.expect("an answer within a day")
    })
}
