//! The heart of Tidegate: policies, exact arithmetic, decisions, keys and the [`Store`] contract.
//!
//! This crate reads no clock, does no I/O, starts no runtime and contains no unsafe code; it needs
//! `alloc` and nothing else of `std`. Time is an argument everywhere. Programs use the crate
//! `tidegate`; this one is for those who write a store.
#![no_std]

extern crate alloc;

pub mod account;
mod bucket;
mod charge;
mod counter;
pub mod decide;
mod decimal;
mod decision;
mod exact;
mod failure;
pub mod hash;
mod key;
mod limit;
pub mod list;
mod policy;
mod rate;
mod receipt;
mod state;
mod store;
mod time;
mod wide;

pub use account::Account;
pub use bucket::Bucket;
pub use charge::{Charge, ChargeError, Correction, MAX_CHARGES, Target};
pub use counter::{Allowance, Concurrency, Quota};
pub use decimal::{Decimal, DecimalError};
pub use decision::{Decision, Denial, Grant, Outcome, Outcomes, Retry, Settlement};
pub use exact::Exact;
pub use failure::FailureRule;
pub use key::{Key, KeyBuf, KeyError, MAX_KEY_BYTES};
pub use limit::{Change, Limit, LimitError, Revision};
pub use policy::{Policy, PolicyBuilder, PolicyError};
pub use rate::{Rate, RateError};
pub use receipt::{Place, Receipt, ReceiptError, Stamp};
pub use state::State;
pub use store::{Answer, Answers, Operation, Probe, Store, StoreError, Submission};
pub use time::{MAX_SPAN, Now, Time, WallTime, Windows, ceil_millis};
