//! The table of keys: name, kind of value and purpose of every setting.
//!
//! Each section keeps its part of the table next to the code that reads it. The set of known keys,
//! their variables, the JSON Schema and the reference page are derived from it.

use super::{
    admin, admission, api, database, gateway, limits, listen, modules, providers, proxy, store,
};
use crate::config::{self, Config};
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::Rule;

/// Checks a value by itself, independent of other settings.
type Check = fn(&Value<'_>) -> Result<(), Rule>;

/// Compares one setting of two configurations.
type Differs = fn(&Config, &Config) -> bool;

/// A configuration key.
#[derive(Clone, Copy, Debug)]
pub struct KnownKey {
    pattern: &'static str,
    kind: ValueKind,
    description: &'static str,
    default: Option<&'static str>,
    fixed: Option<&'static str>,
    at_start: Option<Differs>,
    unused: Option<&'static str>,
    library: Option<&'static str>,
    check: Check,
}

/// The keys of all sections, in the order of the file.
const SECTIONS: &[&[KnownKey]] = &[
    config::KEYS,
    listen::KEYS,
    store::KEYS,
    database::KEYS,
    admin::KEYS,
    limits::KEYS,
    api::KEYS,
    admission::KEYS,
    gateway::KEYS,
    providers::KEYS,
    providers::AUTO_TUNE_KEYS,
    providers::MODEL_KEYS,
    proxy::KEYS,
    modules::KEYS,
];

/// Iterates over all keys, in the order of the file.
///
/// ```
/// let key = tidegate_config::known_keys().find(|key| key.path() == "limits.*.rate").unwrap();
/// assert!(key.is_operational());
/// assert_eq!(key.variable(), "TIDEGATE_LIMITS_*_RATE");
/// ```
pub fn known_keys() -> impl Iterator<Item = &'static KnownKey> {
    SECTIONS.iter().copied().flatten()
}

impl KnownKey {
    /// Creates an operational key, which can be changed at run time.
    pub(crate) const fn new(
        pattern: &'static str,
        kind: ValueKind,
        check: Check,
        description: &'static str,
    ) -> Self {
        let (default, fixed, at_start, unused, library) = (None, None, None, None, None);
        Self { pattern, kind, description, default, fixed, at_start, unused, library, check }
    }

    /// Marks a key that must not come from the database, with the reason.
    pub(crate) const fn fixed(mut self, why: &'static str) -> Self {
        self.fixed = Some(why);
        self
    }

    /// Marks a key that is read only at the start of the program, with the reason. `differs` tells
    /// whether a change has to wait for a restart.
    pub(crate) const fn at_start(mut self, why: &'static str, differs: Differs) -> Self {
        self.at_start = Some(differs);
        self.fixed(why)
    }

    /// Marks a key that is accepted but not used, with the reason. Setting it causes a warning, and
    /// the schema contains the reason. `cargo xtask tidy` rejects unused keys without the mark and
    /// used keys with it.
    pub(crate) const fn unused(mut self, why: &'static str) -> Self {
        self.unused = Some(why);
        self
    }

    /// Marks a key that only the library uses, with what to set in the program instead. Setting it
    /// causes a warning of the program.
    pub(crate) const fn library(mut self, instead: &'static str) -> Self {
        self.library = Some(instead);
        self
    }

    /// Sets the default, as JSON, of a key that is not in the default file.
    pub(crate) const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// Returns the path in the file; `*` stands for a name chosen by the user.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.pattern
    }

    /// Returns the purpose of the key, in a sentence.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        self.description
    }

    /// Returns whether the key may come from the database and thus change at run time.
    #[must_use]
    pub const fn is_operational(&self) -> bool {
        self.fixed.is_none()
    }

    /// Returns the name of the environment variable; `*` stands for a name chosen by the user.
    ///
    /// A key that ends with such a name, like that of a model, cannot be set by a variable, because
    /// a variable loses case and punctuation.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(self.pattern)
    }

    /// Returns why setting the key has no effect in this version; `None` if it has one.
    #[must_use]
    pub const fn unused_reason(&self) -> Option<&'static str> {
        self.unused
    }

    /// Returns why the key has no effect in the program, but only in the library (the feature
    /// `models`); `None` if the program uses it.
    #[must_use]
    pub const fn library_reason(&self) -> Option<&'static str> {
        self.library
    }

    pub(crate) const fn not_in_database_reason(&self) -> Option<&'static str> {
        self.fixed
    }

    /// Returns whether a change takes effect only after a restart.
    pub(crate) const fn needs_restart(&self) -> bool {
        self.at_start.is_some()
    }

    /// Returns whether the configurations differ in this setting and it is read only at the start.
    pub(crate) fn differs_at_start(&self, one: &Config, other: &Config) -> bool {
        self.at_start.is_some_and(|differs| differs(one, other))
    }

    pub(crate) const fn kind(&self) -> ValueKind {
        self.kind
    }

    pub(crate) const fn default(&self) -> Option<&'static str> {
        self.default
    }

    /// Checks a value by itself, independent of other settings.
    pub(crate) fn check(&self, value: &Value<'_>) -> Result<(), Rule> {
        (self.check)(value)
    }

    fn is_at(&self, names: &[impl AsRef<str>]) -> bool {
        let mut names = names.iter().map(AsRef::as_ref);
        let mut parts = self.pattern.split('.');
        loop {
            match (parts.next(), names.next()) {
                (None, None) => return true,
                (Some(part), Some(name)) if part == "*" || part == name => {}
                _ => return false,
            }
        }
    }
}

/// Returns the environment variable of a path.
pub(crate) fn variable(path: &str) -> String {
    format!("TIDEGATE_{}", path.replace('.', "_").to_uppercase())
}

/// Returns the key at the path `names`.
pub(crate) fn find(names: &[impl AsRef<str>]) -> Option<&'static KnownKey> {
    known_keys().find(|key| key.is_at(names))
}

/// Returns the position of a key in the order of the file; unknown keys come last.
pub(crate) fn rank(names: &[impl AsRef<str>]) -> usize {
    known_keys().position(|key| key.is_at(names)).unwrap_or(usize::MAX)
}

/// Returns the names that can follow a pattern such as `providers.*`; the top-level names for an
/// empty pattern.
pub(crate) fn below(pattern: &str) -> Vec<&'static str> {
    let mut known = Vec::new();
    for key in known_keys() {
        let rest = match pattern {
            "" => Some(key.pattern),
            pattern => key.pattern.strip_prefix(pattern).and_then(|rest| rest.strip_prefix('.')),
        };
        let name = rest.map(|rest| rest.split_once('.').map_or(rest, |(name, _)| name));
        known.extend(name.filter(|name| *name != "*" && !known.contains(name)));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names_come_from_the_table() {
        assert_eq!(
            below("listen"),
            ["http", "admin", "grpc", "resp", "allowed_hosts", "trusted_proxies"]
        );
        assert!(below("").starts_with(&["state_dir", "listen"]));
        assert_eq!(below("providers.*").last(), Some(&"auto_tune"));
        assert!(below("limits").is_empty(), "names are the user's choice");
        assert!(find(&["limits", "a.b", "rate"]).is_some());
        assert!(find(&["limits", "rate"]).is_none());
    }

    #[test]
    fn every_key_is_unique_and_described() {
        for (index, key) in known_keys().enumerate() {
            let first = known_keys().position(|other| other.pattern == key.pattern);
            assert_eq!(first, Some(index), "{}", key.pattern);
            assert!(key.description.ends_with('.'), "{}", key.pattern);
        }
    }
}
