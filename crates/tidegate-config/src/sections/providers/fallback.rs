//! Whom a provider turns to: others that are there, and that calls can be sent to.

use tidegate_llm::fallback::{MAX_TARGETS, unsuitable};
use tidegate_providers::{Dialect, Provider};

use super::read::dialect;
use crate::fault::{Rule, nearest};
use crate::values::value::{Entry, Node, Value};

/// All providers that are configured, and what they speak.
pub(super) struct KnownProviders<'t>(Vec<KnownProvider<'t>>);

struct KnownProvider<'t> {
    name: &'t str,
    dialect: Dialect,
    /// Whether it has a key of its own, or should have: a variable that is not set is a mistake of
    /// its own.
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

    /// The names of others, all of which are there.
    pub(super) fn others(&self, value: &Value<'_>, own: &str) -> Result<Vec<String>, Rule> {
        let names = names(value)?;
        names.iter().try_for_each(|name| self.check_other(name, own))?;
        Ok(names)
    }

    /// Refuses a name that is not that of another provider.
    pub(super) fn check_other(&self, name: &str, own: &str) -> Result<(), Rule> {
        if name == own {
            return Err(Rule::OwnFallback);
        }
        match self.0.iter().find(|known| known.name == name) {
            Some(known) if known.dialect == Dialect::Mock => {
                Err(Rule::MockFallback(truncate(name)))
            }
            Some(_) => Ok(()),
            None => Err(self.unknown(name)),
        }
    }

    /// The rules that the fallbacks of a provider break, because calls never fall back to them.
    pub(super) fn unsuitable(&self, dialect: Dialect, fallback: &[String]) -> Vec<Rule> {
        let rule = |name: &String| {
            let target = self.0.iter().find(|known| known.name == name)?;
            let why = unsuitable(dialect, target.dialect, target.has_key)?;
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

/// As many names as a chain of fallbacks takes.
pub(super) fn names(value: &Value<'_>) -> Result<Vec<String>, Rule> {
    let names = value.to_strings()?;
    if names.len() > MAX_TARGETS { Err(Rule::TooManyFallbacks(MAX_TARGETS)) } else { Ok(names) }
}

/// What a provider speaks: what its section says, else what its name says.
fn dialect_of(entry: &Entry<'_>) -> Dialect {
    let Node::Table(fields) = &entry.value.node else { return Dialect::Compatible };
    let dialect_field = fields.iter().find(|field| field.key == "dialect");
    let dialect_field = dialect_field.and_then(|field| dialect(&field.value).ok());
    dialect_field.map_or_else(|| Dialect::of(&Provider::new(&entry.key)), |(dialect, _)| dialect)
}

/// Whether the section of a provider names the variable of a key.
fn has_key_variable(entry: &Entry<'_>) -> bool {
    let Node::Table(fields) = &entry.value.node else { return false };
    fields.iter().any(|field| field.key == "api_key_env")
}

fn truncate(name: &str) -> String {
    name.chars().take(64).collect()
}
