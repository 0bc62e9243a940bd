//! The snapshot format, and writing it in blocks.
//!
//! A file starts with eight magic bytes and the format number. Blocks follow, each with a kind, a
//! length, its records, and a checksum over these and the checksum of the previous block. So a
//! block that is missing, moved or taken from another file is detected like one that has changed.
//! The first block is the header; the last one contains the number of records of each kind, and
//! nothing follows it. Integers are little-endian.
//!
//! Only one block at a time is held in memory.

use std::io::{self, ErrorKind, Write};

use rapidhash::v3::rapidhash_v3;
use tidegate_core::{Key, Limit, Policy};

use super::bytes::put_text;
use super::history::History;
use super::records::{FileHeader, SavedCell, SavedHold, SavedLimit, SavedShared};
use crate::table::hash::Hasher;

pub(super) const MAGIC: [u8; 8] = *b"TIDESNAP";
/// Format written and read by this version.
pub(super) const FORMAT: u32 = 1;
/// Maximum size of the records of a block, in bytes.
pub(super) const MAX_BLOCK: usize = 64 << 10;
/// Maximum number of limits in a file.
pub(super) const MAX_LIMITS: u64 = 1 << 16;
/// Bytes before the records: the checksum of the previous block, which is not written again, the
/// kind and the length.
pub(super) const PREFIX: usize = CHECKSUM + 1 + 4;
pub(super) const CHECKSUM: usize = 8;

pub(super) const HEADER: u8 = 1;
pub(super) const CELLS: u8 = 2;
pub(super) const HOLDS: u8 = 3;
pub(super) const SHARED: u8 = 4;
pub(super) const LIMITS: u8 = 5;
pub(super) const END: u8 = 6;

/// Records of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Records {
    Cells(Vec<SavedCell>),
    Holds(Vec<SavedHold>),
    /// Shared buckets of the limit with this identity.
    Shared(String, Vec<SavedShared>),
    Limits(Vec<SavedLimit>),
}

/// Number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) cells: u64,
    pub(super) holds: u64,
    pub(super) shared: u64,
    pub(super) limits: u64,
}

impl Totals {
    pub(super) const fn numbers(self) -> [u64; 4] {
        [self.cells, self.holds, self.shared, self.limits]
    }

    pub(super) fn add(&mut self, records: &Records) {
        match records {
            Records::Cells(cells) => self.cells += cells.len() as u64,
            Records::Holds(holds) => self.holds += holds.len() as u64,
            Records::Shared(_, buckets) => self.shared += buckets.len() as u64,
            Records::Limits(limits) => self.limits += limits.len() as u64,
        }
    }
}

