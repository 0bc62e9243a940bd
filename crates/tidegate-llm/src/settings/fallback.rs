//! The settings of the fallback module.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_providers::Provider;

use crate::plan::{Checks, Invalid, Rule};

/// Whether calls turn to another provider, and to whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FallbackSettings {
    /// Whether the module is there. Default: no.
    pub enabled: bool,
    /// Whom to ask, in this order, at most ten of them.
    pub chain: Vec<FallbackTarget>,
}

/// A provider, and perhaps one of its models: `anthropic`, `anthropic/claude-sonnet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackTarget {
    /// Who.
    pub provider: Provider,
    /// Which model; the provider's default if unset.
    pub model: Option<String>,
}

/// Keys that replace those of [`FallbackSettings`], where they are given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FallbackOverrides {
    /// Whether the module is there.
    pub enabled: Option<bool>,
    /// Whom to ask, as providers or as `provider/model`.
    pub chain: Option<Vec<String>>,
}

/// A chain that is longer hides that nobody answers.
const MOST_TARGETS: usize = 10;

impl FallbackSettings {
    /// The same with what is given in place of what is there.
    ///
    /// # Errors
    /// When a target is none, there are more than ten, or the module is on and there is none.
    pub fn merged(self, overrides: &FallbackOverrides) -> Result<Self, Invalid> {
        let mut checks = Checks::default();
        let enabled = overrides.enabled.unwrap_or(self.enabled);
        let given = overrides.chain.as_deref();
        let chain = checks.optional("chain", given, |given| chain(given));
        let settings = Self { enabled, chain: chain.unwrap_or(self.chain) };
        if enabled && settings.chain.is_empty() && given.is_none_or(<[_]>::is_empty) {
            checks.refuse("chain", &[(); 0], Rule::Missing);
        }
        checks.finish(settings)
    }
}

fn chain(given: &[String]) -> Result<Vec<FallbackTarget>, Rule> {
    if given.len() > MOST_TARGETS {
        return Err(Rule::TooMany(MOST_TARGETS));
    }
    given.iter().map(|text| target(text).ok_or(Rule::Target)).collect()
}

/// Models may have slashes of their own, so the first one is ours.
fn target(text: &str) -> Option<FallbackTarget> {
    let (provider, model) = match text.split_once('/') {
        Some((provider, model)) => (provider, Some(model.trim())),
        None => (text, None),
    };
    let provider = Provider::new(provider);
    let said = !provider.as_str().is_empty() && model.is_none_or(|model| !model.is_empty());
    said.then(|| FallbackTarget { provider, model: model.map(ToOwned::to_owned) })
}

impl fmt::Display for FallbackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.provider.fmt(f)?;
        match &self.model {
            Some(model) => write!(f, "/{model}"),
            None => Ok(()),
        }
    }
}
