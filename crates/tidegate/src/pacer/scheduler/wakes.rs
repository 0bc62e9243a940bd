//! Wakers to call, and wakers to drop, once no lock is held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Collects wakers. Waking and dropping a waker may both run any code, so both happen when this is
/// dropped, which must be after the lock is released. A waker that panics does not keep others from
/// being woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    wake: Vec<Waker>,
    discard: Vec<Waker>,
}

impl Wakes {
    pub(crate) fn wake(&mut self, waker: Waker) {
        self.wake.push(waker);
    }

    pub(crate) fn discard(&mut self, waker: Option<Waker>) {
        self.discard.extend(waker);
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        let mut panic = None;
        for waker in self.wake.drain(..) {
            if let Err(caught) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                panic = Some(caught);
            }
        }
        // The panic is propagated once all others have been woken.
        if let (Some(panic), false) = (panic, std::thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}
