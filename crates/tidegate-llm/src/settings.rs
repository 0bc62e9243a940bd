//! Settings of models: which modules are on, and their parameters.
//!
//! Every module is off by default. A registry has settings for all models; settings that a model is
//! loaded with override them one by one. Values are checked when a model is loaded, and all
//! violations are reported together. Nothing here reads files or the environment; `tidegate-config`
//! does.

mod concurrency;
mod fallback;
mod rate_limit;
mod retry;

pub(crate) use concurrency::concurrency_of;
pub use concurrency::{
    ConcurrencyWarning, DEFAULT_CONCURRENCY_CAP, default_concurrency, resolve_concurrency,
    resolve_concurrency_cap,
};
pub(crate) use fallback::{ChainLink, FallbackSettings};
pub use rate_limit::RateLimitSettings;
pub(crate) use retry::RetryParams;
pub use retry::{RetrySettings, default_retries};
