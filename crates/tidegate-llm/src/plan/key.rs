//! Keys: who shares a limit, as a list of texts.
//!
//! Any function from a provider and a request to texts makes keys. The provider is the one that was
//! named, or else that of the model by the table of the handler. The lists become
//! [`KeyBuf`](tidegate::KeyBuf)s, in which different lists never meet whatever stands in them.

use tidegate_providers::{Endpoint, Provider};

use super::planner::PlanRequest;
use super::tier::tier_name;

/// Makes the key of a command.
pub(crate) type KeyExtractor = dyn Fn(&Provider, &PlanRequest) -> Vec<String> + Send + Sync;

/// Keys by provider, model and tier, in lower case: the default. A tier that was not named is
/// `unknown`, since a bucket must not be shared on a guess.
///
/// ```
/// use tidegate_llm::plan::{PlanRequest, by_model};
/// let request = PlanRequest::new().model("gpt-4o").tier("tier_2");
/// assert_eq!(by_model(&"openai".into(), &request), ["openai", "gpt-4o", "tier_2"]);
/// ```
#[must_use]
pub fn by_model(provider: &Provider, request: &PlanRequest) -> Vec<String> {
    let tier = tier_name(request.tier_name().unwrap_or("unknown"));
    vec![provider.to_string(), request.model_or_default().to_lowercase(), tier]
}

/// Keys by user: `user` and the name, which is `default` if there is none.
#[must_use]
pub fn by_user(_provider: &Provider, request: &PlanRequest) -> Vec<String> {
    vec!["user".to_owned(), request.user_name().unwrap_or("default").to_owned()]
}

/// Keys by provider and endpoint, for limits that each use of an API has for itself. An endpoint that
/// was not named is `chat`.
#[must_use]
pub fn by_endpoint(provider: &Provider, request: &PlanRequest) -> Vec<String> {
    let endpoint = request.endpoint_name().map_or_else(Endpoint::default, Endpoint::new);
    vec![provider.to_string(), endpoint.as_str().to_owned()]
}
