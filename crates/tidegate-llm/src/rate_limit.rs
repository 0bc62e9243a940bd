//! Permits for calls: one reservation over requests, tokens and concurrency, settled with what was
//! really used, corrected by what providers tell.
//!
//! An [`Account`] is what all calls with one credential share. Limits come from three places: those
//! that were set, those that a provider tells in header fields and error bodies, and where it tells
//! nothing, a concurrency that adapts. A [`RateLimitLayer`] puts an account around an adapter; the
//! same account serves any number of them.
//!
//! - A call is charged once, all-or-nothing, when it leaves. No two waits in a row, nothing spent
//!   ahead, nothing lost when a caller goes away.
//! - Tokens are reserved by the provider's own rule and settled by it. Which rule that
//!   is, is learned.
//! - A bucket of tokens holds what the provider's does, a minute's worth. What a provider says is left
//!   corrects it, upwards at once, downwards once the report has proved true.
//! - A throttle closes the model for all callers, and it reopens paced, not all at once.
//! - A quota of a day or of money closes the model with an error: nobody waits for tomorrow.

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
pub use bucket::own_engine;
pub use builder::{AccountBuilder, log_pool};
pub use footprint::account_footprint;
pub use limit_view::{LimitView, QueueView};
pub use limits::AccountLimits;
pub use model_name::bounded as bounded_model_name;
pub use reservation::Reservation;
#[cfg(test)]
pub(crate) use service::RateLimit;
pub use service::RateLimitLayer;
#[cfg(test)]
pub(crate) use token_accounting::{OutputCharge, TokenAccounting};
