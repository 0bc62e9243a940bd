//! Fallback providers: checks that they are configured and can be used.

use tidegate_llm::fallback::{MAX_TARGETS, unsuitable_reason};
use tidegate_providers::{Dialect, Provider};

use super::read::dialect;
use crate::values::value::{Entry, Node, Value};
use crate::violation::{Rule, nearest};

/// All configured providers and their dialects.
pub(super) struct KnownProviders<'t>(Vec<KnownProvider<'t>>);

struct KnownProvider<'t> {
    name: &'t str,
    dialect: Dialect,
    /// Whether `api_key_env` is set. Whether that variable exists is checked elsewhere.
    has_key: bool,
}

impl<'t> KnownProviders<'t> {
    pub(super) fn of(entries: &'t [Entry<'t>]) -> Self {
        let dialect_provider = |entry: &'t Entry<'t>| KnownProvider {
            name: &entry.key,
            dialect: dialect_of(entry),
            has_key: has_key_variable(entry),
        };
        Self(entries.iter().map(dialect_provider).collect())
    }

    /// Parses a list of names, all of which must be other configured providers.
    pub(super) fn others(&self, value: &Value<'_>, own: &str) -> Result<Vec<String>, Rule> {
        let names = names(value)?;
        names.iter().try_for_each(|name| self.check_other(name, own))?;
        Ok(names)
    }

    /// Rejects a name that is not another configured provider.
    pub(super) fn check_other(&self, name: &str, own: &str) -> Result<(), Rule> {
        if name == own {
            return Err(Rule::SelfFallback);
        }
        match self.0.iter().find(|known| known.name == name) {
            Some(known) if known.dialect == Dialect::Mock => {
                Err(Rule::MockFallback(truncate(name)))
            }
            Some(_) => Ok(()),
            None => Err(self.unknown(name)),
        }
    }

    /// Returns a violation for each fallback that calls can never use.
    pub(super) fn unsuitable(&self, dialect: Dialect, fallback: &[String]) -> Vec<Rule> {
        let rule = |name: &String| {
            let target = self.0.iter().find(|known| known.name == name)?;
            let why = unsuitable_reason(dialect, target.dialect, target.has_key)?;
            Some(Rule::UnsuitableFallback { name: truncate(name), why })
        };
        fallback.iter().filter_map(rule).collect()
    }

    fn unknown(&self, name: &str) -> Rule {
        const SHOWN: usize = 20;
        let known = || self.0.iter().map(|known| known.name);
        Rule::NoSuchProvider {
            name: truncate(name),
            nearest: nearest(name, known()).map(ToOwned::to_owned),
            known: known().take(SHOWN).map(ToOwned::to_owned).collect(),
        }
    }
}

/// Parses a list of at most [`MAX_TARGETS`] names.
pub(super) fn names(value: &Value<'_>) -> Result<Vec<String>, Rule> {
    let names = value.to_strings()?;
    if names.len() > MAX_TARGETS { Err(Rule::TooManyFallbacks(MAX_TARGETS)) } else { Ok(names) }
}

/// Returns the dialect set in the section, or else the one derived from the name.
fn dialect_of(entry: &Entry<'_>) -> Dialect {
    let Node::Table(fields) = &entry.value.node else { return Dialect::Compatible };
    let dialect_field = fields.iter().find(|field| field.key == "dialect");
    let dialect_field = dialect_field.and_then(|field| dialect(&field.value).ok());
    dialect_field.map_or_else(|| Dialect::of(&Provider::new(&entry.key)), |(dialect, _)| dialect)
}

/// Returns whether the section sets `api_key_env`.
fn has_key_variable(entry: &Entry<'_>) -> bool {
    let Node::Table(fields) = &entry.value.node else { return false };
    fields.iter().any(|field| field.key == "api_key_env")
}

fn truncate(name: &str) -> String {
    name.chars().take(64).collect()
}
