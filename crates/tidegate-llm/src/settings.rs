//! What a model is loaded with: which modules are on, and their numbers.
//!
//! Every module is off unless somebody turns it on. Settings are valid once they exist: raw keys
//! are laid over them by `merged`, which replaces what is given, keeps what is not, and refuses
//! everything that is wrong at once. Nothing here reads a file or the environment; that is the
//! business of programs, and of `tidegate-config`.

use tidegate_providers::Provider;

mod concurrency;
mod fallback;
mod rate_limit;
mod retry;

pub(crate) use concurrency::concurrency_of;
pub use concurrency::{
    Configured, DEFAULT_CONCURRENCY_CAP, Warning, default_concurrency, resolve_concurrency,
    resolve_concurrency_cap,
};
pub use fallback::{FallbackOverrides, FallbackSettings, FallbackTarget};
pub use rate_limit::{RateLimitOverrides, RateLimitSettings};
pub use retry::{RetryOverrides, RetrySettings};

/// The settings of all modules.
///
/// ```
/// use tidegate_llm::settings::{RateLimitOverrides, Settings};
/// let settings = Settings::of(&"ollama".into());
/// assert!(!settings.rate_limit.enabled && !settings.retry.enabled);
/// let faster = RateLimitOverrides { requests_per_minute: Some(120), ..Default::default() };
/// let rate_limit = settings.rate_limit.merged(&faster)?;
/// assert_eq!(rate_limit.burst().get(), 60, "what is not given stays");
/// # Ok::<(), tidegate_llm::plan::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Waiting for a permit before each attempt.
    pub rate_limit: RateLimitSettings,
    /// Trying again.
    pub retry: RetrySettings,
    /// Turning to the next provider.
    pub fallback: FallbackSettings,
}

impl Settings {
    /// The defaults for a provider.
    #[must_use]
    pub fn of(provider: &Provider) -> Self {
        Self {
            rate_limit: RateLimitSettings::default(),
            retry: RetrySettings::of(provider),
            fallback: FallbackSettings::default(),
        }
    }
}
