//! Reading a snapshot.
//!
//! The reader holds one block at a time and never allocates more than the maximum block size,
//! whatever the file contains. Anything it does not understand is an error.

use std::io::{ErrorKind, Read};

use tidegate_core::WallTime;

use super::bytes::Bytes;
use super::error::SnapshotError;
use super::format::{
    CELLS, CHECKSUM, END, FORMAT, HEADER, HOLDS, LIMITS, MAGIC, MAX_BLOCK, MAX_LIMITS, PREFIX,
    Records, SHARED, Totals, hash_check, seal,
};
use super::records::{FileHeader, SavedCell, SavedHold, SavedLimit, SavedShared};

/// Reads a snapshot block by block.
#[derive(Debug)]
pub(super) struct Reader<R> {
    from: R,
    header: FileHeader,
    block: Vec<u8>,
    checksum: u64,
    totals: Totals,
    /// Offset of the next block.
    at: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header and rejects formats unknown to this version.
    pub(super) fn new(mut from: R) -> Result<Self, SnapshotError> {
        let mut begin = Vec::with_capacity(MAGIC.len() + size_of_val(&FORMAT));
        from.by_ref().take(begin.capacity() as u64).read_to_end(&mut begin)?;
        // A prefix of the magic bytes, even an empty one, is a truncated snapshot and not another
        // kind of file.
        if !begin.iter().zip(&MAGIC).all(|(byte, magic)| byte == magic) {
            return Err(SnapshotError::NotASnapshot);
        }
        let format = begin.get(MAGIC.len()..).and_then(|format| format.try_into().ok());
        let Some(format) = format.map(u32::from_le_bytes) else {
            return Err(SnapshotError::Damaged { what: "the file is truncated", at: 0 });
        };
        if format != FORMAT {
            return Err(SnapshotError::Format(format));
        }
        let at = begin.len() as u64;
        let header = FileHeader { wall: WallTime::default(), seed: 0 };
        let (block, totals) = (Vec::new(), Totals::default());
        let mut reader = Self { from, header, block, checksum: 0, totals, at };
        reader.read_header()?;
        Ok(reader)
    }

    pub(super) const fn header(&self) -> FileHeader {
        self.header
    }

    /// Returns the records of the next block; `None` at the end, once the totals have been
    /// verified.
    pub(super) fn next(&mut self) -> Result<Option<Records>, SnapshotError> {
        let at = self.at;
        let damaged = |what| SnapshotError::Damaged { what, at };
        let kind = self.read_block()?;
        let mut bytes = Bytes(&self.block[PREFIX..]);
        if kind == END {
            let totals = [bytes.u64(), bytes.u64(), bytes.u64(), bytes.u64()];
            if totals != self.totals.numbers().map(Some) || !bytes.is_empty() {
                return Err(damaged("the number of records does not match the totals"));
            }
            return self.expect_end().map(|()| None);
        }
        let records = parse_records(kind, bytes).ok_or_else(|| damaged("a record is malformed"))?;
        self.totals.add(&records);
        if self.totals.limits > MAX_LIMITS {
            return Err(damaged("the file has too many limits"));
        }
        Ok(Some(records))
    }

    fn read_header(&mut self) -> Result<(), SnapshotError> {
        let at = self.at;
        let kind = self.read_block()?;
        let mut bytes = Bytes(&self.block[PREFIX..]);
        let numbers = (bytes.u64(), bytes.u64(), bytes.u64());
        let (HEADER, (Some(wall), Some(seed), Some(hash)), true) =
            (kind, numbers, bytes.is_empty())
        else {
            return Err(SnapshotError::Damaged {
                what: "the header block is missing or malformed",
                at,
            });
        };
        if hash != hash_check(seed) {
            return Err(SnapshotError::OtherHash);
        }
        self.header = FileHeader { wall: WallTime::from_nanos(wall), seed };
        Ok(())
    }

    /// Reads a complete block and returns its kind.
    fn read_block(&mut self) -> Result<u8, SnapshotError> {
        let at = self.at;
        let damaged = |what| SnapshotError::Damaged { what, at };
        let mut prefix = [0; PREFIX - CHECKSUM];
        self.fill(&mut prefix)?;
        let [kind, length @ ..] = prefix;
        let length = u32::from_le_bytes(length);
        let size = usize::try_from(length).unwrap_or(usize::MAX);
        if size > MAX_BLOCK {
            return Err(damaged("a block is too long"));
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(PREFIX + size, 0);
        self.fill(&mut block[PREFIX..])?;
        let mut written = [0; CHECKSUM];
        self.fill(&mut written)?;
        self.checksum = seal(&mut block, self.checksum, kind, length);
        if written != self.checksum.to_le_bytes() {
            return Err(damaged("checksum mismatch"));
        }
        self.at += (PREFIX + size) as u64;
        self.block = block;
        Ok(kind)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                SnapshotError::Damaged { what: "the file is truncated", at: self.at }
            }
            _ => error.into(),
        })
    }

    fn expect_end(&mut self) -> Result<(), SnapshotError> {
        match self.from.read_exact(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                Err(SnapshotError::Damaged { what: "there is data after the end", at: self.at })
            }
        }
    }
}

/// Parses the records of a block, which must fill it exactly.
fn parse_records(kind: u8, mut bytes: Bytes<'_>) -> Option<Records> {
    Some(match kind {
        CELLS => Records::Cells(all(bytes, SavedCell::read)?),
        HOLDS => Records::Holds(all(bytes, SavedHold::read)?),
        SHARED => {
            let identity = bytes.text()?.to_owned();
            Records::Shared(identity, all(bytes, SavedShared::read)?)
        }
        LIMITS => Records::Limits(all(bytes, SavedLimit::read)?),
        _ => return None,
    })
}

fn all<T>(mut bytes: Bytes<'_>, read: impl Fn(&mut Bytes<'_>) -> Option<T>) -> Option<Vec<T>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        records.push(read(&mut bytes)?);
    }
    Some(records)
}
