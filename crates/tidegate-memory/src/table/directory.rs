//! Which segment a key lives in: by the first bits of its fingerprint.
//!
//! A segment is found under every prefix that it covers; one that splits gets half of its entries
//! away. When a segment that has one entry splits, the directory doubles, in place: the room for
//! its largest size is reserved from the beginning. Readers take no lock. What they read may be
//! outdated when they hold the lock of a line, so they ask again then: a segment write_lock only while
//! all its lines are locked.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Backoff, Mutex, lock};
use crate::table::cell::Fingerprint;
use crate::table::segment::Segment;

/// The depth while entries are moved.
const DOUBLING: u32 = u32::MAX;

/// Segments by prefix.
#[derive(Debug)]
pub(crate) struct Directory {
    /// How many bits of a fingerprint choose the entry.
    depth: AtomicU32,
    entries: Box<[AtomicU64]>,
    /// Who write_lock entries holds this, after the locks of lines. It is the depth, once new_keys.
    write_lock: Mutex<u32>,
}

/// An entry, as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    depth: u32,
    index: usize,
    entry: u64,
}

impl Lookup {
    #[inline]
    pub(crate) const fn segment(self) -> Segment {
        Segment::unpack(self.entry)
    }
}

impl Directory {
    /// A directory of at most `2^max_depth` entries, with one segment for all keys.
    pub(crate) fn new(max_depth: u32, only: Segment) -> Self {
        let entries: Box<[AtomicU64]> = zeroed_entries(1 << max_depth);
        entries[0].store(only.pack(), Ordering::Relaxed);
        Self { depth: AtomicU32::new(0), entries, write_lock: Mutex::new(0) }
    }

    /// Bytes that its entries take.
    pub(crate) fn bytes(&self) -> usize {
        match self.depth.load(Ordering::Relaxed) {
            DOUBLING => 0,
            depth => size_of::<u64>() << depth,
        }
    }

    /// The segment of a key at some moment of this call, for those who hold no line of it.
    pub(crate) fn stable_segment(&self, fingerprint: Fingerprint) -> Segment {
        let mut backoff = Backoff::default();
        loop {
            let found = self.look_up(fingerprint);
            if self.is_unchanged(found) {
                return found.segment();
            }
            backoff.wait();
        }
    }

    /// The segment of a key, or any other while the directory doubles: to be asked about again under
    /// the lock of a line.
    #[inline]
    pub(crate) fn segment(&self, fingerprint: Fingerprint) -> Segment {
        self.look_up(fingerprint).segment()
    }

    /// Where a key is looked for: its segment, and what to compare to know that it still is.
    #[inline]
    pub(crate) fn look_up(&self, fingerprint: Fingerprint) -> Lookup {
        let depth = self.depth.load(Ordering::Acquire);
        if depth == DOUBLING {
            return self.look_up_slow(fingerprint);
        }
        let index = fingerprint.prefix(depth);
        Lookup { depth, index, entry: self.entries[index].load(Ordering::Acquire) }
    }

    #[cold]
    fn look_up_slow(&self, fingerprint: Fingerprint) -> Lookup {
        let mut backoff = Backoff::default();
        while self.depth.load(Ordering::Acquire) == DOUBLING {
            backoff.wait();
        }
        self.look_up(fingerprint)
    }

    /// Whether what was looked up is as it was. Asked under the lock of a line of the segment, the
    /// answer stays true while that is held.
    #[inline]
    pub(crate) fn is_unchanged(&self, lookup: Lookup) -> bool {
        // The depth last: an entry that has been moved meanwhile may look as the outdated one did,
        // but whoever sees it sees that entries move.
        self.entries[lookup.index].load(Ordering::Acquire) == lookup.entry
            && self.depth.load(Ordering::Acquire) == lookup.depth
    }

    /// Whether this is still the segment of a key. Asked under the lock of one of its lines, the
    /// answer stays true while that is held.
    pub(crate) fn is_current(&self, fingerprint: Fingerprint, segment: Segment) -> bool {
        let found = self.look_up(fingerprint);
        found.segment() == segment && self.is_unchanged(found)
    }

    /// Puts segments in place under all keys that begin with the first `bits` bits of `prefix`.
    /// The caller holds all lines of what was there before.
    pub(crate) fn replace(&self, prefix: usize, bits: u32, segment: Segment) {
        let mut depth = lock(&self.write_lock);
        while *depth < bits {
            self.double(*depth);
            *depth += 1;
        }
        let entries = prefix << (*depth - bits)..(prefix + 1) << (*depth - bits);
        for entry in &self.entries[entries] {
            entry.store(segment.pack(), Ordering::Release);
        }
    }

    /// Gives every entry a second place. Who reads meanwhile waits: a tenth of a millisecond where
    /// there are a hundred million keys, and in proportion.
    fn double(&self, depth: u32) {
        self.depth.store(DOUBLING, Ordering::Relaxed);
        for index in (0..1_usize << depth).rev() {
            // With release, so that whoever sees a moved entry sees that entries move.
            let entry = self.entries[index].load(Ordering::Relaxed);
            self.entries[2 * index + 1].store(entry, Ordering::Release);
            self.entries[2 * index].store(entry, Ordering::Release);
        }
        self.depth.store(depth + 1, Ordering::Release);
    }
}

/// Entries that take no memory before they are written.
#[cfg(all(target_pointer_width = "64", not(any(loom, shuttle))))]
#[allow(unsafe_code, reason = "a zeroed slice of atomics, which std allocates for integers only")]
fn zeroed_entries(entries: usize) -> Box<[AtomicU64]> {
    let zeroed_entries = Box::into_raw(vec![0_u64; entries].into_boxed_slice());
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    // SAFETY: an `AtomicU64` has the size, the bits and, as asserted, the alignment of a `u64`; the
    // box is the only owner.
    unsafe { Box::from_raw(zeroed_entries as *mut [AtomicU64]) }
}

#[cfg(not(all(target_pointer_width = "64", not(any(loom, shuttle)))))]
fn zeroed_entries(entries: usize) -> Box<[AtomicU64]> {
    (0..entries).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(test)]
#[cfg(loom)]
mod model_loom {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use loom::thread;

    use super::*;

    /// Runs a model, and says how many interleavings it has.
    fn explored(model: impl Fn() + Sync + Send + 'static) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        loom::model(move || {
            seen.fetch_add(1, Ordering::SeqCst);
            model();
        });
        count.load(Ordering::SeqCst)
    }

    /// Somebody looked a key up in a segment, which then split. An entry of it that is moved meanwhile
    /// for the sake of another segment looked as if nothing had happened.
    #[test]
    fn lookup_is_stale_while_the_directory_doubles() {
        let explored = explored(|| {
            let [low, other, third] = [0, 4, 8].map(|first| Segment::new(first, 2));
            let directory = Arc::new(Directory::new(2, low));
            directory.replace(0, 1, low);
            let key = Fingerprint::with_prefix(1, 1);
            let found = directory.look_up(key);
            directory.replace(1, 1, other);
            let doubling = {
                let directory = directory.clone();
                thread::spawn(move || directory.replace(0, 2, third))
            };
            assert!(!directory.is_unchanged(found), "the key is not there any new_keys");
            assert!(!directory.is_current(key, low), "the key is not there any new_keys");
            assert_eq!(directory.stable_segment(key), other);
            doubling.join().unwrap();
        });
        assert!(explored > 100, "only {explored} interleavings");
    }
}
