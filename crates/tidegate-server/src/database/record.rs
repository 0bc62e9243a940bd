//! The stored settings, changes to them, and the audit entries of changes.
//!
//! The effect of a list of changes is computed here, once for both databases.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tidegate_config::{MAX_CHANGES, MAX_SETTINGS, Overrides};

use super::DatabaseError;

/// Maximum number of past changes returned at once.
const MAX_HISTORY: usize = 1_000;
/// Maximum number of past changes stored; the oldest are deleted.
pub(super) const MAX_STORED_HISTORY: i64 = 100_000;
/// Maximum number of characters stored of an author's name.
const MAX_AUTHOR_CHARS: usize = 256;

/// The stored settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSettings {
    /// Increases by one with every write; 0 before the first.
    pub revision: u64,
    /// The key of each setting, and its value as JSON.
    pub settings: BTreeMap<String, String>,
}

/// A change of one setting.
///
/// ```
/// use tidegate_server::SettingUpdate;
/// let change = SettingUpdate::set("providers.openai.max_retries", "5");
/// assert_eq!(change.value.as_deref(), Some("5"));
/// assert_eq!(SettingUpdate::unset("providers.openai.max_retries").value, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingUpdate {
    /// The key of the setting.
    pub key: String,
    /// Its value as JSON; `None` removes the setting.
    pub value: Option<String>,
}

impl SettingUpdate {
    /// Sets a value, given as JSON.
    #[must_use]
    pub fn set(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: Some(value.into()) }
    }

    /// Removes a setting.
    #[must_use]
    pub fn unset(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// Where a change came from, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeOrigin {
    /// What it came through: `admin`, `rpc` or `cli`; in logs also `http`, `file`, `signal` and
    /// `database`.
    pub door: &'static str,
    /// The author, if known: the first digits of the token's digest, or the peer address if there
    /// are no tokens. The first 256 characters are stored.
    pub who: Option<String>,
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// The revision that the change created.
    pub revision: u64,
    /// Time of the change by the clock of the database, in milliseconds since 1970-01-01 UTC.
    pub at_ms: u64,
    /// What it came through; see [`ChangeOrigin::door`].
    pub door: String,
    /// The author, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The key of the setting.
    pub key: String,
    /// The previous value as JSON.
    #[serde(serialize_with = "as_json")]
    pub old: Option<String>,
    /// The new value as JSON.
    #[serde(serialize_with = "as_json")]
    pub new: Option<String>,
}

/// Result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationResult {
    /// The previous format; `None` if the database was empty.
    pub from: Option<u32>,
    /// The format now.
    pub to: u32,
    /// The backup copy, if one was made.
    pub backup: Option<PathBuf>,
}

/// A change with the value that it replaces.
#[derive(Debug)]
pub(super) struct Replaced<'a> {
    pub(super) change: &'a SettingUpdate,
    pub(super) old: Option<String>,
}

impl StoredSettings {
    /// Creates the content of a database with these settings.
    pub(crate) fn new(revision: u64, settings: &Overrides) -> Self {
        let settings = settings.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { revision, settings: settings.collect() }
    }

    /// Rejects a write that expects another revision.
    pub(super) fn check_revision(&self, expected: Option<u64>) -> Result<(), DatabaseError> {
        match expected {
            Some(expected) if expected != self.revision => {
                Err(DatabaseError::Conflict { now: self.revision })
            }
            _ => Ok(()),
        }
    }

    /// Applies changes in order, and returns them with the values they replace.
    pub(super) fn apply<'a>(
        &mut self,
        changes: &'a [SettingUpdate],
    ) -> Result<Vec<Replaced<'a>>, DatabaseError> {
        let replaced = changes.iter().map(|change| {
            let old = match &change.value {
                Some(value) => self.settings.insert(change.key.clone(), value.clone()),
                None => self.settings.remove(&change.key),
            };
            Replaced { change, old }
        });
        let replaced = replaced.collect();
        if self.settings.len() > MAX_SETTINGS {
            return Err(DatabaseError::TooMany { what: "settings", most: MAX_SETTINGS });
        }
        self.revision += 1;
        Ok(replaced)
    }
}

impl ChangeOrigin {
    /// A change by another process, whose own audit log names the author.
    pub(crate) const OTHER_PROCESS: Self = Self { door: "database", who: None };

    /// The author of a request without a token: the peer address.
    pub(crate) fn from_peer(door: &'static str, peer: IpAddr) -> Self {
        Self { door, who: Some(peer.to_canonical().to_string()) }
    }

    /// Returns the author's name as stored: truncated, without control characters.
    pub(super) fn author(&self) -> Option<String> {
        let kept = |who: &String| {
            who.chars().filter(|c| !c.is_control()).take(MAX_AUTHOR_CHARS).collect::<String>()
        };
        self.who.as_ref().map(kept)
    }
}

/// Rejects changes that neither database can store.
pub(super) fn check(changes: &[SettingUpdate]) -> Result<(), DatabaseError> {
    if changes.len() > MAX_CHANGES {
        return Err(DatabaseError::TooMany { what: "changes in one write", most: MAX_CHANGES });
    }
    let has_nul = |change: &&SettingUpdate| {
        change.key.contains('\0') || change.value.as_ref().is_some_and(|value| value.contains('\0'))
    };
    match changes.iter().find(has_nul) {
        Some(change) => {
            Err(DatabaseError::refused(&change.key, "must not contain a NUL character"))
        }
        None => Ok(()),
    }
}

/// Parses JSON; text that is not JSON becomes a JSON string.
pub(crate) fn json_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn as_json<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().map(json_value).serialize(serializer)
}

/// Returns the number of past changes to return if `most` are requested.
pub(super) fn history_limit(most: usize) -> i64 {
    i64::try_from(most.min(MAX_HISTORY)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_applied_in_order() {
        let mut stored = StoredSettings::default();
        let changes =
            [SettingUpdate::set("a", "1"), SettingUpdate::set("a", "2"), SettingUpdate::unset("a")];
        let replaced = stored.apply(&changes).unwrap();
        let old: Vec<_> = replaced.into_iter().map(|replaced| replaced.old).collect();
        assert_eq!(old, [None, Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(stored, StoredSettings { revision: 1, settings: BTreeMap::new() });
    }

    #[test]
    fn the_number_of_settings_is_bounded() {
        let mut stored = StoredSettings::default();
        let settings = (0..MAX_SETTINGS).map(|index| (index.to_string(), "1".to_owned()));
        stored.settings = settings.collect();
        assert!(stored.apply(&[SettingUpdate::set("0", "2")]).is_ok());
        let another = [SettingUpdate::set("new", "2")];
        let full = stored.apply(&another);
        assert!(matches!(full, Err(DatabaseError::TooMany { what: "settings", .. })), "{full:?}");
    }

    #[test]
    fn author_names_are_truncated_and_cleaned() {
        let note = ChangeOrigin { door: "cli", who: Some(format!("a\n\0{}", "b".repeat(1_000))) };
        let name = note.author().unwrap();
        assert_eq!((name.len(), name.starts_with("abb")), (256, true));
    }
}
