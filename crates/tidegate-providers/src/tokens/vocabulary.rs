//! The tokens of the encoding and their ranks.
//!
//! The file in `vocabulary/` is compressed with gzip. Unpacked, it has a format number, the number
//! of tokens in four bytes with the lowest first, the length of each token in one byte, and then
//! their bytes, all by rank.

use std::fmt;
use std::io::Read as _;

use flate2::read::GzDecoder;
use rapidhash::v3::rapidhash_v3;

const FILE: &[u8] = include_bytes!("../../vocabulary/o200k_base.gz");
const FORMAT: u8 = 1;
/// Bytes before the lengths.
const HEAD: usize = 5;

/// Two to this power is the number of slots, more than twice the number of tokens.
const SLOT_BITS: u32 = 19;
/// Bits of a slot for the rank; the others are of the hash.
const RANK_BITS: u32 = 18;
const RANK_MASK: u32 = (1 << RANK_BITS) - 1;
const EMPTY: u32 = u32::MAX;

/// Position of a token in the vocabulary. A lower one is merged first.
pub(super) type Rank = u32;

/// Finds the rank of a token by its bytes. Takes 5 MB.
pub(super) struct Vocabulary {
    /// The unpacked file.
    bytes: Vec<u8>,
    /// Position in `bytes` of each token; the last entry is the end.
    starts: Vec<u32>,
    /// Hash table with linear probing: ranks with some bits of the hash.
    slots: Vec<u32>,
    max_length: usize,
}

impl Vocabulary {
    /// Unpacks the file.
    ///
    /// # Panics
    ///
    /// Only if the file in the program is not one, which a test excludes.
    pub(super) fn unpack() -> Self {
        let mut bytes = Vec::new();
        let read = GzDecoder::new(FILE).read_to_end(&mut bytes);
        assert!(read.is_ok() && bytes.len() >= HEAD && bytes[0] == FORMAT, "not a vocabulary");
        let count = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        assert!(count < RANK_MASK, "{count} tokens are too many");
        let lengths = bytes[HEAD..][..index(count)].iter();
        let mut end = to_u32(HEAD + index(count));
        let mut starts = vec![end];
        starts.extend(lengths.clone().map(|length| {
            end += u32::from(*length);
            end
        }));
        let max_length = lengths.max().copied().map_or(0, usize::from);
        let slots = vec![EMPTY; 1 << SLOT_BITS];
        let mut vocabulary = Self { bytes, starts, slots, max_length };
        (0..count).for_each(|rank| vocabulary.insert(rank));
        vocabulary
    }

    /// Returns the rank of a token, if there is one with these bytes.
    pub(super) fn rank(&self, token: &[u8]) -> Option<Rank> {
        if token.len() > self.max_length {
            return None;
        }
        let (mut slot, tag) = place(token);
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return None;
            }
            let rank = entry & RANK_MASK;
            if entry & !RANK_MASK == tag && self.token(rank) == token {
                return Some(rank);
            }
            slot = next(slot);
        }
    }

    /// Returns the number of tokens.
    #[cfg(test)]
    pub(super) fn len(&self) -> u32 {
        to_u32(self.starts.len() - 1)
    }

    fn insert(&mut self, rank: Rank) {
        let (mut slot, tag) = place(self.token(rank));
        while self.slots[slot] != EMPTY {
            slot = next(slot);
        }
        self.slots[slot] = tag | rank;
    }

    /// Returns the bytes of a token.
    pub(super) fn token(&self, rank: Rank) -> &[u8] {
        let rank = index(rank);
        &self.bytes[index(self.starts[rank])..index(self.starts[rank + 1])]
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary").field("tokens", &(self.starts.len() - 1)).finish()
    }
}

/// Returns the first slot for a token and the bits of its hash to keep there.
fn place(token: &[u8]) -> (usize, u32) {
    let [.., a, b, c, d] = rapidhash_v3(token).to_le_bytes();
    let high = u32::from_le_bytes([a, b, c, d]);
    (index(high >> (u32::BITS - SLOT_BITS)), high << RANK_BITS)
}

const fn next(slot: usize) -> usize {
    (slot + 1) & ((1 << SLOT_BITS) - 1)
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn to_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_has_its_rank() {
        let vocabulary = Vocabulary::unpack();
        for rank in 0..vocabulary.len() {
            assert_eq!(vocabulary.rank(vocabulary.token(rank)), Some(rank));
        }
        assert_eq!(vocabulary.rank(b""), None);
        assert_eq!(vocabulary.rank(b"tides out"), None);
        assert_eq!(vocabulary.rank(&[b'-'; 300]), None);
    }
}
