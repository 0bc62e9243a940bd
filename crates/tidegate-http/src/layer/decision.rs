//! From a request to its decision: what it is charged, how the store is called, and how the result
//! is judged.

pub(super) mod decision_future;
mod judge;
mod judge_admission;
pub(super) mod limits;
pub(super) mod pending_decision;
pub(super) mod policy_cache;
pub(super) mod request_decision;
pub(super) mod rule;
pub(super) mod tiers;
