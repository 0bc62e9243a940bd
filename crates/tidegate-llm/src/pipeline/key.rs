//! Keys as lists of texts; commands with the same key share their limits.
//!
//! Any function of the provider and the planned command can derive keys. The provider is the one
//! that the request names, or else the one inferred by the handler's table. The lists become
//! [`KeyBuf`](tidegate::KeyBuf)s, in which different lists never collide.

use tidegate_providers::{Endpoint, Provider};

use super::planned::Planned;
use crate::plan::tier_name;

/// Derives the key of a command.
pub(super) type KeyExtractor<C> = dyn Fn(&Provider, &Planned<C>) -> Vec<String> + Send + Sync;

/// Returns a key of provider, model and tier, in lower case. This is the default. A missing tier is
/// `unknown`, so that such commands share no bucket with those of a real tier.
///
/// ```
/// use tidegate_llm::pipeline::{Planned, by_model};
/// use tidegate_llm::plan::{Plan, PlanRequest};
/// let request = PlanRequest::new().model("gpt-4o").tier("tier_2");
/// let planned = Planned::new((), Plan::default()).with_request(&request);
/// assert_eq!(by_model(&"openai".into(), &planned), ["openai", "gpt-4o", "tier_2"]);
/// ```
#[must_use]
pub fn by_model<C>(provider: &Provider, planned: &Planned<C>) -> Vec<String> {
    let request = &planned.request;
    let tier = tier_name(request.tier_name().unwrap_or("unknown"));
    vec![provider.to_string(), request.model_or_default().to_lowercase(), tier]
}

/// Returns a key of `user` and the user of the request, or `default` without a user.
#[must_use]
pub fn by_user<C>(_provider: &Provider, planned: &Planned<C>) -> Vec<String> {
    vec!["user".to_owned(), planned.request.user_name().unwrap_or("default").to_owned()]
}

/// Returns a key of provider and endpoint, for providers that limit each endpoint separately. The
/// default endpoint is `chat`.
#[must_use]
pub fn by_endpoint<C>(provider: &Provider, planned: &Planned<C>) -> Vec<String> {
    let endpoint = planned.request.endpoint_name().map_or_else(Endpoint::default, Endpoint::new);
    vec![provider.to_string(), endpoint.as_str().to_owned()]
}
