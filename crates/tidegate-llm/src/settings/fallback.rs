//! The settings of the fallback module.

use serde::{Deserialize, Serialize};
use tidegate_providers::Provider;

use crate::plan::{Checks, Invalid, Rule};

/// Whether calls turn to another provider, and to which ones.
///
/// ```
/// use tidegate_llm::mock::Mock;
/// use tidegate_llm::models::Models;
/// use tidegate_llm::settings::FallbackSettings;
///
/// let models = Models::builder()
///     .backend("mock", Mock::new("mock"))
///     .backend("other", Mock::new("other"))
///     .build();
/// let chain = FallbackSettings::to(["other/small"]);
/// let model = models.load_model("mock", "any").fallback(chain).build()?;
/// assert_eq!(model.to_string(), "Fallback(mock/any)");
/// # Ok::<(), tidegate_llm::models::LoadError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct FallbackSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<Vec<String>>,
}

/// A provider, and perhaps one of its models; without one it is the provider's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainLink {
    pub(crate) provider: Provider,
    pub(crate) model: Option<String>,
}

/// A chain that is longer hides that nobody answers.
const MOST_TARGETS: usize = 10;

impl FallbackSettings {
    /// The providers to turn to, in this order, at most ten: `anthropic`, or a model of it as
    /// `anthropic/claude-sonnet`.
    pub fn to(chain: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { enabled: None, chain: Some(chain.into_iter().map(Into::into).collect()) }
    }

    /// Whether the module is on. Default: off in a registry, on for a model that is loaded with
    /// settings.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// These settings with everything that is given in `overrides` in place of what is here.
    pub(crate) fn merged(self, overrides: &Self) -> Self {
        Self {
            enabled: overrides.enabled.or(self.enabled),
            chain: overrides.chain.clone().or(self.chain),
        }
    }

    pub(crate) const fn is_enabled(&self) -> Option<bool> {
        self.enabled
    }

    /// The chain of a module that is on.
    ///
    /// # Errors
    /// When a target is none, there are more than ten, or there is none.
    pub(crate) fn chain(&self) -> Result<Vec<ChainLink>, Invalid> {
        let mut checks = Checks::default();
        let given = self.chain.as_deref().unwrap_or_default();
        let chain = checks.check("chain", given, |given| chain(given));
        checks.finish(chain.unwrap_or_default())
    }
}

impl From<bool> for FallbackSettings {
    fn from(enabled: bool) -> Self {
        Self::default().enabled(enabled)
    }
}

fn chain(given: &[String]) -> Result<Vec<ChainLink>, Rule> {
    if given.is_empty() {
        return Err(Rule::Missing);
    }
    if given.len() > MOST_TARGETS {
        return Err(Rule::TooMany(MOST_TARGETS));
    }
    given.iter().map(|text| link(text).ok_or(Rule::Target)).collect()
}

/// Models may have slashes of their own, so the first one is ours.
fn link(text: &str) -> Option<ChainLink> {
    let (provider, model) = match text.split_once('/') {
        Some((provider, model)) => (provider, Some(model.trim())),
        None => (text, None),
    };
    let provider = Provider::new(provider);
    let said = !provider.as_str().is_empty() && model.is_none_or(|model| !model.is_empty());
    said.then(|| ChainLink { provider, model: model.map(ToOwned::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_its_targets() {
        let chain = |text: &str| {
            let settings: FallbackSettings = serde_json::from_str(text).unwrap();
            settings.chain().map_err(|error| error.to_string())
        };
        let links =
            chain(r#"{ "enabled": true, "chain": ["Anthropic", "openrouter/meta/llama"] }"#);
        let links = links.unwrap();
        assert_eq!((links[0].provider.as_str(), links[0].model.as_deref()), ("anthropic", None));
        let model = links[1].model.as_deref();
        assert_eq!((links[1].provider.as_str(), model), ("openrouter", Some("meta/llama")));
        let eleven = format!(r#"{{ "chain": [{}] }}"#, ["\"a\""; 11].join(","));
        assert!(chain(&eleven).unwrap_err().ends_with("must have at most 10 items"));
        let nobody = "chain = []: must be given where the module is enabled";
        assert_eq!(chain(r#"{ "enabled": true }"#).unwrap_err(), nobody);
        assert_eq!(chain(r#"{ "enabled": true, "chain": [] }"#).unwrap_err(), nobody);
        for target in ["", "/x", "anthropic/"] {
            let error = chain(&format!(r#"{{ "chain": ["{target}"] }}"#));
            assert!(error.unwrap_err().contains("must name providers"), "{target:?}");
        }
    }
}
