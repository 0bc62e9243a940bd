//! Keys as lists of texts; commands with the same key share a limit.
//!
//! Any function from a provider and a request to texts can derive keys. The provider is the one
//! that the request names, or else the one inferred by the handler's table. The lists become
//! [`KeyBuf`](tidegate::KeyBuf)s, in which different lists never collide.

use tidegate_providers::{Endpoint, Provider};

use super::planner::PlanRequest;
use super::tier::tier_name;

/// Derives the key of a command.
pub(crate) type KeyExtractor = dyn Fn(&Provider, &PlanRequest) -> Vec<String> + Send + Sync;

/// Returns a key of provider, model and tier, in lower case. This is the default. A missing tier is
/// `unknown`, so that such commands share no bucket with those of a real tier.
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

/// Returns a key of `user` and the user's name, or `default` without a user.
#[must_use]
pub fn by_user(_provider: &Provider, request: &PlanRequest) -> Vec<String> {
    vec!["user".to_owned(), request.user_name().unwrap_or("default").to_owned()]
}

/// Returns a key of provider and endpoint, for providers that limit each endpoint separately. The
/// default endpoint is `chat`.
#[must_use]
pub fn by_endpoint(provider: &Provider, request: &PlanRequest) -> Vec<String> {
    let endpoint = request.endpoint_name().map_or_else(Endpoint::default, Endpoint::new);
    vec![provider.to_string(), endpoint.as_str().to_owned()]
}
