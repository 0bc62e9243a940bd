//! What is stored, what changes it, and what is remembered of a change.
//!
//! What a list of changes does to the settings is worked out here, once for both databases.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::Value;
use tidegate_config::{MOST_CHANGES, MOST_SETTINGS, Overrides};

use super::DatabaseError;

/// The most changes of the past that are told at once.
const MOST_TOLD: usize = 1_000;
/// The most changes of the past that are kept; the oldest are forgotten.
pub(super) const MOST_KEPT: i64 = 100_000;
/// How much is kept of the name of who made a change.
const LONGEST_NAME: usize = 256;

/// The settings that are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Grows by one with every write; 0 before the first.
    pub revision: u64,
    /// The path of each setting, and its value as JSON.
    pub settings: BTreeMap<String, String>,
}

/// A change of one setting.
///
/// ```
/// use tidegate_server::Change;
/// let change = Change::set("providers.openai.max_retries", "5");
/// assert_eq!(change.value.as_deref(), Some("5"));
/// assert_eq!(Change::unset("providers.openai.max_retries").value, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path of the setting.
    pub key: String,
    /// Its value as JSON; `None` removes the setting.
    pub value: Option<String>,
}

impl Change {
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

/// Through which door a change came, and from whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The door: `admin`, `rpc` or `cli`; `http`, `file`, `signal` and `database` in logs only.
    pub door: &'static str,
    /// Who asked for it, if that is known: the start of the hash of a token, or the address of the
    /// peer where there are no tokens. The first 256 characters are kept.
    pub who: Option<String>,
}

/// A change of the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// The revision that the change was part of.
    pub revision: u64,
    /// When, by the clock of the database: milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// The door that it came through.
    pub door: String,
    /// Who asked for it, if that was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Which setting.
    pub key: String,
    /// Its value before, as JSON.
    #[serde(serialize_with = "as_json")]
    pub old: Option<String>,
    /// Its value since, as JSON.
    #[serde(serialize_with = "as_json")]
    pub new: Option<String>,
}

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The format before; `None` if there was nothing.
    pub from: Option<u32>,
    /// The format since.
    pub to: u32,
    /// The copy that was made before, where one was made.
    pub backup: Option<PathBuf>,
}

/// A change with what it replaces.
#[derive(Debug)]
pub(super) struct Replaced<'a> {
    pub(super) change: &'a Change,
    pub(super) old: Option<String>,
}

impl Stored {
    /// What a database holds once these settings are written.
    pub(crate) fn of(revision: u64, settings: &Overrides) -> Self {
        let settings = settings.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { revision, settings: settings.collect() }
    }

    /// Refuses a write that was meant for another revision.
    pub(super) fn expect(&self, expected: Option<u64>) -> Result<(), DatabaseError> {
        match expected {
            Some(expected) if expected != self.revision => {
                Err(DatabaseError::Conflict { now: self.revision })
            }
            _ => Ok(()),
        }
    }

    /// Applies changes in their order, and returns them with what they replace.
    pub(super) fn apply<'a>(
        &mut self,
        changes: &'a [Change],
    ) -> Result<Vec<Replaced<'a>>, DatabaseError> {
        let replaced = changes.iter().map(|change| {
            let old = match &change.value {
                Some(value) => self.settings.insert(change.key.clone(), value.clone()),
                None => self.settings.remove(&change.key),
            };
            Replaced { change, old }
        });
        let replaced = replaced.collect();
        if self.settings.len() > MOST_SETTINGS {
            return Err(DatabaseError::TooMany { what: "settings", most: MOST_SETTINGS });
        }
        self.revision += 1;
        Ok(replaced)
    }
}

impl Note {
    /// Another process, of which no more is known here: its own audit says who it was.
    pub(crate) const ELSEWHERE: Self = Self { door: "database", who: None };

    /// A peer that brought no token: it is known by its address.
    pub(crate) fn of_peer(door: &'static str, peer: IpAddr) -> Self {
        Self { door, who: Some(peer.to_canonical().to_string()) }
    }

    /// The name as it is kept: no character that a terminal or a database takes amiss.
    pub(super) fn name(&self) -> Option<String> {
        let kept = |who: &String| {
            who.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect::<String>()
        };
        self.who.as_ref().map(kept)
    }
}

/// Refuses what neither database could be asked.
pub(super) fn check(changes: &[Change]) -> Result<(), DatabaseError> {
    if changes.len() > MOST_CHANGES {
        return Err(DatabaseError::TooMany { what: "changes at once", most: MOST_CHANGES });
    }
    let has_nul = |change: &&Change| {
        change.key.contains('\0') || change.value.as_ref().is_some_and(|value| value.contains('\0'))
    };
    match changes.iter().find(has_nul) {
        Some(change) => {
            Err(DatabaseError::refused(&change.key, "there must be no character 0 in it"))
        }
        None => Ok(()),
    }
}

/// What a text of JSON stands for; other text is itself.
pub(crate) fn json_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn as_json<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().map(json_value).serialize(serializer)
}

/// How many changes of the past are told when so many are asked for.
pub(super) fn told(most: usize) -> i64 {
    i64::try_from(most.min(MOST_TOLD)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_apply_in_their_order() {
        let mut stored = Stored::default();
        let changes = [Change::set("a", "1"), Change::set("a", "2"), Change::unset("a")];
        let replaced = stored.apply(&changes).unwrap();
        let old: Vec<_> = replaced.into_iter().map(|replaced| replaced.old).collect();
        assert_eq!(old, [None, Some("1".to_owned()), Some("2".to_owned())]);
        assert_eq!(stored, Stored { revision: 1, settings: BTreeMap::new() });
    }

    #[test]
    fn there_is_an_end_to_settings() {
        let mut stored = Stored::default();
        let settings = (0..MOST_SETTINGS).map(|index| (index.to_string(), "1".to_owned()));
        stored.settings = settings.collect();
        assert!(stored.apply(&[Change::set("0", "2")]).is_ok());
        let one_more = [Change::set("new", "2")];
        let full = stored.apply(&one_more);
        assert!(matches!(full, Err(DatabaseError::TooMany { what: "settings", .. })), "{full:?}");
    }

    #[test]
    fn names_are_kept_short_and_plain() {
        let note = Note { door: "cli", who: Some(format!("a\n\0{}", "b".repeat(1_000))) };
        let name = note.name().unwrap();
        assert_eq!((name.len(), name.starts_with("abb")), (256, true));
    }
}
