//! The contenders: Tidegate, its peers, and minimal baselines ("floors").

pub(super) mod cell;
pub(super) mod clocks;
pub(super) mod flat;
pub(super) mod gate;
pub(super) mod governors;
pub(super) mod ours;
pub(super) mod peers;
pub(super) mod policy;
pub(super) mod role;
