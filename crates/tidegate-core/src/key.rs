//! Keys: who is limited. Encoded so that different parts never give the same key.

use alloc::string::String;
use core::fmt;

/// The longest key, and the longest group, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No bytes at all.
    #[error("must not be empty")]
    Empty,
    /// More than [`MAX_KEY_BYTES`].
    #[error("must be at most {MAX_KEY_BYTES} bytes")]
    TooLong,
}

/// A key, borrowed: a name, and the group it is decided with.
///
/// Keys of one group live together in a store that is spread over machines. The group is part of
/// the identity: the same name in two groups is two keys.
///
/// ```
/// use tidegate_core::Key;
/// let key = Key::new("alice").in_group("acme");
/// assert_eq!((key.name(), key.group()), ("alice", Some("acme")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    name: &'a str,
    group: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// The key with this name and no group.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Self { name, group: None }
    }

    /// The same name in a group.
    #[must_use]
    pub const fn in_group(self, group: &'a str) -> Self {
        Self { name: self.name, group: Some(group) }
    }

    /// The name.
    #[must_use]
    pub const fn name(self) -> &'a str {
        self.name
    }

    /// The group, if any.
    #[must_use]
    pub const fn group(self) -> Option<&'a str> {
        self.group
    }

    /// Checks a key from outside.
    ///
    /// # Errors
    /// When name or group is empty or too long.
    pub fn check(self) -> Result<Self, KeyError> {
        for text in [Some(self.name), self.group].into_iter().flatten() {
            if text.is_empty() {
                return Err(KeyError::Empty);
            }
            if text.len() > MAX_KEY_BYTES {
                return Err(KeyError::TooLong);
            }
        }
        Ok(self)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Self::new(name)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(name: &'a String) -> Self {
        Self::new(name)
    }
}

impl<'a> From<&'a KeyBuf> for Key<'a> {
    fn from(key: &'a KeyBuf) -> Self {
        key.as_key()
    }
}

impl fmt::Debug for Key<'_> {
    /// Keys name people: only lengths are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(<{} bytes>", self.name.len())?;
        if let Some(group) = self.group {
            write!(f, " in <{} bytes>", group.len())?;
        }
        f.write_str(")")
    }
}

/// An owned key, built from parts.
///
/// Parts are joined by `:`; a `:` or `%` inside a part is escaped, so that different lists of
/// parts never give the same key.
///
/// ```
/// use tidegate_core::KeyBuf;
/// assert_eq!(KeyBuf::from_parts(["rl", "public", "anon", "PING"]).as_key().name(), "rl:public:anon:PING");
/// assert_ne!(KeyBuf::from_parts(["a:b", "c"]), KeyBuf::from_parts(["a", "b:c"]));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyBuf {
    name: String,
    group: Option<String>,
}

impl KeyBuf {
    /// The key made of these parts; an empty list gives the key of one empty part.
    pub fn from_parts<'p>(parts: impl IntoIterator<Item = &'p str>) -> Self {
        let mut name = String::new();
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                name.push(':');
            }
            for c in part.chars() {
                match c {
                    ':' => name.push_str("%3A"),
                    '%' => name.push_str("%25"),
                    c => name.push(c),
                }
            }
        }
        Self { name, group: None }
    }

    /// The same key in a group.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// The key, borrowed.
    #[must_use]
    pub fn as_key(&self) -> Key<'_> {
        Key { name: &self.name, group: self.group.as_deref() }
    }
}

impl From<Key<'_>> for KeyBuf {
    /// The same key, owned; its name is taken as it is.
    fn from(key: Key<'_>) -> Self {
        Self { name: key.name.into(), group: key.group.map(Into::into) }
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn keys_do_not_show_whom_they_name() {
        let shown = format!("{:?}", Key::new("alice@example.org").in_group("acme"));
        assert_eq!(shown, "Key(<17 bytes> in <4 bytes>)");
    }

    #[test]
    fn keys_from_outside_are_checked() {
        assert_eq!(Key::new("").check(), Err(KeyError::Empty));
        let long = "x".repeat(MAX_KEY_BYTES + 1);
        assert_eq!(Key::new(&long).check().unwrap_err().to_string(), "must be at most 1024 bytes");
        assert!(Key::new("a").in_group("b").check().is_ok());
    }
}
