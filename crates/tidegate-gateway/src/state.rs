//! State that outlives a request: the routing table, accounts, and the context of each call.

pub(crate) mod accounts;
pub(crate) mod call_context;
pub(crate) mod drain;
pub(crate) mod provider_state;
pub(crate) mod provider_status;
pub(crate) mod provider_view;
pub(crate) mod queue_limits;
pub(crate) mod queued_calls;
pub(crate) mod request_ids;
pub(crate) mod routing_table;
