//! The text of a key while it is written: on the stack, unless it is long.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use sha2::{Digest, Sha256};
use tidegate::MAX_KEY_BYTES;

use super::KeySource;
use crate::head::Head;
use crate::scratch::Scratch;

/// A key under construction. Not shown by `Debug`: keys name people.
#[derive(Clone)]
pub struct KeyText(Scratch<48>);

impl Default for KeyText {
    fn default() -> Self {
        Self(Scratch::new())
    }
}

impl PartialEq for KeyText {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes() == other.0.bytes()
    }
}

impl Eq for KeyText {}

impl KeyText {
    /// The key of a request by a source; `None` if it has none.
    ///
    /// What is longer than [`MAX_KEY_BYTES`] is replaced by its hash.
    #[must_use]
    pub fn of<K: KeySource + ?Sized>(source: &K, head: &Head<'_>) -> Option<Self> {
        let mut key = Self::default();
        source.write(head, &mut key)?;
        // Ours begin with a `%` and a small letter. Escapes have digits there.
        if matches!(key.0.bytes(), [b'%', b'a'..=b'z', ..]) {
            key.fold();
        }
        key.fold_if_long();
        if key.0.is_empty() { None } else { Some(key) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only whole texts are ever pushed.
        std::str::from_utf8(self.0.bytes()).unwrap_or_default()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds text as it is.
    pub fn push_str(&mut self, text: &str) {
        self.0.push(text.as_bytes());
    }

    /// Adds a part of a key of several, as [`KeyBuf::from_parts`](tidegate::KeyBuf::from_parts)
    /// does: parted by `:`, which is escaped inside of parts.
    pub fn push_part(&mut self, part: &str) {
        if !self.0.is_empty() {
            self.0.push(b":");
        }
        for &byte in part.as_bytes() {
            match byte {
                b':' => self.push_str("%3A"),
                b'%' => self.push_str("%25"),
                byte => self.0.push(&[byte]),
            }
        }
    }

    /// Adds the network of a client: an IPv4 address, or an IPv6 prefix with its length.
    pub fn push_network(&mut self, client: IpNet) {
        use fmt::Write as _;
        match client.addr() {
            IpAddr::V4(address) => {
                let mut text = [0; 15];
                let mut end = 0;
                for (index, octet) in address.octets().into_iter().enumerate() {
                    if index > 0 {
                        text[end] = b'.';
                        end += 1;
                    }
                    for (least, digit) in
                        [(100, octet / 100), (10, octet / 10 % 10), (0, octet % 10)]
                    {
                        if octet >= least {
                            text[end] = b'0' + digit;
                            end += 1;
                        }
                    }
                }
                self.0.push(&text[..end]);
            }
            // Writing to a text does not fail.
            IpAddr::V6(_) => drop(write!(self, "{client}")),
        }
    }

    /// Adds 128 bits of the SHA-256 of a secret, in hexadecimal digits.
    pub fn push_hash_of(&mut self, secret: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in &Sha256::digest(secret)[..16] {
            self.0.push(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }

    pub(super) fn fold_if_long(&mut self) {
        if self.0.bytes().len() > MAX_KEY_BYTES {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let whole = std::mem::take(self);
        self.push_str("%sha256:");
        self.push_hash_of(whole.0.bytes());
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
        write!(f, "KeyText(<{} bytes>)", self.0.bytes().len())
    }
}
