//! Reference client that always knows whether the provider would admit a call: it tries until one
//! is admitted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tower::ServiceExt as _;

use super::AGENTS;
use super::cell::Cell;
use crate::traffic::{Dice, adapter};

/// A call not refused within this time was admitted.
const REFUSAL_TIME: Duration = Duration::from_millis(1);

/// Returns how many calls are admitted in the measured time.
pub(super) async fn admitted(cell: &Cell) -> u64 {
    let simulator = cell.free_refusal_simulator();
    let (dice, still, start) = (Dice::new(7), Dice::no_delay(), Instant::now());
    let pause = (cell.length / 100).max(Duration::from_millis(10));
    let turn = Arc::new(Mutex::new(()));
    let agents = (0..AGENTS).map(|_| async {
        while cell.should_continue(0, start.elapsed()) {
            let next = turn.lock().await;
            let call = cell.call(&dice);
            let mut answer = Box::pin(adapter(&simulator, cell.dialect, &still).oneshot(call));
            match timeout(REFUSAL_TIME, &mut answer).await {
                Ok(Err(_)) => sleep(pause).await,
                Ok(Ok(answer)) => drop(answer.into_reply().await),
                Err(_) => {
                    drop(next);
                    if let Ok(answer) = answer.await {
                        drop(answer.into_reply().await);
                    }
                }
            }
        }
    });
    join_all(agents).await;
    cell.admitted(&simulator)
}

/// Returns how long all calls take without a limiter.
pub(super) async fn time(cell: &Cell) -> Duration {
    let simulator = cell.simulator();
    let (dice, start) = (Dice::new(7), Instant::now());
    let agents = (0..AGENTS).map(|_| async {
        for calls in 0.. {
            if !cell.should_continue(calls, start.elapsed()) {
                break;
            }
            let answer = adapter(&simulator, cell.dialect, &dice).oneshot(cell.call(&dice)).await;
            answer.unwrap().into_reply().await.unwrap();
        }
    });
    join_all(agents).await;
    start.elapsed()
}
