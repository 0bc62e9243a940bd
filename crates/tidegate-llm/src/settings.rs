//! What a model is loaded with: which modules are on, and their numbers.
//!
//! Every module is off unless a program turns it on. A registry has settings for all models, and a
//! model may be loaded with others: what they give replaces what the registry has, the rest stays.
//! Values are checked when a model is loaded, all at once. Nothing here reads a file or the
//! environment: programs do that, and `tidegate-config`.

mod concurrency;
mod fallback;
mod rate_limit;
mod retry;

pub(crate) use concurrency::concurrency_of;
pub use concurrency::{
    DEFAULT_CONCURRENCY_CAP, Warning, default_concurrency, resolve_concurrency,
    resolve_concurrency_cap,
};
pub(crate) use fallback::{ChainLink, FallbackSettings};
pub use rate_limit::RateLimitSettings;
pub(crate) use retry::RetryNumbers;
pub use retry::{RetrySettings, default_retries};
