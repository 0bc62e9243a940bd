//! A key under construction: on the stack, unless it is long.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use tidegate::MAX_KEY_BYTES;

use super::KeySource;
use crate::head::Head;
use crate::identity::ClientNetwork;
use crate::small_string::SmallString;

/// A key under construction. `Debug` hides its text, because keys may identify people.
///
/// ```
/// use tidegate_http::key::KeyText;
/// let mut key = KeyText::default();
/// key.push_part("acme");
/// key.push_part("a:b");
/// assert_eq!(key.as_str(), "acme:a%3Ab");
/// ```
#[derive(Clone)]
pub struct KeyText {
    text: SmallString<48>,
    /// Whether a part has been added, possibly an empty one.
    has_parts: bool,
    /// Whether it begins with a hash made here, not with caller input.
    starts_with_hash: bool,
}

impl Default for KeyText {
    fn default() -> Self {
        Self { text: SmallString::new(), has_parts: false, starts_with_hash: false }
    }
}

impl PartialEq for KeyText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for KeyText {}

impl KeyText {
    /// Returns the key of a request, or `None` if the source has none.
    ///
    /// A key longer than [`MAX_KEY_BYTES`] is replaced by its hash.
    #[inline]
    #[must_use]
    pub fn of<K: KeySource + ?Sized>(source: &K, head: &Head<'_>) -> Option<Self> {
        let mut key = Self::default();
        source.write(head, &mut key)?;
        // Reserved keys begin with `%` and a lower-case letter. Escapes have a digit there.
        if !key.starts_with_hash && matches!(key.as_str().as_bytes(), [b'%', b'a'..=b'z', ..]) {
            key.replace_with_hash();
        }
        key.hash_if_long();
        if key.is_empty() { None } else { Some(key) }
    }

    /// Returns the key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// Returns whether the key is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    /// Appends text verbatim.
    pub fn push_str(&mut self, text: &str) {
        self.text.push(text);
    }

    /// Appends a part of a multi-part key, as [`KeyBuf::from_parts`](tidegate::KeyBuf::from_parts)
    /// does: parts are separated by `:`, which is escaped inside parts.
    pub fn push_part(&mut self, part: &str) {
        if self.has_parts || !self.is_empty() {
            self.push_str(":");
        }
        self.has_parts = true;
        // Runs without special characters are copied at once.
        let mut rest = part;
        while let Some(special) = rest.find([':', '%']) {
            self.push_str(&rest[..special]);
            self.push_str(if rest[special..].starts_with(':') { "%3A" } else { "%25" });
            rest = &rest[special + 1..];
        }
        self.push_str(rest);
    }

    /// Appends the network of a client: an IPv4 address, or an IPv6 prefix with its length.
    pub fn push_network(&mut self, client: ClientNetwork) {
        use fmt::Write as _;
        match client.addr() {
            IpAddr::V4(address) => {
                let (bytes, length) = octets::format(address.octets());
                // The whole buffer is ASCII, including the unused end. Checking all of it is faster
                // than checking a prefix of variable length.
                let text = std::str::from_utf8(&bytes).unwrap_or_default();
                self.push_str(text.get(..length).unwrap_or_default());
            }
            // Writing to a string does not fail.
            IpAddr::V6(_) => drop(write!(self, "{client}")),
        }
    }

    /// Appends 128 bits of the SHA-256 of a secret, in hexadecimal.
    pub fn push_hash_of(&mut self, secret: &[u8]) {
        for byte in &Sha256::digest(secret)[..16] {
            for digit in [byte >> 4, byte & 15] {
                self.push_char(char::from_digit(digit.into(), 16).unwrap_or_default());
            }
        }
    }

    #[inline]
    fn push_char(&mut self, char: char) {
        self.push_str(char.encode_utf8(&mut [0; 4]));
    }

    pub(super) fn hash_if_long(&mut self) {
        if self.as_str().len() > MAX_KEY_BYTES {
            self.replace_with_hash();
        }
    }

    fn replace_with_hash(&mut self) {
        let original = std::mem::take(self);
        self.push_reserved_hash(original.as_str().as_bytes());
    }

    /// Appends a hash in place of bytes that cannot be part of a key, with a prefix that is
    /// reserved.
    pub(super) fn push_reserved_hash(&mut self, bytes: &[u8]) {
        self.starts_with_hash |= self.is_empty();
        self.push_str("%sha256:");
        self.push_hash_of(bytes);
    }
}

/// Formatting of IPv4 addresses, the most frequent keys by address.
mod octets {
    /// Digits of each octet with a dot, left-aligned, and their length.
    static WITH_DOT: [([u8; 4], u8); 256] = {
        let mut all = [([b'.'; 4], 0); 256];
        let mut octet: u8 = 0;
        loop {
            let (mut text, mut length) = ([b'.'; 4], 0);
            let digits = [octet / 100, octet / 10 % 10, octet % 10];
            let mut digit = if octet < 10 {
                2
            } else if octet < 100 {
                1
            } else {
                0
            };
            while digit < 3 {
                text[length] = b'0' + digits[digit];
                (length, digit) = (length + 1, digit + 1);
            }
            // At most three digits and a dot.
            #[expect(clippy::cast_possible_truncation, reason = "four at most")]
            let entry = (text, length as u8 + 1);
            all[octet as usize] = entry;
            if octet == u8::MAX {
                break all;
            }
            octet += 1;
        }
    };

    /// Returns the text of an address, and its length.
    #[inline]
    pub(super) fn format(octets: [u8; 4]) -> ([u8; 16], usize) {
        let (mut text, mut end) = ([b'.'; 16], 0);
        for octet in octets {
            let (digits, length) = WITH_DOT[usize::from(octet)];
            // Excess bytes are overwritten by the next octet.
            if let Some(target) = text.get_mut(end..end + 4) {
                target.copy_from_slice(&digits);
            }
            end += usize::from(length);
        }
        (text, end - 1)
    }

    #[cfg(test)]
    mod tests {
        use std::net::Ipv4Addr;

        #[test]
        fn matches_std_formatting() {
            for octet in 0..=u8::MAX {
                let octets = [octet, 255 - octet, octet / 2, octet];
                let (text, length) = super::format(octets);
                let expected = Ipv4Addr::from(octets).to_string();
                assert_eq!(&text[..length], expected.as_bytes());
            }
        }
    }
}

impl fmt::Write for KeyText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text);
        Ok(())
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyText(<{} bytes>)", self.as_str().len())
    }
}
