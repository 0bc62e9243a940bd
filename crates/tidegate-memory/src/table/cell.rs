//! The table's entry for one bucket: 20 bytes, 12 of which are the exact state.
//!
//! No key is stored, only 48 bits of its hash. Two keys share a bucket with a probability of 2^-48
//! per pair, or 0.2 % for any pair among a million keys. The generation of the policy is truncated
//! to 13 bits. A bucket that has not been used for 4,096 revisions of its limit counts as empty,
//! unless it is full; one from exactly 8,192 revisions ago is mistaken for the current policy.

use tidegate_core::{ExactTime, State};

/// Bits of the hash that identify a key and determine its position.
const FINGERPRINT_BITS: u32 = 48;
const GENERATION_BITS: u32 = 13;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const RESTORED: u64 = 1 << GENERATION_BITS;
const KIND_SHIFT: u32 = GENERATION_BITS + 1;
const KIND_MASK: u64 = 0b11 << KIND_SHIFT;
const TAG_SHIFT: u32 = 64 - FINGERPRINT_BITS;

const BUCKET: u64 = 1 << KIND_SHIFT;
const QUOTA: u64 = 2 << KIND_SHIFT;
const ALLOWANCE: u64 = 3 << KIND_SHIFT;

/// 48 bits of the hash of a limit and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// Maximum number of bits in a [`prefix`](Self::prefix).
    pub(crate) const PREFIX_BITS: u32 = 24;

    #[inline]
    pub(crate) const fn from_hash(hash: u64) -> Self {
        Self(hash >> TAG_SHIFT)
    }

    /// Returns the first `bits` bits, which select the segment.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 24 bits are left")]
    pub(crate) const fn prefix(self, bits: u32) -> usize {
        (self.0 >> (FINGERPRINT_BITS - bits)) as usize
    }

    /// Returns the home line, out of `homes`, selected by the remaining bits.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "below `homes`")]
    pub(crate) const fn home(self, homes: usize) -> usize {
        const BITS: u32 = FINGERPRINT_BITS - Fingerprint::PREFIX_BITS;
        let place = self.0 & ((1 << BITS) - 1);
        ((place * homes as u64) >> BITS) as usize
    }

    /// Returns a fingerprint that begins with these bits.
    pub(crate) const fn with_prefix(prefix: usize, bits: u32) -> Self {
        Self((prefix as u64) << (FINGERPRINT_BITS - bits))
    }

    /// Restores a fingerprint from its bits in a snapshot.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << FINGERPRINT_BITS) - 1))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

/// Fingerprint, kind and generation of a cell. Zero marks a vacant cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) const VACANT: Self = Self(0);
    /// Largest policy version of a restored cell.
    pub(crate) const MAX_VERSION: u32 = (1 << GENERATION_BITS) - 1;

    /// Returns the tag of a token bucket under this generation.
    #[inline]
    pub(crate) const fn bucket(fingerprint: Fingerprint, generation: u32) -> Self {
        Self(fingerprint.0 << TAG_SHIFT | BUCKET | (generation as u64 & GENERATION_MASK))
    }

    #[inline]
    pub(crate) const fn fingerprint(self) -> Fingerprint {
        Fingerprint(self.0 >> TAG_SHIFT)
    }

    #[inline]
    pub(crate) const fn is_vacant(self) -> bool {
        self.0 == 0
    }

    /// Returns the policy version under which an earlier process wrote the cell, if one did.
    pub(crate) const fn restored_version(self) -> Option<u32> {
        if self.is_restored() { Some(self.generation_bits()) } else { None }
    }

    /// Returns whether an earlier process wrote the cell. Its generations differ from ours.
    const fn is_restored(self) -> bool {
        self.0 & RESTORED != 0
    }

    /// Returns the truncated generation.
    pub(crate) const fn generation_bits(self) -> u32 {
        (self.0 & GENERATION_MASK) as u32
    }

    /// Recovers the full generation: the one nearest to `present` with the same low bits. If that
    /// would be negative, the generation is far ahead and unknown, and `u32::MAX` is returned.
    #[expect(clippy::cast_possible_truncation, reason = "13 bits")]
    pub(crate) const fn generation_near(self, present: u32) -> u32 {
        const HALF: u32 = 1 << (GENERATION_BITS - 1);
        let kept = self.generation_bits();
        let ahead = kept.wrapping_sub(present) & GENERATION_MASK as u32;
        let behind = present.wrapping_sub(kept) & GENERATION_MASK as u32;
        match present.checked_sub(behind) {
            Some(before) if ahead >= HALF => before,
            None if ahead >= HALF => u32::MAX,
            _ => present.saturating_add(ahead),
        }
    }
}

