//! Settings of the fallback module: the parsed chain of providers.

use tidegate_providers::Provider;

use crate::fallback::MAX_TARGETS;
use crate::plan::{Checks, InvalidSettings, Rule};

/// Whether calls fall back to other providers, and to which ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FallbackSettings {
    pub(crate) enabled: Option<bool>,
    pub(crate) chain: Option<Vec<String>>,
}

/// A provider and the model to call there; `None` is the provider's default model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainLink {
    pub(crate) provider: Provider,
    pub(crate) model: Option<String>,
}

impl FallbackSettings {
    /// Returns these settings with the values that are set in `overrides` replaced.
    pub(crate) fn merged(self, overrides: &Self) -> Self {
        Self {
            enabled: overrides.enabled.or(self.enabled),
            chain: overrides.chain.clone().or(self.chain),
        }
    }

    /// Returns the parsed chain of an enabled module.
    ///
    /// # Errors
    /// When the chain is empty, has more than [`MAX_TARGETS`] targets, or a target is malformed.
    pub(crate) fn chain(&self) -> Result<Vec<ChainLink>, InvalidSettings> {
        let mut checks = Checks::default();
        let given = self.chain.as_deref().unwrap_or_default();
        let chain = checks.check("chain", given, |given| chain(given));
        checks.finish(chain.unwrap_or_default())
    }
}

fn chain(given: &[String]) -> Result<Vec<ChainLink>, Rule> {
    if given.is_empty() {
        return Err(Rule::Missing);
    }
    if given.len() > MAX_TARGETS {
        return Err(Rule::TooMany(MAX_TARGETS));
    }
    given.iter().map(|text| link(text).ok_or(Rule::Target)).collect()
}

/// Splits at the first slash, since names of models may contain slashes.
fn link(text: &str) -> Option<ChainLink> {
    let (provider, model) = match text.split_once('/') {
        Some((provider, model)) => (provider, Some(model.trim())),
        None => (text, None),
    };
    let provider = Provider::new(provider);
    let is_valid = !provider.as_str().is_empty() && model.is_none_or(|model| !model.is_empty());
    is_valid.then(|| ChainLink { provider, model: model.map(ToOwned::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_is_parsed_and_checked() {
        let chain = |targets: &[&str]| {
            let chain = Some(targets.iter().map(ToString::to_string).collect());
            let settings = FallbackSettings { enabled: Some(true), chain };
            settings.chain().map_err(|error| error.to_string())
        };
        let links = chain(&["Anthropic", "openrouter/meta/llama"]).unwrap();
        assert_eq!((links[0].provider.as_str(), links[0].model.as_deref()), ("anthropic", None));
        let model = links[1].model.as_deref();
        assert_eq!((links[1].provider.as_str(), model), ("openrouter", Some("meta/llama")));
        assert!(chain(&["a"; 11]).unwrap_err().ends_with("must have at most 10 items"));
        let missing = "chain = []: must be set when the module is enabled";
        let unset = FallbackSettings { enabled: Some(true), chain: None };
        assert_eq!(unset.chain().unwrap_err().to_string(), missing);
        assert_eq!(chain(&[]).unwrap_err(), missing);
        for target in ["", "/x", "anthropic/"] {
            assert!(chain(&[target]).unwrap_err().contains("must name providers"), "{target:?}");
        }
    }
}
