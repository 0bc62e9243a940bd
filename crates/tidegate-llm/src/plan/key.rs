//! Keys: who shares a limit, as a list of texts.
//!
//! The lists become [`KeyBuf`]s, in which different lists never meet whatever stands in them.

use std::fmt;
use std::sync::LazyLock;

use tidegate::KeyBuf;
use tidegate_providers::{Endpoint, Provider};

use super::infer::Inference;
use super::planner::DEFAULT_MODEL;
use super::tier::tier_name;

/// What is known of a call when its key is made. All of it is as the program gave it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyContext<'a> {
    /// The provider, if it was named.
    pub provider: Option<&'a str>,
    /// The model, if it was named.
    pub model: Option<&'a str>,
    /// The tier, if it was named.
    pub tier: Option<&'a str>,
    /// On whose behalf.
    pub user: Option<&'a str>,
    /// What it uses of the provider's API; `chat` if unset.
    pub endpoint: Option<&'a Endpoint>,
}

impl<'a> KeyContext<'a> {
    fn model(&self) -> &'a str {
        self.model.unwrap_or(DEFAULT_MODEL)
    }

    /// The provider that was named, or else that of the model by a table.
    #[must_use]
    pub fn provider(&self, inference: &Inference) -> Provider {
        inference.named_or_inferred(self.provider, self.model())
    }
}

/// Makes the key of a call. Any function from a context to texts is one.
///
/// ```
/// use tidegate_llm::plan::{KeyContext, KeyExtractor, by_user};
/// let context = KeyContext { user: Some("ann"), tier: Some("tier_2"), ..KeyContext::default() };
/// assert_eq!(by_user().parts(&context), ["user", "ann"]);
/// let by_tier = |context: &KeyContext<'_>| vec![context.tier.unwrap_or("none").to_owned()];
/// assert_eq!(by_tier.key(&context).as_key().name(), "tier_2");
/// ```
pub trait KeyExtractor: Send + Sync {
    /// The parts of the key.
    fn parts(&self, context: &KeyContext<'_>) -> Vec<String>;

    /// The parts as a key.
    fn key(&self, context: &KeyContext<'_>) -> KeyBuf {
        KeyBuf::from_parts(self.parts(context).iter().map(String::as_str))
    }

    /// The provider of the call, which is a label of metrics and so must be one of few. Default:
    /// the one that was named, or else that of the model by [`Inference::default`].
    fn provider(&self, context: &KeyContext<'_>) -> Provider {
        context.provider(&INFERENCE)
    }
}

/// The default table, which is not worth making for each call.
static INFERENCE: LazyLock<Inference> = LazyLock::new(Inference::default);

impl<F: Fn(&KeyContext<'_>) -> Vec<String> + Send + Sync> KeyExtractor for F {
    fn parts(&self, context: &KeyContext<'_>) -> Vec<String> {
        self(context)
    }
}

impl fmt::Debug for dyn KeyExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyExtractor")
    }
}

/// Keys by provider, model and tier, in lower case: the default. A provider that was not named is
/// inferred by the table; a tier that was not named is `unknown`, since a bucket must not be shared on
/// a guess.
#[must_use]
pub const fn by_model(inference: Inference) -> impl KeyExtractor {
    ByModel { inference }
}

/// Keys by user: `user` and the name, which is `default` if there is none.
#[must_use]
pub const fn by_user() -> impl KeyExtractor {
    ByUser
}

/// Keys by provider and endpoint, for limits that each use of an API has for itself. A provider that
/// was not named is inferred by the table.
#[must_use]
pub const fn by_endpoint(inference: Inference) -> impl KeyExtractor {
    ByEndpoint { inference }
}

struct ByModel {
    inference: Inference,
}

impl KeyExtractor for ByModel {
    fn parts(&self, context: &KeyContext<'_>) -> Vec<String> {
        let provider = self.provider(context);
        let tier = tier_name(context.tier.unwrap_or("unknown"));
        vec![provider.to_string(), context.model().to_lowercase(), tier]
    }

    fn provider(&self, context: &KeyContext<'_>) -> Provider {
        context.provider(&self.inference)
    }
}

struct ByUser;

impl KeyExtractor for ByUser {
    fn parts(&self, context: &KeyContext<'_>) -> Vec<String> {
        vec!["user".to_owned(), context.user.unwrap_or("default").to_owned()]
    }
}

struct ByEndpoint {
    inference: Inference,
}

impl KeyExtractor for ByEndpoint {
    fn parts(&self, context: &KeyContext<'_>) -> Vec<String> {
        let provider = self.provider(context);
        let endpoint = context.endpoint.cloned().unwrap_or_default();
        vec![provider.to_string(), endpoint.as_str().to_owned()]
    }

    fn provider(&self, context: &KeyContext<'_>) -> Provider {
        context.provider(&self.inference)
    }
}
