//! Receipts: records of what was charged where, used to settle, release or cancel it.
//!
//! A receipt is opaque to its holder. Its encoding starts with a format number.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::charge::MAX_CHARGES;
use crate::policy::exact::ExactTime;
use crate::state::State;
use crate::time::Time;

/// Format written by [`Receipt::to_bytes`].
const FORMAT: u8 = 1;

/// Error returned for a receipt that cannot be used. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptError {
    /// The bytes are not a receipt.
    #[error("the receipt is malformed")]
    Malformed,
    /// The format is not supported by this version.
    #[error("the receipt has format {0}, but this version reads format {FORMAT}")]
    Format(u8),
    /// The receipt was issued by another store, or before a restart.
    #[error("the receipt was issued by another store or before a restart")]
    Issuer,
    /// The receipt is for other buckets than the ones given.
    #[error("the receipt is for other limits or keys than the ones named")]
    Mismatch,
}

/// Which bucket was actually charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketLocation {
    /// The key's own bucket.
    Own,
    /// A shared overflow bucket, because the store was full.
    Shared,
    /// A slot lease of a concurrency limit, by its id.
    Slot(u64),
}

/// Record of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRecord {
    /// The store's hash of limit and key.
    pub bucket: u64,
    /// Which bucket was charged.
    pub location: BucketLocation,
    /// Generation of the policy that decided.
    pub generation: u32,
    /// State right after the charge.
    pub state: State,
}

/// Record of what a grant charged. Opaque; pass it back to the store that issued it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    issuer: u64,
    start: Time,
    charges: SmallVec<[ChargeRecord; 1]>,
}

impl Receipt {
    /// Creates a receipt of the store `issuer` for charges that take effect at `start`. For store
    /// implementations.
    #[must_use]
    pub fn new(issuer: u64, start: Time, charges: impl IntoIterator<Item = ChargeRecord>) -> Self {
        Self { issuer, start, charges: charges.into_iter().collect() }
    }

    /// Returns the id of the store that issued it.
    #[must_use]
    pub const fn issuer(&self) -> u64 {
        self.issuer
    }

    /// Returns the instant at which the charges take effect.
    #[must_use]
    pub const fn start(&self) -> Time {
        self.start
    }

    /// Returns one record per charge.
    #[must_use]
    pub fn charges(&self) -> &[ChargeRecord] {
        &self.charges
    }

    /// Checks that `issuer` issued the receipt for exactly these buckets.
    ///
    /// # Errors
    /// If another store issued it, or for other buckets.
    pub fn check(
        &self,
        issuer: u64,
        buckets: impl ExactSizeIterator<Item = u64>,
    ) -> Result<(), ReceiptError> {
        if self.issuer != issuer {
            return Err(ReceiptError::Issuer);
        }
        let matches = self.charges.len() == buckets.len()
            && self.charges.iter().map(|s| s.bucket).eq(buckets);
        if matches { Ok(()) } else { Err(ReceiptError::Mismatch) }
    }

    /// Encodes the receipt.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(18 + self.charges.len() * 34);
        bytes.push(FORMAT);
        bytes.extend(self.issuer.to_le_bytes());
        bytes.extend(self.start.as_nanos().to_le_bytes());
        for record in &self.charges {
            let (location, slot) = match record.location {
                BucketLocation::Own => (0, 0),
                BucketLocation::Shared => (1, 0),
                BucketLocation::Slot(slot) => (2, slot),
            };
            let (kind, word, part) = match record.state {
                State::Fresh => (0, 0, 0),
                State::Bucket(tat) => (1, tat.ns, tat.part),
                State::Quota { ends, used } => (2, used, ends),
                State::Allowance { used } => (3, used, 0),
                State::Concurrency { taken } => (4, taken, 0),
            };
            bytes.extend([location, kind]);
            bytes.extend(record.bucket.to_le_bytes());
            bytes.extend(slot.to_le_bytes());
            bytes.extend(record.generation.to_le_bytes());
            bytes.extend(word.to_le_bytes());
            bytes.extend(part.to_le_bytes());
        }
        bytes
    }

    /// Decodes a receipt written by [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    /// If the format is not supported or the bytes are not a receipt.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ReceiptError> {
        let (&format, rest) = bytes.split_first().ok_or(ReceiptError::Malformed)?;
        if format != FORMAT {
            return Err(ReceiptError::Format(format));
        }
        let mut reader = Reader(rest);
        let (issuer, start) = (reader.u64()?, Time::from_nanos(reader.u64()?));
        let mut charges = SmallVec::new();
        while !reader.0.is_empty() {
            if charges.len() == MAX_CHARGES {
                return Err(ReceiptError::Malformed);
            }
            let [location, kind] = reader.take()?;
            let (bucket, slot, generation) = (reader.u64()?, reader.u64()?, reader.u32()?);
            let (word, part) = (reader.u64()?, reader.u32()?);
            // Unused fields must be zero, so that a receipt has exactly one encoding.
            let location = match (location, slot) {
                (0, 0) => BucketLocation::Own,
                (1, 0) => BucketLocation::Shared,
                (2, slot) => BucketLocation::Slot(slot),
                _ => return Err(ReceiptError::Malformed),
            };
            let state = match (kind, word, part) {
                (0, 0, 0) => State::Fresh,
                (1, ns, part) => State::Bucket(ExactTime { ns, part }),
                (2, used, ends) => State::Quota { ends, used },
                (3, used, 0) => State::Allowance { used },
                (4, taken, 0) => State::Concurrency { taken },
                _ => return Err(ReceiptError::Malformed),
            };
            charges.push(ChargeRecord { bucket, location, generation, state });
        }
        if charges.is_empty() {
            return Err(ReceiptError::Malformed);
        }
        Ok(Self { issuer, start, charges })
    }
}

/// Reads fixed-size integers from the front of a slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ReceiptError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(ReceiptError::Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u64(&mut self) -> Result<u64, ReceiptError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ReceiptError> {
        self.take().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_round_trip_and_malformed_bytes_are_rejected() {
        let charges = [
            ChargeRecord {
                bucket: 7,
                location: BucketLocation::Own,
                generation: 3,
                state: State::Bucket(ExactTime { ns: 9, part: 2 }),
            },
            ChargeRecord {
                bucket: 8,
                location: BucketLocation::Slot(5),
                generation: 0,
                state: State::Concurrency { taken: 1 },
            },
            ChargeRecord {
                bucket: 9,
                location: BucketLocation::Shared,
                generation: 1,
                state: State::Quota { ends: 4, used: 6 },
            },
        ];
        let receipt = Receipt::new(42, Time::from_nanos(1), charges);
        let bytes = receipt.to_bytes();
        assert_eq!(Receipt::from_bytes(&bytes), Ok(receipt));
        assert_eq!(Receipt::from_bytes(&bytes[..bytes.len() - 1]), Err(ReceiptError::Malformed));
        assert_eq!(Receipt::from_bytes(&[]), Err(ReceiptError::Malformed));
        assert_eq!(Receipt::from_bytes(&bytes[..17]), Err(ReceiptError::Malformed));
        let mut non_canonical = bytes.clone();
        // A slot id in the record of a bucket without slots.
        non_canonical[27] = 1;
        assert_eq!(Receipt::from_bytes(&non_canonical), Err(ReceiptError::Malformed));
        let mut newer = bytes;
        newer[0] = 2;
        assert_eq!(Receipt::from_bytes(&newer), Err(ReceiptError::Format(2)));
    }
}
