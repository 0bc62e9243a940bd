//! The text of a key while it is written: on the stack, unless it is long.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use tidegate::MAX_KEY_BYTES;

use super::KeySource;
use crate::head::Head;
use crate::identity::ClientNetwork;
use crate::text::Text;

/// A key under construction. Not shown by `Debug`: keys name people.
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
    text: Text<48>,
    /// A part has been added, perhaps an empty one.
    parted: bool,
    /// It begins with a hash that we made, and not with what a caller wrote.
    hashed: bool,
}

impl Default for KeyText {
    fn default() -> Self {
        Self { text: Text::new(), parted: false, hashed: false }
    }
}

impl PartialEq for KeyText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for KeyText {}

impl KeyText {
    /// The key of a request by a source; `None` if it has none.
    ///
    /// What is longer than [`MAX_KEY_BYTES`] is replaced by its hash.
    #[inline]
    #[must_use]
    pub fn of<K: KeySource + ?Sized>(source: &K, head: &Head<'_>) -> Option<Self> {
        let mut key = Self::default();
        source.write(head, &mut key)?;
        // Ours begin with a `%` and a small letter. Escapes have digits there.
        if !key.hashed && matches!(key.as_str().as_bytes(), [b'%', b'a'..=b'z', ..]) {
            key.fold();
        }
        key.fold_if_long();
        if key.is_empty() { None } else { Some(key) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_str().is_empty()
    }

    /// Adds text as it is.
    pub fn push_str(&mut self, text: &str) {
        self.text.push(text);
    }

    /// Adds a part of a key of several, as [`KeyBuf::from_parts`](tidegate::KeyBuf::from_parts)
    /// does: parted by `:`, which is escaped inside of parts.
    pub fn push_part(&mut self, part: &str) {
        if self.parted || !self.is_empty() {
            self.push_str(":");
        }
        self.parted = true;
        // What needs no escape is taken whole.
        let mut rest = part;
        while let Some(special) = rest.find([':', '%']) {
            self.push_str(&rest[..special]);
            self.push_str(if rest[special..].starts_with(':') { "%3A" } else { "%25" });
            rest = &rest[special + 1..];
        }
        self.push_str(rest);
    }

    /// Adds the network of a client: an IPv4 address, or an IPv6 prefix with its length.
    pub fn push_network(&mut self, client: ClientNetwork) {
        use fmt::Write as _;
        match client.addr() {
            IpAddr::V4(address) => {
                let (bytes, length) = octets::written(address.octets());
                // Digits and dots are text, also where they are left over. All of it is checked at
                // once, which is faster than its beginning.
                let text = std::str::from_utf8(&bytes).unwrap_or_default();
                self.push_str(text.get(..length).unwrap_or_default());
            }
            // Writing to a text does not fail.
            IpAddr::V6(_) => drop(write!(self, "{client}")),
        }
    }

    /// Adds 128 bits of the SHA-256 of a secret, in hexadecimal digits.
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

    pub(super) fn fold_if_long(&mut self) {
        if self.as_str().len() > MAX_KEY_BYTES {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let whole = std::mem::take(self);
        self.push_folded(whole.as_str().as_bytes());
    }

    /// Adds a hash in place of what cannot be part of a key, under a name that no caller can take.
    pub(super) fn push_folded(&mut self, bytes: &[u8]) {
        self.hashed |= self.is_empty();
        self.push_str("%sha256:");
        self.push_hash_of(bytes);
    }
}

/// IPv4 addresses as texts, which most keys by address are.
mod octets {
    /// The digits of each octet and a dot, from the left, and how many bytes that is.
    static WITH_DOT: [([u8; 4], u8); 256] = {
        let mut all = [([b'.'; 4], 0); 256];
        let mut octet: u8 = 0;
        loop {
            let (mut text, mut length) = ([b'.'; 4], 0);
            let digits = [octet / 100, octet / 10 % 10, octet % 10];
            let mut place = if octet < 10 {
                2
            } else if octet < 100 {
                1
            } else {
                0
            };
            while place < 3 {
                text[length] = b'0' + digits[place];
                (length, place) = (length + 1, place + 1);
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

    /// The text of an address, and its length.
    #[inline]
    pub(super) fn written(octets: [u8; 4]) -> ([u8; 16], usize) {
        let (mut text, mut end) = ([b'.'; 16], 0);
        for octet in octets {
            let (digits, length) = WITH_DOT[usize::from(octet)];
            // What is too much is written over by the next.
            if let Some(room) = text.get_mut(end..end + 4) {
                room.copy_from_slice(&digits);
            }
            end += usize::from(length);
        }
        (text, end - 1)
    }

    #[cfg(test)]
    mod tests {
        use std::net::Ipv4Addr;

        #[test]
        fn addresses_are_written_as_everybody_writes_them() {
            for octet in 0..=u8::MAX {
                let octets = [octet, 255 - octet, octet / 2, octet];
                let (text, length) = super::written(octets);
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
