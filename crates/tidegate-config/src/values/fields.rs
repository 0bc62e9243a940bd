//! Reads the keys of a table and collects all violations.

use std::collections::HashSet;
use std::fmt;

use crate::values::secret::is_secret;
use crate::values::setting::{Position, Setting};
use crate::values::value::{Entry, Node, Value};
use crate::violation::{Rule, Violation};

/// The path of a value, such as `limits.client.rate` or `charges[1].cost`.
///
/// It is formatted only when a violation is reported.
#[derive(Clone, Copy, Debug)]
pub enum Path<'p> {
    /// The top level.
    Root,
    /// A key of a table.
    Key(&'p Path<'p>, &'p str),
    /// An item of a list.
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// Returns whether `text` at this path may contain a secret. URLs with passwords may be given
    /// by mistake at any key of the store and database sections, so only plain words are shown
    /// there. Keys that expect a hash or a variable name may be given the secret itself.
    pub(crate) fn may_hold_secret(&self, text: &str) -> bool {
        match *self {
            Self::Key(Path::Root, "store" | "database" | "admin" | "proxy")
            | Self::Key(Path::Key(Path::Key(Path::Root, "providers"), _), "api_key_env") => true,
            Self::Key(Path::Key(Path::Root, "store" | "database"), key) => {
                key == "url" || text.contains([':', '/', '@'])
            }
            Self::Key(Path::Key(Path::Root, "proxy"), key) => {
                key != "no_proxy" || text.contains('@')
            }
            Self::Key(Path::Key(Path::Root, "admin"), key) => {
                key != "allow_unauthenticated" || is_secret(text)
            }
            Self::Index(list, _) => list.may_hold_secret(text),
            _ => is_secret(text),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => write_key(f, key),
            Self::Key(parent, key) => {
                write!(f, "{parent}.")?;
                write_key(f, key)
            }
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Writes a key. Keys may come from untrusted requests, so unusual ones are quoted, escaped and
/// truncated, and those that may contain a password are hidden.
fn write_key(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    const SHOWN: usize = 64;
    if is_secret(key) {
        return f.write_str("\"...\"");
    }
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b"_-?".contains(&b);
    if key.len() <= SHOWN && !key.is_empty() && key.bytes().all(is_bare) {
        return f.write_str(key);
    }
    match key.char_indices().nth(SHOWN) {
        Some((end, _)) => write!(f, "{:?}...", &key[..end]),
        None => write!(f, "{key:?}"),
    }
}

/// Maximum number of unknown or duplicate keys reported per table; an untrusted request may contain
/// thousands.
const MAX_REPORTED: usize = 20;

/// The keys of one table, checked against the known keys.
#[derive(Debug)]
pub struct Fields<'t, 'f> {
    entries: &'t [Entry<'t>],
    /// Position of the table header, where missing keys are reported.
    position: Position,
    path: Path<'f>,
    violations: &'f mut Vec<Violation>,
}

impl<'t, 'f> Fields<'t, 'f> {
    /// Opens a table and reports unknown and duplicate keys. Returns `None` if the value is not a
    /// table.
    pub fn open(
        value: &'t Value<'t>,
        path: Path<'f>,
        known: &[&'static str],
        violations: &'f mut Vec<Violation>,
    ) -> Option<Self> {
        let fields = Self::open_any(value, path, violations)?;
        let unknown = fields.entries.iter().filter(|entry| !known.contains(&&*entry.key));
        for entry in unknown.take(MAX_REPORTED) {
            fields.violations.push(Violation {
                key: Path::Key(&path, &entry.key).to_string(),
                value: None,
                rule: Rule::unknown(&entry.key, known),
                position: entry.position,
            });
        }
        Some(fields)
    }

    /// Opens a table whose keys are chosen by the user, and reports duplicate keys. Returns `None`
    /// if the value is not a table.
    pub fn open_any(
        value: &'t Value<'t>,
        path: Path<'f>,
        violations: &'f mut Vec<Violation>,
    ) -> Option<Self> {
        let Node::Table(entries) = &value.node else {
            violations.push(Violation::at(path, value, Rule::NotTable));
            return None;
        };
        for entry in repeated(entries).into_iter().take(MAX_REPORTED) {
            violations.push(Violation::at(
                Path::Key(&path, &entry.key),
                &entry.value,
                Rule::Duplicate,
            ));
        }
        Some(Self { entries, position: value.position, path, violations })
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'t Value<'t>> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the entries, in text order.
    #[must_use]
    pub fn entries(&self) -> &'t [Entry<'t>] {
        self.entries
    }

    /// Returns the path of the table.
    #[must_use]
    pub fn path(&self) -> Path<'f> {
        self.path
    }

    /// Returns the position of the table header.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the collected violations, to be passed to nested tables.
    pub fn violations(&mut self) -> &mut Vec<Violation> {
        self.violations
    }

    /// Parses the value of a key. Returns `None` if the key is missing or `parse` rejects its
    /// value, which is reported.
    pub fn read<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&'t Value<'t>) -> Result<T, Rule>,
    ) -> Option<T> {
        let value = self.get(key)?;
        match parse(value) {
            Ok(parsed) => Some(parsed),
            Err(rule) => {
                self.report(key, rule);
                None
            }
        }
    }

    /// Parses the value of a key, as [`read`](Self::read) does, and returns it with its source.
    pub(crate) fn setting<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&'t Value<'t>) -> Result<T, Rule>,
    ) -> Option<Setting<T>> {
        let source = self.get(key)?.position.source;
        self.read(key, parse).map(|value| Setting { value, source })
    }

    /// Parses the value of a key, as [`read`](Self::read) does, and reports a missing key.
    pub fn require<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&'t Value<'t>) -> Result<T, Rule>,
    ) -> Option<T> {
        if self.get(key).is_none() {
            self.report(key, Rule::Required);
        }
        self.read(key, parse)
    }

    /// Reports that a key, present or missing, violates a rule.
    pub fn report(&mut self, key: &str, rule: Rule) {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        let path = Path::Key(&self.path, key);
        self.violations.push(match entry {
            Some(entry) => Violation::at(path, &entry.value, rule),
            None => Violation { key: path.to_string(), value: None, rule, position: self.position },
        });
    }
}

/// Returns the entries whose key occurred before.
fn repeated<'t>(entries: &'t [Entry<'t>]) -> Vec<&'t Entry<'t>> {
    // Requests have a handful of keys, for which a linear search is faster than a set.
    const FEW: usize = 16;
    let again = |&(index, entry): &(usize, &Entry<'_>)| {
        entries[..index].iter().any(|earlier| earlier.key == entry.key)
    };
    if entries.len() <= FEW {
        return entries.iter().enumerate().filter(again).map(|(_, entry)| entry).collect();
    }
    let mut seen = HashSet::new();
    entries.iter().filter(|entry| !seen.insert(&entry.key)).collect()
}
