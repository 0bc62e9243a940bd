//! Falling back to another provider before the first byte has reached the caller.
//!
//! A [`FallbackLayer`] has a chain of target providers behind the service that it wraps. They are
//! tried in order, each at most once, as long as another provider may succeed where one failed:
//!
//! - Every failure of a provider except a bad request, which is bad everywhere. A rejected
//!   credential or a request that is too large concerns one provider only.
//! - A request that cannot be expressed in the API of one provider: nothing was sent, and another
//!   API may support it.
//! - A permit that is not available because the wait would be too long or the queue is full.
//!   Waiting itself is not a failure and never causes a fallback. Errors of the store or of this
//!   program go to the caller.
//!
//! A call with a deadline passes the remaining time to each target, and tries no further target
//! when it has expired.
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
