//! A decision that the store must be waited for, and that a caller may not wait for to its end.
//!
//! A store that has been asked may have charged when the caller goes away. Where something would be
//! owed for that, slots or a settlement, the answer is waited for in a task, and the request is
//! then settled as one without a response. Where nothing is owed, no task is started: the charge
//! stays spent, if it came to one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::case::{Answer, Case};
use super::settings::Shared;

type Asked = Pin<Box<dyn Future<Output = (Case, Answer)> + Send>>;

/// A decision under way.
pub(super) struct Deciding {
    /// `None` before the first poll and at the end.
    asked: Option<Asked>,
    /// What is to be asked; it is gone once it is.
    case: Option<Case>,
    owes: bool,
    pub(super) settings: Shared,
}

impl Deciding {
    pub(super) fn on(settings: &Shared, case: Case) -> Self {
        let owes = settings.owes(&case);
        Self { asked: None, case: Some(case), owes, settings: settings.clone() }
    }
}

impl Future for Deciding {
    type Output = (Case, Answer);

    #[expect(clippy::panic, reason = "polling a future after its end is a mistake of the caller")]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(case) = self.case.take() {
            let settings = self.settings.clone();
            self.asked = Some(Box::pin(async move {
                let answer = settings.decide(&case).await;
                (case, answer)
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

impl Drop for Deciding {
    fn drop(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        if !self.owes {
            return;
        }
        let settings = self.settings.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let (case, answer) = asked.await;
                // What comes of it is dropped, and by that it is settled.
                drop(settings.judge(case, answer, |_| ()));
            })),
            Err(_) => settings.log.no_runtime(),
        }
    }
}
