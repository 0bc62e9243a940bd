//! Falling back to another provider before the first byte has reached the caller.
//!
//! A [`FallbackLayer`] has a chain of target providers behind the service that it wraps. They are
//! tried in order, each at most once, as long as another provider may succeed where one failed:
//!
//! - Every failure of a provider except a bad request, which is bad everywhere. A rejected
//!   credential or a request that is too large concerns one provider only.
//! - A request that cannot be expressed in the API of one provider: nothing was sent, and another
//!   API may support it.
//! - A permit that is not available: the wait would be longer than the call accepts, or became so,
//!   or the queue is full. Waiting itself is not a failure and never causes a fallback. Errors of the
//!   store or of this program go to the caller.
//! - An open circuit breaker, or a quota that is known to be exhausted. Nothing was sent then either.
//!
//! A call with a deadline passes the remaining time to each target, and tries no further target
//! when it has expired: a deadline that ended in the queue of one provider ends the call. A maximum
//! wait is for all providers together: what a call waited for a permit in vain is taken off.
//!
//! If all of them fail, the caller gets the error of the first provider, since that is the one it
//! called; the other errors are logged. If the first error is final but another provider may
//! succeed later, the error contains both
//! ([`CallError::FallbackFailed`](crate::CallError::FallbackFailed)), so that a retry layer outside
//! can retry. A response that was handed out is no longer watched. Readiness is that of the first
//! service: only calls fall back.

mod layer;
mod service;
mod suitability;
mod target;

pub use layer::{FallbackLayer, MAX_TARGETS};
pub use suitability::unsuitable_reason;
pub(crate) use target::Target;
