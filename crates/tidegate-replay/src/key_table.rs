//! The keys of a log, each stored once, by number.
//!
//! The texts are in one buffer and the hash table has numbers only: about 20 bytes per key besides
//! its text. Everything else in this crate is an array with one entry per key.

use std::fmt;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Keys by number, in the order of their first appearance.
#[derive(Default)]
pub struct KeyTable {
    numbers: HashTable<u32>,
    hasher: RandomState,
    text: Vec<u8>,
    /// Where the text of each key ends.
    ends: Vec<usize>,
}

impl fmt::Debug for KeyTable {
    // Keys are often addresses or names of people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable").field("keys", &self.len()).finish()
    }
}

impl KeyTable {
    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the bytes of a key.
    #[must_use]
    pub fn bytes(&self, number: u32) -> &[u8] {
        text_of(&self.text, &self.ends, number)
    }

    /// Returns the text of a key. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self, number: u32) -> String {
        String::from_utf8_lossy(self.bytes(number)).into_owned()
    }

    /// Returns the number of a key, which is new if the key is. `None` if all numbers are in use.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> Option<u32> {
        let Self { numbers, hasher, text, ends } = self;
        let hash = hasher.hash_one(key);
        if let Some(&number) = numbers.find(hash, |&known| text_of(text, ends, known) == key) {
            return Some(number);
        }
        let number = u32::try_from(ends.len()).ok()?;
        text.extend_from_slice(key);
        ends.push(text.len());
        numbers.insert_unique(hash, number, |&known| hasher.hash_one(text_of(text, ends, known)));
        Some(number)
    }
}

#[inline]
fn text_of<'t>(text: &'t [u8], ends: &[usize], number: u32) -> &'t [u8] {
    let index = number as usize;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &text[start..ends[index]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_number() {
        let mut keys = KeyTable::default();
        let names: Vec<String> = (0..10_000).map(|n| format!("key-{n}")).collect();
        for _ in 0..2 {
            for (index, name) in names.iter().enumerate() {
                assert_eq!(keys.number(name.as_bytes()), u32::try_from(index).ok());
            }
        }
        assert_eq!((keys.len(), keys.text(77).as_str()), (10_000, "key-77"));
        assert_eq!(keys.number(b""), Some(10_000));
        assert_eq!(keys.number(b""), Some(10_000));
    }
}
