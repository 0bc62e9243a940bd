//! A decision of a shared store, which a caller may not wait for to its end.
//!
//! A store that has been asked may have charged when the caller goes away. Where something would be
//! owed for that, slots or a settlement, the answer is waited for in a task, and the request is
//! then settled as one without a response. Where nothing is owed, no task is started: the charge
//! stays spent, if it came to one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::pending_decision::{Answer, PendingDecision};
use crate::layer::settings::Shared;

type Asked = Pin<Box<dyn Future<Output = (PendingDecision, Answer)> + Send>>;

/// A decision under way.
pub(crate) struct DecisionFuture {
    /// `None` before the first poll and at the end.
    asked: Option<Asked>,
    /// What is to be asked; it is gone once it is.
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
        // Taken out, so that a store that panics is not asked again when this is dropped.
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
                // What comes of it is dropped, and by that it is settled.
                drop(settings.judge(pending, answer, |_| ()));
            })
        });
        if !settled {
            self.settings.log.no_runtime();
        }
    }
}
