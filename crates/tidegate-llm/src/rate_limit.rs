//! Rate limits for LLM calls: one reservation covers requests, tokens and concurrency, is settled
//! with real usage, and is corrected by the limits that providers report.
//!
//! An [`Account`] is the state that all calls with one credential share. Limits come from three
//! sources: configuration, response headers and error bodies, and, where a provider reports
//! nothing, adaptive concurrency. A [`RateLimitLayer`] applies an account to an adapter; several
//! layers can share one account.
//!
//! - A call is charged to all of its limits at once, when it is sent. There is one wait, nothing is
//!   charged ahead of time, and a cancelled caller loses nothing.
//! - Tokens are reserved and settled by the provider's own accounting, which is inferred if it is
//!   not documented.
//! - A token bucket holds a minute's worth, as the provider's does. Reported remaining amounts
//!   raise it at once, and lower it once reports have proved reliable.
//! - A 429 closes the model for all callers, and it reopens at a limited rate.
//! - An exhausted daily or monetary quota fails calls immediately instead of queueing them.

mod account;
mod account_group;
mod account_table;
mod all_keys;
mod bucket;
mod builder;
mod call_queue;
mod charge_inference;
mod estimate;
mod footprint;
mod limit_tracker;
mod limit_view;
mod limits;
mod model_limits;
mod model_name;
mod model_pattern;
mod recent_rate;
mod reservation;
mod send_rate;
mod service;
mod slot_groups;
mod token_accounting;
mod wait_log;

pub use account::{Account, CONCURRENCY_CEILING, default_concurrency};
pub use account_group::AccountGroup;
pub use all_keys::ALL_KEYS_MULTIPLE;
pub(crate) use bucket::limit_name;
pub use bucket::local_engine;
pub use builder::AccountBuilder;
pub(crate) use builder::log_pool;
pub use footprint::account_footprint;
pub(crate) use limit_tracker::MIN_INTERVAL;
pub use limit_view::{LimitView, QueueView};
pub use limits::AccountLimits;
pub use model_name::bounded as bounded_model_name;
pub(crate) use model_pattern::ModelPattern;
pub use reservation::Reservation;
pub(crate) use reservation::{UsageSoFar, name_parts};
#[cfg(test)]
pub(crate) use service::RateLimit;
pub use service::RateLimitLayer;
#[cfg(test)]
pub(crate) use token_accounting::{OutputCharge, TokenAccounting};
