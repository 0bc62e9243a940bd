//! Any function.

use std::fmt;

use tidegate_llm::Class;
use tidegate_llm::retry::RetryLayer;
use tidegate_llm::settings::default_retries;

/// The error of an HTTP library.
#[derive(Debug)]
pub struct HttpError {
    pub status: u16,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.status)
    }
}

/// `_is_rate_limit_error`, with the class of each status instead of a yes or no.
fn class(error: &HttpError) -> Class {
    match error.status {
        429 => Class::RateLimited { after: None, dimension: None },
        503 | 529 => Class::Overloaded,
        500 | 502 => Class::Transient,
        401 | 403 => Class::CredentialRejected,
        413 => Class::TooLarge,
        _ => Class::BadRequest,
    }
}

/// `@exponential_backoff_retry` for a function of your own, with the defaults of a provider.
pub async fn with_retries<T, A>(
    provider: &str,
    function: &str,
    call: impl FnMut() -> A,
) -> Result<T, HttpError>
where
    A: Future<Output = Result<T, HttpError>>,
{
    let (retries, base) = default_retries(&provider.into());
    let layer = RetryLayer::new(provider).max_retries(retries).base_delay(base).function(function);
    layer.retry(class, call).await
}
