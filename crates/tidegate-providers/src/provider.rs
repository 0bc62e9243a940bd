//! Names of providers and endpoints, and credentials.
//!
//! Names are in lower case, so `OpenAI` and `openai` are one provider with one bucket. A credential
//! is identified by its hash; only [`Credential::reveal`] returns its text.

use std::fmt;
use std::sync::Arc;

use crate::name::{lower_case_name, short_hash};

lower_case_name! {
    /// Name of a provider, in lower case.
    ///
    /// ```
    /// use tidegate_providers::Provider;
    /// assert_eq!(Provider::new("OpenAI"), Provider::new("openai"));
    /// assert_eq!(Provider::new(" Groq ").as_str(), "groq");
    /// ```
    Provider
}

lower_case_name! {
    /// Name of an endpoint, in lower case: `chat`, `embeddings`, or any name that a program gives
    /// to a group of its calls. An endpoint can have its own limits.
    Endpoint
}

impl Default for Endpoint {
    /// Returns the endpoint `chat`.
    fn default() -> Self {
        Self::new("chat")
    }
}

/// API key of a provider. Neither `Debug` nor `Display` shows it; [`id`](Self::id) is its hash.
///
/// ```
/// use tidegate_providers::Credential;
/// let key = Credential::new("sk-secret");
/// assert!(!format!("{key:?}").contains("secret"));
/// assert_eq!(key.id(), Credential::new("sk-secret").id());
/// assert_ne!(key.id(), Credential::new("sk-other").id());
/// assert_eq!(Credential::none().id(), "default");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    secret: Option<Arc<str>>,
    id: Arc<str>,
}

impl Credential {
    /// Creates a credential from a key as the provider issued it.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self { secret: Some(secret.into()), id: short_hash(secret).into() }
    }

    /// Creates an empty credential, for providers without keys and for calls that use the caller's
    /// key.
    #[must_use]
    pub fn none() -> Self {
        Self { secret: None, id: "default".into() }
    }

    /// Returns an identifier of the key that does not reveal it: its hash, or `default` without a
    /// key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key itself. Send it only to its provider.
    #[must_use]
    pub fn reveal(&self) -> Option<&str> {
        self.secret.as_deref()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credential").field(&self.id).finish()
    }
}
