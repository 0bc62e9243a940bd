//! An admitted call, until it ends.
//!
//! Dropping a call ends it: a caller that disconnects is charged for what it was sent, its slot is
//! released, and the ledger records it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::calendar::Now;
use crate::ledger::CallEnding;
use crate::limits::charging::{CallCharge, Charging, FailedCalls};
use crate::limits::pool::Pool;
use crate::limits::quota::LimitSnapshot;
use crate::server::request::Tokens;
use crate::simulator::Shared;

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) number: u64,
    pub(crate) charging: Charging,
    pub(crate) taken: Now,
    pub(crate) admitted: CallCharge,
    /// The limits right after the call was charged.
    pub(crate) snapshot: LimitSnapshot,
    pub(crate) tokens: Tokens,
    /// Output tokens sent so far.
    pub(crate) sent: u64,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// How the call ends if the caller disconnects.
    pub(crate) ending_if_dropped: CallEnding,
    pub(crate) ended: bool,
}

impl Call {
    /// Returns the charge if the call ended now.
    pub(crate) fn charge(&self) -> CallCharge {
        self.charging.settled(self.admitted, self.tokens.input, self.tokens.cached, self.sent)
    }

    /// Marks the call as stalled: nothing more is sent.
    pub(crate) fn stall(&mut self) {
        self.ending_if_dropped = CallEnding::Stalled;
    }

    /// Ends the call. Has no effect the second time.
    pub(crate) fn end(&mut self, ending: CallEnding) {
        if self.ended {
            return;
        }
        self.ended = true;
        let charge = match (ending, self.charging.failed) {
            (CallEnding::Failed, FailedCalls::Free) => CallCharge::default(),
            (CallEnding::Failed, FailedCalls::Count) => self.admitted,
            _ => self.charge(),
        };
        let now = self.shared.now();
        self.pool.finish(now, self.taken, self.admitted, charge);
        self.permit = None;
        let used = match ending {
            CallEnding::Failed => CallCharge::default(),
            _ => CallCharge::of_use(self.tokens.input, self.sent),
        };
        self.shared.ledger.update(self.number, |entry| {
            (entry.charged, entry.used) = (charge, used);
        });
        self.shared.ledger.close(self.number, self.shared.elapsed(now), ending);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(self.ending_if_dropped);
    }
}