/// Writes a snapshot record by record.
#[derive(Debug)]
pub(super) struct Writer<W> {
    to: W,
    /// The block being filled, with space for its prefix.
    block: Vec<u8>,
    kind: u8,
    checksum: u64,
    totals: Totals,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(mut to: W, header: FileHeader) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&FORMAT.to_le_bytes())?;
        let (block, totals) = (vec![0; PREFIX], Totals::default());
        let bytes = (MAGIC.len() + size_of_val(&FORMAT)) as u64;
        let mut writer = Self { to, block, kind: HEADER, checksum: 0, totals, bytes };
        writer.put_numbers(&[header.wall.as_nanos(), header.seed, hash_check(header.seed)]);
        Ok(writer)
    }

    pub(super) fn cell(&mut self, cell: &SavedCell) -> io::Result<()> {
        self.make_room(CELLS, SavedCell::BYTES)?;
        cell.put(&mut self.block);
        self.totals.cells += 1;
        Ok(())
    }

    pub(super) fn hold(&mut self, hold: &SavedHold) -> io::Result<()> {
        self.make_room(HOLDS, SavedHold::BYTES)?;
        hold.put(&mut self.block);
        self.totals.holds += 1;
        Ok(())
    }

    /// Writes shared buckets of the limit with this identity.
    pub(super) fn shared(&mut self, identity: &str, buckets: &[SavedShared]) -> io::Result<()> {
        let room = MAX_BLOCK.saturating_sub(2 + identity.len()) / SavedShared::BYTES;
        for buckets in buckets.chunks(room.max(1)) {
            self.flush(SHARED)?;
            if !put_text(identity, &mut self.block) {
                return Err(ErrorKind::InvalidInput.into());
            }
            buckets.iter().for_each(|bucket| bucket.put(&mut self.block));
            self.totals.shared += buckets.len() as u64;
        }
        Ok(())
    }

    pub(super) fn limit(&mut self, identity: &str, history: &History) -> io::Result<()> {
        let mut record = Vec::new();
        if !SavedLimit::put(identity, history, &mut record) {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.make_room(LIMITS, record.len())?;
        self.block.extend_from_slice(&record);
        self.totals.limits += 1;
        Ok(())
    }

    /// Writes the end. Returns the totals and the size of the file in bytes.
    pub(super) fn finish(mut self) -> io::Result<(Totals, u64)> {
        self.flush(END)?;
        self.put_numbers(&self.totals.numbers());
        self.flush(END)?;
        self.to.flush()?;
        Ok((self.totals, self.bytes))
    }

    fn put_numbers(&mut self, numbers: &[u64]) {
        self.block.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }

    /// Starts a new block unless a record of this kind and size fits into the current one.
    fn make_room(&mut self, kind: u8, bytes: usize) -> io::Result<()> {
        if self.kind != kind || self.block.len() - PREFIX + bytes > MAX_BLOCK {
            self.flush(kind)?;
        }
        Ok(())
    }

    /// Writes the current block and starts another.
    fn flush(&mut self, next: u8) -> io::Result<()> {
        if self.block.len() > PREFIX {
            let length = u32::try_from(self.block.len() - PREFIX).unwrap_or(u32::MAX);
            self.checksum = seal(&mut self.block, self.checksum, self.kind, length);
            self.to.write_all(&self.block[CHECKSUM..])?;
            self.to.write_all(&self.checksum.to_le_bytes())?;
            self.bytes += self.block.len() as u64;
            self.block.truncate(PREFIX);
        }
        self.kind = next;
        Ok(())
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
impl<W: Write> Writer<W> {
    /// Writes a block of any kind and content with a valid checksum.
    pub(super) fn raw(&mut self, kind: u8, records: &[u8]) -> io::Result<()> {
        self.flush(kind)?;
        self.block.extend_from_slice(records);
        self.flush(kind)
    }

    /// Changes the hash check in the header.
    pub(super) fn corrupt_hash_check(&mut self) {
        *self.block.last_mut().expect("a head") ^= 1;
    }
}

/// Fills in the prefix of a block and returns its checksum.
pub(super) fn seal(block: &mut [u8], before: u64, kind: u8, length: u32) -> u64 {
    block[..CHECKSUM].copy_from_slice(&before.to_le_bytes());
    block[CHECKSUM] = kind;
    block[CHECKSUM + 1..PREFIX].copy_from_slice(&length.to_le_bytes());
    rapidhash_v3(block)
}

/// Hashes a few short and long texts. If the result changes, the hash function has changed and no
/// key of an older file would be found.
pub(super) fn hash_check(seed: u64) -> u64 {
    const LONG: &str = "a text that is long enough for the hash function to take more than one turn, \
                        as it does with the longest of keys, and then somewhat longer than that";
    let hasher = Hasher::new(seed);
    let Ok(limit) = Policy::allowance(1).map(Limit::inline) else { return 0 };
    let keys = [Key::new("a"), Key::new("user:0000000000000000019"), Key::new(LONG)];
    let keys = keys.into_iter().chain([Key::new("a").in_group("b")]);
    keys.fold(0, |sum: u64, key| sum.rotate_left(1) ^ hasher.bucket(&limit, key))
}
