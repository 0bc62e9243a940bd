//! Core of Tidegate: policies, exact arithmetic, decisions, keys and the store contracts.
//!
//! This crate reads no clock, does no I/O, starts no runtime and contains no unsafe code. It is
//! `no_std` and needs only `alloc`. Time is always passed in as an argument. Applications use the
//! `tidegate` crate; depend on this one to implement a store: [`TakeStore`], with one method for
//! token buckets, or the whole [`Store`] contract.
#![no_std]

extern crate alloc;

pub mod breaker;
mod charge;
pub mod decide;
mod decision;
mod failure;
pub mod hash;
mod key;
mod limit;
pub mod list;
mod policy;
mod receipt;
mod state;
mod store;
mod take_store;
mod time;

pub use charge::{Charge, ChargeError, Correction, MAX_CHARGES, Target};
pub use decide::bucket_entry::BucketEntry;
pub use decision::{Decision, Denial, Grant, Outcome, Outcomes, Retry, Settlement};
pub use failure::FailureRule;
pub use key::{AnyKey, Key, KeyBuf, KeyError, MAX_KEY_BYTES};
pub use limit::{Limit, LimitError, PolicyChange, Revision};
pub use policy::bucket::TokenBucket;
pub use policy::counter::{Allowance, Concurrency, Quota};
pub use policy::decimal::{Decimal, DecimalError};
pub use policy::exact::ExactTime;
pub use policy::rate::{Rate, RateError};
pub use policy::{Policy, PolicyBuilder, PolicyError};
pub use receipt::{BucketLocation, ChargeRecord, Receipt, ReceiptError};
pub use state::State;
pub use store::{Operation, Probe, Store, StoreError, StoreResponse, StoreResponses, Submission};
pub use take_store::{TakeFuture, TakeOnly, TakeStore, Unsupported};
pub use time::{MAX_SPAN, Now, Time, WallTime, Windows, ceil_millis};
