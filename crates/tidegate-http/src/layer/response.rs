//! From a decision to the end of the response: refusals, header fields, settlement.

pub(super) mod admitted;
pub(super) mod body;
pub(super) mod future;
pub(super) mod pending_settlement;
pub(super) mod render;
pub(super) mod response_summary;
