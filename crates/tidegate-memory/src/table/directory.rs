//! Directory of segments, indexed by the first bits of a fingerprint (extendible hashing).
//!
//! A segment occupies one entry for every prefix it covers; when it splits, half of them go to the
//! new segment. When a segment with a single entry splits, the directory doubles in place: space
//! for its maximum size is reserved up front. Readers take no lock. An entry may be out of date by
//! the time a line is locked, so readers check it again then: a segment changes only while all its
//! lines are locked.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Backoff, Mutex, lock};
use crate::table::cell::Fingerprint;
use crate::table::segment::Segment;

/// Value of `depth` while entries are moved.
const DOUBLING: u32 = u32::MAX;

/// Segments by prefix.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Number of fingerprint bits that select the entry.
    depth: AtomicU32,
    entries: Box<[AtomicU64]>,
    /// Locked to change entries, after the locks of lines. Contains another copy of the depth.
    write_lock: Mutex<u32>,
}

/// An entry as it was read.
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
    /// Creates a directory of at most `2^max_depth` entries, with one segment for all keys.
    pub(crate) fn new(max_depth: u32, only: Segment) -> Self {
        let entries: Box<[AtomicU64]> = zeroed_entries(1 << max_depth);
        entries[0].store(only.pack(), Ordering::Relaxed);
        Self { depth: AtomicU32::new(0), entries, write_lock: Mutex::new(0) }
    }

    /// Returns the size of the entries in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self.depth.load(Ordering::Relaxed) {
            DOUBLING => 0,
            depth => size_of::<u64>() << depth,
        }
    }

    /// Returns the segment of a key at some moment during this call. For callers that hold no line
    /// of it.
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

    /// Returns the segment of a key, or any other while the directory doubles. Check it again under
    /// the lock of a line.
    #[inline]
    pub(crate) fn segment(&self, fingerprint: Fingerprint) -> Segment {
        self.look_up(fingerprint).segment()
    }

    /// Returns the entry of a key: its segment, and what is needed to check later that it is
    /// unchanged.
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

    /// Returns whether the entry is unchanged. If the caller holds a line of the segment, the
    /// result stays true while it is held.
    #[inline]
    pub(crate) fn is_unchanged(&self, lookup: Lookup) -> bool {
        // Read the depth last: an entry moved meanwhile may equal the outdated one, but a thread
        // that sees a moved entry also sees that the directory is doubling.
        self.entries[lookup.index].load(Ordering::Acquire) == lookup.entry
            && self.depth.load(Ordering::Acquire) == lookup.depth
    }

    /// Returns whether `segment` is still the segment of a key. If the caller holds one of its
    /// lines, the result stays true while it is held.
    pub(crate) fn is_current(&self, fingerprint: Fingerprint, segment: Segment) -> bool {
        let found = self.look_up(fingerprint);
        found.segment() == segment && self.is_unchanged(found)
    }

    /// Sets the segment of all keys that begin with the first `bits` bits of `prefix`. The caller
    /// holds all lines of the segment it replaces.
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

    /// Duplicates every entry. Readers wait meanwhile: about a tenth of a millisecond at a hundred
    /// million keys, and proportionally less with fewer.
    fn double(&self, depth: u32) {
        self.depth.store(DOUBLING, Ordering::Relaxed);
        for index in (0..1_usize << depth).rev() {
            // Release: a thread that sees a moved entry must also see that the directory is
            // doubling.
            let entry = self.entries[index].load(Ordering::Relaxed);
            self.entries[2 * index + 1].store(entry, Ordering::Release);
            self.entries[2 * index].store(entry, Ordering::Release);
        }
        self.depth.store(depth + 1, Ordering::Release);
    }
}

/// Allocates entries that use no memory until they are written.
#[cfg(all(target_pointer_width = "64", not(any(loom, shuttle))))]
#[allow(unsafe_code, reason = "std allocates lazily zeroed slices only for integers")]
fn zeroed_entries(entries: usize) -> Box<[AtomicU64]> {
    let zeroed = Box::into_raw(vec![0_u64; entries].into_boxed_slice());
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    // SAFETY: an `AtomicU64` has the size and bit validity of a `u64` and, as asserted, its
    // alignment. The box is the only owner.
    unsafe { Box::from_raw(zeroed as *mut [AtomicU64]) }
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

    /// Runs a model and returns the number of interleavings explored.
    fn explored(model: impl Fn() + Sync + Send + 'static) -> usize {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        loom::model(move || {
            seen.fetch_add(1, Ordering::SeqCst);
            model();
        });
        count.load(Ordering::SeqCst)
    }

    /// Regression: a key was looked up, and its segment then split. While another segment made the
    /// directory double, a moved entry made the lookup appear unchanged.
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
            assert!(!directory.is_unchanged(found), "the key has moved");
            assert!(!directory.is_current(key, low), "the key has moved");
            assert_eq!(directory.stable_segment(key), other);
            doubling.join().unwrap();
        });
        assert!(explored > 100, "only {explored} interleavings");
    }
}
