//! Providers by name, and credentials by hash.
//!
//! A name is kept in lower case, so that `OpenAI` and `openai` are one provider with one bucket. A
//! credential is told apart from others by its hash; its text never leaves it by accident.

use std::fmt;
use std::sync::Arc;

use crate::name::{lower_case_name, short_hash};

lower_case_name! {
    /// The name of a provider, in lower case.
    ///
    /// ```
    /// use tidegate_providers::Provider;
    /// assert_eq!(Provider::new("OpenAI"), Provider::new("openai"));
    /// assert_eq!(Provider::new(" Groq ").as_str(), "groq");
    /// ```
    Provider
}

lower_case_name! {
    /// What of a provider's API a call uses: `chat`, `embeddings`, or any name that a program gives
    /// to some of its calls. An endpoint can have limits of its own.
    Endpoint
}

impl Default for Endpoint {
    /// `chat`.
    fn default() -> Self {
        Self::new("chat")
    }
}

/// A key to a provider. Neither `Debug` nor `Display` shows it; [`id`](Self::id) is its hash.
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
    /// A key, as the provider gave it.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self { secret: Some(secret.into()), id: short_hash(secret).into() }
    }

    /// No key: for providers that want none, and for those whose only key is somebody else's.
    #[must_use]
    pub fn none() -> Self {
        Self { secret: None, id: "default".into() }
    }

    /// What tells it apart from other keys of the provider, and says nothing about it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key itself, to be sent to its provider and nowhere else.
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
