//! Keys: who is limited. Keys built from different parts never collide.

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a key name and of a group, in bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// Error returned for an invalid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The name or the group is empty.
    #[error("must not be empty")]
    Empty,
    /// The name or the group is longer than [`MAX_KEY_BYTES`].
    #[error("must be at most {MAX_KEY_BYTES} bytes")]
    TooLong,
}

/// A borrowed key: a name and an optional group.
///
/// A clustered store keeps all keys of one group on the same node. The group is part of the
/// identity: the same name in two groups is two keys.
///
/// ```
/// use tidegate::Key;
/// let key = Key::new("alice").in_group("acme");
/// assert_eq!((key.name(), key.group()), ("alice", Some("acme")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    name: &'a str,
    group: Option<&'a str>,
}

impl<'a> Key<'a> {
    /// Creates a key without a group.
    #[must_use]
    pub const fn new(name: &'a str) -> Self {
        Self { name, group: None }
    }

    /// Returns this key in `group`.
    #[must_use]
    pub const fn in_group(self, group: &'a str) -> Self {
        Self { name: self.name, group: Some(group) }
    }

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'a str {
        self.name
    }

    /// Returns the group, if any.
    #[must_use]
    pub const fn group(self) -> Option<&'a str> {
        self.group
    }

    /// Checks the lengths of name and group. Every store rejects a key that fails this check.
    ///
    /// # Errors
    /// If the name or the group is empty or longer than [`MAX_KEY_BYTES`].
    #[inline]
    pub const fn check(self) -> Result<Self, KeyError> {
        let group = match self.group {
            Some(group) => group.len(),
            None => 1,
        };
        if self.name.is_empty() || group == 0 {
            return Err(KeyError::Empty);
        }
        if self.name.len() > MAX_KEY_BYTES || group > MAX_KEY_BYTES {
            return Err(KeyError::TooLong);
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
    /// Shows only lengths, since keys may identify people.
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
/// Parts are joined with `:`. A `:` or `%` inside a part is escaped, so different lists of parts
/// never produce the same key.
///
/// ```
/// use tidegate::KeyBuf;
/// assert_eq!(KeyBuf::from_parts(["rl", "public", "anon", "PING"]).as_key().name(), "rl:public:anon:PING");
/// assert_ne!(KeyBuf::from_parts(["a:b", "c"]), KeyBuf::from_parts(["a", "b:c"]));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyBuf {
    name: String,
    group: Option<String>,
}

impl KeyBuf {
    /// Joins `parts` into a key. An empty list gives the same key as one empty part.
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

    /// Returns this key in `group`.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Borrows the key.
    #[must_use]
    pub fn as_key(&self) -> Key<'_> {
        Key { name: &self.name, group: self.group.as_deref() }
    }
}

impl From<Key<'_>> for KeyBuf {
    /// Copies the key; the name is not escaped.
    fn from(key: Key<'_>) -> Self {
        Self { name: key.name.into(), group: key.group.map(Into::into) }
    }
}

impl From<String> for KeyBuf {
    /// Uses the name as it is, unescaped and without a group.
    fn from(name: String) -> Self {
        Self { name, group: None }
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

/// Anything a limiter accepts as a key: borrowed or owned text, an address or a number.
///
/// An address or a number is the same key as its text and is formatted without an allocation.
/// `::ffff:203.0.113.7` becomes `203.0.113.7`. Use [`KeyBuf::from_parts`] for keys of several
/// parts. An IPv6 address is used in full; clients that own a whole network are better limited by
/// their first 64 bits.
///
/// ```
/// use std::net::Ipv4Addr;
/// use tidegate::AnyKey;
/// assert_eq!(AnyKey::from(Ipv4Addr::LOCALHOST), AnyKey::from("127.0.0.1"));
/// assert_eq!(AnyKey::from(42_u64), AnyKey::from(String::from("42")));
/// ```
#[derive(Clone)]
pub struct AnyKey<'a>(Repr<'a>);

#[derive(Clone)]
enum Repr<'a> {
    Borrowed(Key<'a>),
    Inline(InlineText),
    Owned(KeyBuf),
}

impl AnyKey<'_> {
    /// Borrows the key.
    #[must_use]
    #[inline]
    pub fn as_key(&self) -> Key<'_> {
        match &self.0 {
            Repr::Borrowed(key) => *key,
            Repr::Inline(text) => Key::new(text.as_str()),
            Repr::Owned(key) => key.as_key(),
        }
    }

    /// Converts into an owned key.
    #[must_use]
    pub fn into_key_buf(self) -> KeyBuf {
        match self.0 {
            Repr::Borrowed(key) => key.into(),
            Repr::Inline(text) => Key::new(text.as_str()).into(),
            Repr::Owned(key) => key,
        }
    }
}

