//! The table of keys: what every setting is called, what it may be, and what it is for.
//!
//! Each section has its part of the table beside the code that reads it. From the table come the
//! keys that are known, their variables, the schema, and which of them a database may hold.

use super::{
    admin, admission, api, database, gateway, limits, listen, modules, providers, proxy, store,
};
use crate::fault::Rule;
use crate::plan;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;

/// What refuses a value that cannot be used.
type Check = fn(&Value<'_>) -> Result<(), Rule>;

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct KnownKey {
    pattern: &'static str,
    kind: ValueKind,
    about: &'static str,
    default: Option<&'static str>,
    fixed: Option<&'static str>,
    unused: Option<&'static str>,
    check: Check,
}

/// All sections, in the order of the file.
const SECTIONS: &[&[KnownKey]] = &[
    plan::KEYS,
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

/// All keys, in the order of the file.
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
    /// An operational key: one that may change while the program runs.
    pub(crate) const fn new(
        pattern: &'static str,
        kind: ValueKind,
        check: Check,
        about: &'static str,
    ) -> Self {
        Self { pattern, kind, about, default: None, fixed: None, unused: None, check }
    }

    /// A key that no database may hold, and why.
    pub(crate) const fn fixed(mut self, why: &'static str) -> Self {
        self.fixed = Some(why);
        self
    }

    /// A key that is accepted and that no code reads yet, and why. Whoever sets it is warned, the
    /// schema says so, and `cargo xtask tidy` refuses keys that are not read and not marked, as
    /// well as marks of keys that are read.
    pub(crate) const fn unused(mut self, why: &'static str) -> Self {
        self.unused = Some(why);
        self
    }

    /// The default of a key that the default file does not have, as JSON.
    pub(crate) const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// The path in the file; `*` stands for a name of the user's choice.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        self.pattern
    }

    /// What it is for, in a sentence.
    #[must_use]
    pub const fn about(&self) -> &'static str {
        self.about
    }

    /// Whether a database may hold it.
    #[must_use]
    pub const fn is_operational(&self) -> bool {
        self.fixed.is_none()
    }

    /// The variable of the environment; `*` stands for a name of the user's choice. A key that ends
    /// with such a name, as a model's, is read from no variable: names lose too much in one.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(self.pattern)
    }

    /// Why setting it has no effect in this version; `None` if it has.
    #[must_use]
    pub const fn why_unused(&self) -> Option<&'static str> {
        self.unused
    }

    pub(crate) const fn why_fixed(&self) -> Option<&'static str> {
        self.fixed
    }

    pub(crate) const fn kind(&self) -> ValueKind {
        self.kind
    }

    pub(crate) const fn default(&self) -> Option<&'static str> {
        self.default
    }

    /// Refuses a value that cannot be used, whatever stands around it.
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

/// The variable of the environment for a path.
pub(crate) fn variable(path: &str) -> String {
    format!("TIDEGATE_{}", path.replace('.', "_").to_uppercase())
}

/// The key at a path of these names.
pub(crate) fn find(names: &[impl AsRef<str>]) -> Option<&'static KnownKey> {
    known_keys().find(|key| key.is_at(names))
}

/// The place of the key at a path in the order of the file; what is unknown comes last.
pub(crate) fn rank(names: &[impl AsRef<str>]) -> usize {
    known_keys().position(|key| key.is_at(names)).unwrap_or(usize::MAX)
}

/// The names that may stand below a pattern such as `providers.*`; at the top for an empty one.
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
            assert!(key.about.ends_with('.'), "{}", key.pattern);
        }
    }
}
