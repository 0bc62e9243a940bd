//! A decision of a shared store, which may outlive its caller.
//!
//! When the caller disconnects, the store may already have charged. If that leaves slots to release
//! or a charge to settle, a task awaits the decision, and the request is settled as one without a
//! response. Otherwise no task is started, and the charge, if any, stays spent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::pending_decision::{Answer, PendingDecision};
use crate::layer::settings::Shared;

type Asked = Pin<Box<dyn Future<Output = (PendingDecision, Answer)> + Send>>;

/// A decision in progress.
pub(crate) struct DecisionFuture {
    /// The running call; `None` before the first poll and after the last.
    asked: Option<Asked>,
    /// The request to decide; `None` once the call has started.
    pending: Option<PendingDecision>,
    owes: bool,
    pub(crate) settings: Shared,
}

impl DecisionFuture {
    pub(crate) fn on(settings: &Shared, pending: PendingDecision) -> Self {
        let owes = settings.owes(&pending);
        Self { asked: None, pending: Some(pending), owes, settings: settings.clone() }
    }
}

impl Future for DecisionFuture {
    type Output = (PendingDecision, Answer);

    #[expect(clippy::panic, reason = "polling a future after its end is a mistake of the caller")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(pending) = self.pending.take() {
            let settings = self.settings.clone();
            self.asked = Some(Box::pin(async move {
                let answer = settings.decide(&pending).await;
                (pending, answer)
            }));
        }
        // Taken out, so that `drop` does not poll it again if the store panics.
        let Some(mut asked) = self.asked.take() else { panic!("polled after its end") };
        let polled = asked.as_mut().poll(cx);
        if polled.is_pending() {
            self.asked = Some(asked);
        }
        polled
    }
}

impl Drop for DecisionFuture {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        if !self.owes {
            return;
        }
        let settings = self.settings.clone();
        let settled = self.settings.store().is_some_and(|store| {
            store.detach(async move {
                let (pending, answer) = asked.await;
                // Dropping the admitted request settles it.
                drop(settings.judge(pending, answer, |_| ()));
            })
        });
        if !settled {
            self.settings.log.no_runtime();
        }
    }
}
