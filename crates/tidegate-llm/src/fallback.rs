//! Turning to the next provider before the first byte has reached the caller.
//!
//! A [`FallbackLayer`] has a chain of [`Target`]s behind the service that it wraps. They are tried
//! in order, each at most once, as long as the failure is one that another provider may not have:
//!
//! - Everything but a bad request: that one is bad elsewhere too. A key that is dead or a request
//!   that is too big is so for one provider only.
//! - A request that cannot be put into the words of one provider: nothing was sent, and another one
//!   may have words for it.
//! - A permit that is not to be had because the wait would be too long or the queue is full. Waiting
//!   itself is no failure: nobody is turned away from a provider that only lets them wait. A store
//!   or a program of ours that is broken is nobody else's affair, and goes to the caller.
//!
//! A call with a deadline tells every target what is left of it, and asks nobody when it is over.
//!
//! If all of them fail the caller gets the error of the first, since that is the provider it asked
//! for; the others are logged. If the first is out for good and another may do better later, the
//! error says both ([`CallError::Unrescued`](crate::CallError::Unrescued)), and a retry around has
//! something to try for. An answer that was handed out is not looked after any more. Whether
//! the first service is ready is passed on as it is: only calls fall back.

mod layer;
mod service;
mod suitability;
mod target;

pub use layer::{FallbackLayer, MAX_TARGETS};
pub use suitability::unsuitable;
pub use target::Target;