impl PartialEq for AnyKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_key() == other.as_key()
    }
}

impl Eq for AnyKey<'_> {}

impl fmt::Debug for AnyKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

macro_rules! borrowed_keys {
    ($($type:ty),*) => {$(
        impl<'a> From<$type> for AnyKey<'a> {
            #[inline]
            fn from(key: $type) -> Self {
                Self(Repr::Borrowed(key.into()))
            }
        }
    )*};
}

borrowed_keys!(Key<'a>, &'a str, &'a String, &'a KeyBuf);

impl From<KeyBuf> for AnyKey<'_> {
    fn from(key: KeyBuf) -> Self {
        Self(Repr::Owned(key))
    }
}

impl From<String> for AnyKey<'_> {
    fn from(name: String) -> Self {
        Self(Repr::Owned(name.into()))
    }
}

impl<'a> From<Cow<'a, str>> for AnyKey<'a> {
    fn from(name: Cow<'a, str>) -> Self {
        match name {
            Cow::Borrowed(name) => name.into(),
            Cow::Owned(name) => name.into(),
        }
    }
}

macro_rules! inline_keys {
    ($($type:ty),*) => {$(
        impl From<$type> for AnyKey<'_> {
            fn from(key: $type) -> Self {
                Self(Repr::Inline(InlineText::new(key)))
            }
        }
    )*};
}

inline_keys!(Ipv4Addr, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

impl From<IpAddr> for AnyKey<'_> {
    /// Treats an IPv4-mapped IPv6 address as the IPv4 address.
    fn from(address: IpAddr) -> Self {
        Self(Repr::Inline(InlineText::new(address.to_canonical())))
    }
}

impl From<Ipv6Addr> for AnyKey<'_> {
    /// Treats an IPv4-mapped IPv6 address as the IPv4 address.
    fn from(address: Ipv6Addr) -> Self {
        IpAddr::from(address).into()
    }
}

macro_rules! keys_by_reference {
    ($($type:ty),*) => {$(
        impl From<&$type> for AnyKey<'_> {
            fn from(key: &$type) -> Self {
                (*key).into()
            }
        }
    )*};
}

keys_by_reference!(IpAddr, Ipv4Addr, Ipv6Addr);
keys_by_reference!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);

/// Text of an address or a number, stored inline.
#[derive(Clone, Copy)]
struct InlineText {
    bytes: [u8; Self::MAX_BYTES],
    len: u8,
}

impl InlineText {
    /// Length of `i128::MIN` as text; the longest address is one byte shorter.
    const MAX_BYTES: usize = 40;

    fn new(value: impl fmt::Display) -> Self {
        let mut text = Self { bytes: [0; Self::MAX_BYTES], len: 0 };
        // Addresses and integers always fit.
        let _ = write!(text, "{value}");
        text
    }

    fn as_str(&self) -> &str {
        // Only whole strings are written, so this is valid UTF-8.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Write for InlineText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = usize::from(self.len);
        let end = start + text.len();
        let free = self.bytes.get_mut(start..end).ok_or(fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.len = u8::try_from(end).map_err(|_| fmt::Error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn debug_hides_key_text() {
        let debug = format!("{:?}", Key::new("alice@example.org").in_group("acme"));
        assert_eq!(debug, "Key(<17 bytes> in <4 bytes>)");
    }

    #[test]
    fn check_rejects_empty_and_long_keys() {
        assert_eq!(Key::new("").check(), Err(KeyError::Empty));
        let long = "x".repeat(MAX_KEY_BYTES + 1);
        assert_eq!(Key::new(&long).check().unwrap_err().to_string(), "must be at most 1024 bytes");
        assert_eq!(Key::new("a").in_group("").check(), Err(KeyError::Empty));
        assert_eq!(Key::new("a").in_group(&long).check(), Err(KeyError::TooLong));
        assert!(Key::new("a").in_group("b").check().is_ok());
    }

    #[test]
    fn addresses_and_numbers_equal_their_text() {
        let longest: Ipv6Addr = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
        let mapped: Ipv6Addr = "::ffff:255.255.255.255".parse().unwrap();
        for address in [IpAddr::V6(longest), Ipv4Addr::BROADCAST.into()] {
            assert_eq!(AnyKey::from(&address).as_key().name(), address.to_string());
        }
        assert_eq!(AnyKey::from(mapped).as_key().name(), "255.255.255.255");
        assert_eq!(AnyKey::from(i128::MIN).as_key().name(), i128::MIN.to_string());
        assert_eq!(AnyKey::from(u128::MAX).as_key().name(), u128::MAX.to_string());
        assert_eq!(AnyKey::from(0_u8).into_key_buf(), KeyBuf::from(String::from("0")));
    }
}
