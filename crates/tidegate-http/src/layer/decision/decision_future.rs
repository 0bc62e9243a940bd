//! A decision of a shared store, which may outlive its caller.
//!
//! When the caller disconnects, the store may already have charged. If that leaves slots to release
//! or a charge to settle, a task awaits the decision, and the request is settled as one without a
//! response. Otherwise no task is started, and the charge, if any, stays spent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::pending_decision::{PendingDecision, StoreDecision};
use crate::layer::settings::SharedSettings;

type BoxedDecision = Pin<Box<dyn Future<Output = (PendingDecision, StoreDecision)> + Send>>;

/// A decision in progress.
pub(crate) struct DecisionFuture {
    /// The running call; `None` before the first poll and after the last.
    running: Option<BoxedDecision>,
    /// The request to decide; `None` once the call has started.
    pending: Option<PendingDecision>,
    needs_settlement: bool,
    pub(crate) settings: SharedSettings,
}

impl DecisionFuture {
    pub(crate) fn new(settings: &SharedSettings, pending: PendingDecision) -> Self {
        let needs_settlement = settings.needs_settlement(&pending);
        Self { running: None, pending: Some(pending), needs_settlement, settings: settings.clone() }
    }
}

impl Future for DecisionFuture {
    type Output = (PendingDecision, StoreDecision);

    #[expect(clippy::panic, reason = "polling a completed future is a bug in the caller")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(pending) = self.pending.take() {
            let settings = self.settings.clone();
            self.running = Some(Box::pin(async move {
                let decision = settings.decide(&pending).await;
                (pending, decision)
            }));
        }
        // Taken out, so that `drop` does not poll it again if the store panics.
        let Some(mut running) = self.running.take() else { panic!("polled after completion") };
        let polled = running.as_mut().poll(cx);
        if polled.is_pending() {
            self.running = Some(running);
        }
        polled
    }
}

impl Drop for DecisionFuture {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        if !self.needs_settlement {
            return;
        }
        let settings = self.settings.clone();
        let settled = self.settings.store().is_some_and(|store| {
            store.detach(async move {
                let (pending, decision) = running.await;
                // Dropping the admitted request settles it.
                drop(settings.judge(pending, decision, |_| ()));
            })
        });
        if !settled {
            self.settings.log.no_runtime();
        }
    }
}
