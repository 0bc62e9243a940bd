//! Whom a provider turns to: others that are there, and that calls can be sent to.

use tidegate_llm::fallback::MAX_TARGETS;
use tidegate_providers::{Dialect, Provider};

use super::read::dialect;
use crate::fault::{Rule, nearest};
use crate::values::value::{Entry, Node, Value};

/// All providers that are configured, and what they speak.
pub(super) struct Speakers<'t>(Vec<(&'t str, Dialect)>);

impl<'t> Speakers<'t> {
    pub(super) fn of(entries: &'t [Entry<'t>]) -> Self {
        Self(entries.iter().map(|entry| (&*entry.key, spoken(entry))).collect())
    }

    /// The names of others, all of which are there.
    pub(super) fn others(&self, value: &Value<'_>, own: &str) -> Result<Vec<String>, Rule> {
        let names = names(value)?;
        for name in &names {
            if name == own {
                return Err(Rule::OwnFallback);
            }
            match self.0.iter().find(|(known, _)| known == name) {
                Some((_, Dialect::Mock)) => return Err(Rule::MockFallback(cut(name))),
                Some(_) => {}
                None => return Err(self.unknown(name)),
            }
        }
        Ok(names)
    }

    fn unknown(&self, name: &str) -> Rule {
        const SHOWN: usize = 20;
        let known = || self.0.iter().map(|(known, _)| *known);
        Rule::NoSuchProvider {
            name: cut(name),
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
fn spoken(entry: &Entry<'_>) -> Dialect {
    let Node::Table(fields) = &entry.value.node else { return Dialect::Compatible };
    let said = fields.iter().find(|field| field.key == "dialect");
    let said = said.and_then(|field| dialect(&field.value).ok());
    said.map_or_else(|| Dialect::of(&Provider::new(&entry.key)), |(dialect, _)| dialect)
}

fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}
