//! Records of a snapshot, independent of the layout of the table.

use tidegate_core::{ExactTime, State, WallTime};

use super::bytes::{Bytes, put_text};
use super::history::{History, MAX_IDENTITY_BYTES, MAX_SPANS};
use super::policy;

/// Header: when the snapshot was taken, and the secret of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) wall: WallTime,
    pub(super) seed: u64,
}

/// Bucket of one key. Times are wall times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedCell {
    pub(super) fingerprint: u64,
    pub(super) state: State,
    pub(super) version: u32,
}

/// A hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedHold {
    pub(super) hash: u64,
    pub(super) until: WallTime,
    pub(super) lapses: WallTime,
    pub(super) version: u32,
}

/// A shared bucket of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedShared {
    pub(super) bucket: u16,
    pub(super) state: State,
    pub(super) version: u32,
}

/// A limit and its policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedLimit {
    pub(super) identity: String,
    pub(super) history: History,
}

impl SavedCell {
    /// Size of a record.
    pub(super) const BYTES: usize = 8 + STATE_BYTES;

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.fingerprint.to_le_bytes());
        put_state(self.state, self.version, to);
    }

    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let fingerprint = bytes.u64()?;
        let (state, version) = read_state(bytes)?;
        Some(Self { fingerprint, state, version })
    }
}

impl SavedHold {
    /// Size of a record.
    pub(super) const BYTES: usize = 28;

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        for number in [self.hash, self.until.as_nanos(), self.lapses.as_nanos()] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        to.extend_from_slice(&self.version.to_le_bytes());
    }

    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self {
            hash: bytes.u64()?,
            until: WallTime::from_nanos(bytes.u64()?),
            lapses: WallTime::from_nanos(bytes.u64()?),
            version: bytes.u32()?,
        })
    }
}

impl SavedShared {
    /// Size of a record.
    pub(super) const BYTES: usize = 2 + STATE_BYTES;

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.bucket.to_le_bytes());
        put_state(self.state, self.version, to);
    }

    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let bucket = bytes.u16()?;
        let (state, version) = read_state(bytes)?;
        Some(Self { bucket, state, version })
    }
}

/// Stands for a history without an end.
const OPEN: u32 = u32::MAX;

impl SavedLimit {
    /// Appends a limit. Returns whether it can be read again.
    pub(super) fn put(identity: &str, history: &History, to: &mut Vec<u8>) -> bool {
        let spans = history.spans();
        let Ok(count) = u16::try_from(spans.len()) else { return false };
        if identity.len() > MAX_IDENTITY_BYTES || !put_text(identity, to) {
            return false;
        }
        to.extend_from_slice(&history.ends().unwrap_or(OPEN).to_le_bytes());
        to.extend_from_slice(&count.to_le_bytes());
        for span in spans {
            to.extend_from_slice(&span.from.to_le_bytes());
            policy::put_change(span.change, to);
            policy::put(&span.policy, to);
        }
        true
    }

    pub(super) fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let identity = bytes.text()?;
        let (ends, count) = (bytes.u32()?, bytes.u16()?);
        if identity.len() > MAX_IDENTITY_BYTES || usize::from(count) > MAX_SPANS {
            return None;
        }
        let mut history = History::default();
        for _ in 0..count {
            let (from, change) = (bytes.u32()?, policy::read_change(bytes)?);
            // Policies must be in order.
            if !history.push(from, policy::read(bytes)?, change) {
                return None;
            }
        }
        let history = if ends == OPEN { history } else { history.ending_at(ends) };
        Some(Self { identity: identity.to_owned(), history })
    }
}

/// Size of a state and its policy version: kind, word, part and version.
const STATE_BYTES: usize = 1 + 8 + 4 + 4;

fn put_state(state: State, version: u32, to: &mut Vec<u8>) {
    let (kind, word, part) = match state {
        State::Bucket(ExactTime { ns, part }) => (1, ns, part),
        State::Quota { ends, used } => (2, used, ends),
        State::Allowance { used } => (3, used, 0),
        // A fresh state is not stored, and leases are not saved.
        _ => (0_u8, 0, 0),
    };
    to.push(kind);
    to.extend_from_slice(&word.to_le_bytes());
    to.extend_from_slice(&part.to_le_bytes());
    to.extend_from_slice(&version.to_le_bytes());
}

fn read_state(bytes: &mut Bytes<'_>) -> Option<(State, u32)> {
    let (kind, word, part, version) = (bytes.u8()?, bytes.u64()?, bytes.u32()?, bytes.u32()?);
    let state = match (kind, part) {
        (0, 0) if word == 0 => State::Fresh,
        (1, part) => State::Bucket(ExactTime { ns: word, part }),
        (2, ends) => State::Quota { ends, used: word },
        (3, 0) => State::Allowance { used: word },
        _ => return None,
    };
    Some((state, version))
}