/// Entry of the table for one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct Cell {
    tag: Tag,
    word: u64,
    part: u32,
}

impl Cell {
    /// Creates the cell of a token bucket.
    #[inline]
    pub(crate) const fn from_bucket(tag: Tag, tat: ExactTime) -> Self {
        Self { tag, word: tat.ns, part: tat.part }
    }

    /// Creates the cell of a bucket in this state; `None` if the state needs no cell.
    #[inline]
    pub(crate) fn new(fingerprint: Fingerprint, state: State, generation: u32) -> Option<Self> {
        let (kind, word, part) = match state {
            State::Bucket(tat) => (BUCKET, tat.ns, tat.part),
            State::Quota { ends, used } => (QUOTA, used, ends),
            State::Allowance { used } => (ALLOWANCE, used, 0),
            // A fresh state needs no cell, and slots of a concurrency limit are leases.
            _ => return None,
        };
        let generation = u64::from(generation) & GENERATION_MASK;
        let tag = Tag(fingerprint.0 << TAG_SHIFT | kind | generation);
        Some(Self { tag, word, part })
    }

    /// Marks the cell as written by an earlier process.
    pub(crate) const fn restored(mut self) -> Self {
        self.tag = Tag(self.tag.0 | RESTORED);
        self
    }

    #[inline]
    pub(crate) const fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns the arrival time of a token bucket.
    #[inline]
    pub(crate) const fn tat(&self) -> ExactTime {
        ExactTime { ns: self.word, part: self.part }
    }

    pub(crate) fn state(&self) -> State {
        match self.tag.0 & KIND_MASK {
            BUCKET => State::Bucket(self.tat()),
            QUOTA => State::Quota { ends: self.part, used: self.word },
            ALLOWANCE => State::Allowance { used: self.word },
            _ => State::Fresh,
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_state_fits_a_20_byte_cell() {
        assert_eq!(size_of::<Cell>(), 20);
        let fingerprint = Fingerprint::from_hash(0x0123_4567_89ab_cdef);
        for state in [
            State::Bucket(ExactTime { ns: 5, part: 6 }),
            State::Quota { ends: 7, used: u64::MAX },
            State::Allowance { used: 9 },
        ] {
            let cell = Cell::new(fingerprint, state, 1_234).unwrap();
            assert_eq!((cell.state(), cell.tag().generation_near(1_000)), (state, 1_234));
            assert_eq!(cell.tag().fingerprint(), fingerprint);
            assert!(!cell.tag().is_vacant() && !cell.tag().is_restored());
            assert_eq!(cell.restored().tag().restored_version(), Some(1_234));
            assert!(cell.restored().tag().is_restored());
            assert_eq!(cell.restored().state(), state);
        }
        assert!(Cell::new(fingerprint, State::Fresh, 0).is_none());
        assert_eq!(Cell::default().state(), State::Fresh);
    }

    #[test]
    fn generation_near_recovers_the_full_generation() {
        let near = |generation: u32, present: u32| {
            Tag::bucket(Fingerprint::from_hash(1), generation).generation_near(present)
        };
        for present in [0, 5, 4_095, 4_096, 8_191, 8_192, 1 << 20, (1 << 24) - 1] {
            assert_eq!(near(present, present), present);
            assert_eq!(near(present + 4_000, present), present + 4_000);
            let before = present.saturating_sub(4_000);
            assert_eq!(near(before, present), before);
        }
        assert_eq!(near(5_000, 0), u32::MAX);
    }

    #[test]
    fn fingerprint_selects_a_segment_and_a_line() {
        let last = Fingerprint::from_hash(u64::MAX);
        assert_eq!((last.prefix(0), last.prefix(3), last.prefix(24)), (0, 7, (1 << 24) - 1));
        assert_eq!((last.home(8), last.home(1_000)), (7, 999));
        assert_eq!(Fingerprint::from_hash(0).home(1_000), 0);
        assert_eq!(Fingerprint::from_bits(last.bits()), last);
    }
}
