//! The stored value of a bucket: its state, its hold and its slot leases.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_core::{Concurrency, ExactTime, Limit, Policy, State, Time, WallTime};

use crate::history::History;

/// Format of a stored value.
const FORMAT: u8 = 1;
/// End of a lease that does not expire.
const NEVER: u64 = u64::MAX;
/// Bytes of a value without leases.
const HEAD_BYTES: usize = 30;
/// Bytes of a lease.
const LEASE_BYTES: usize = 24;

/// Maximum number of leases of one bucket. Values in the storage of an object are limited to 2 MB.
pub(crate) const MAX_LEASES: usize = 65_536;

/// One acquisition of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: u64,
    slots: u64,
    /// In nanoseconds; [`NEVER`] keeps it until it is released.
    ends: u64,
}

/// The stored value of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    state: State,
    /// Number of the revision under which the state was written.
    revision: u32,
    /// End of the hold; zero if there is none.
    held_until: Time,
    /// Number of the revision under which the hold was set.
    hold_revision: u32,
    leases: Vec<Lease>,
}

/// A state under the current policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EffectiveState {
    pub(crate) state: State,
    pub(crate) held_until: Time,
    /// Whether the stored state is under another policy.
    pub(crate) converted: bool,
}

impl Entry {
    /// Decodes a stored value.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.first().is_some_and(|&format| format != FORMAT) {
            return Err(alloc::format!(
                "a stored bucket has format {}, but this version reads format {FORMAT}",
                bytes[0]
            ));
        }
        Self::decode_fields(bytes).ok_or_else(|| "a stored bucket is malformed".into())
    }

    fn decode_fields(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let u64_at = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let (word, part) = (u64_at(6)?, u32_at(14)?);
        let state = match head[1] {
            0 => State::Fresh,
            1 => State::Bucket(ExactTime { ns: word, part }),
            2 => State::Quota { ends: part, used: word },
            3 => State::Allowance { used: word },
            _ => return None,
        };
        let mut leases = Vec::with_capacity(rest.len() / LEASE_BYTES);
        while let Some((lease, after)) = rest.split_first_chunk::<LEASE_BYTES>() {
            let word = |at: usize| Some(u64::from_le_bytes(lease[at..at + 8].try_into().ok()?));
            leases.push(Lease { id: word(0)?, slots: word(8)?, ends: word(16)? });
            rest = after;
        }
        rest.is_empty().then_some(Self {
            state,
            revision: u32_at(2)?,
            held_until: Time::from_nanos(u64_at(18)?),
            hold_revision: u32_at(26)?,
            leases,
        })
    }

    /// Encodes the value; `None` if it is equivalent to no entry.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        if *self == (Self { revision: self.revision, ..Self::default() }) {
            return None;
        }
        let (kind, word, part) = match self.state {
            State::Bucket(tat) => (1, tat.ns, tat.part),
            State::Quota { ends, used } => (2, used, ends),
            State::Allowance { used } => (3, used, 0),
            _ => (0, 0, 0),
        };
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.leases.len() * LEASE_BYTES);
        bytes.extend([FORMAT, kind]);
        bytes.extend(self.revision.to_le_bytes());
        bytes.extend(word.to_le_bytes());
        bytes.extend(part.to_le_bytes());
        bytes.extend(self.held_until.as_nanos().to_le_bytes());
        bytes.extend(self.hold_revision.to_le_bytes());
        for lease in &self.leases {
            bytes.extend(lease.id.to_le_bytes());
            bytes.extend(lease.slots.to_le_bytes());
            bytes.extend(lease.ends.to_le_bytes());
        }
        Some(bytes)
    }

    /// Returns when the entry is equivalent to none, in nanoseconds since the Unix epoch; `None` if
    /// that does not happen by itself.
    pub(crate) fn full_at(&self, policy: &Policy) -> Option<u64> {
        let state = match self.state {
            State::Bucket(tat) => tat.ceil(),
            State::Quota { ends, .. } => WallTime::from_secs(ends).as_nanos(),
            State::Allowance { used } if used > 0 => return None,
            _ => 0,
        };
        let hold = match policy {
            _ if self.held_until == Time::ZERO => 0,
            // After a hold the bucket refills from empty.
            Policy::Bucket(bucket) => {
                self.held_until.as_nanos().saturating_add(bucket.time_to_full().ceil())
            }
            _ => self.held_until.as_nanos(),
        };
        let leases = self.leases.iter().map(|lease| lease.ends).max().unwrap_or(0);
        let full = state.max(hold).max(leases);
        (full < NEVER).then_some(full)
    }

    /// Returns the state at `now` under the current policy.
    pub(crate) fn effective_state(&self, history: &History, now: Time) -> EffectiveState {
        let limit: &Limit = history.limit();
        let mut state = match limit.policy() {
            // Slots are leases, which survive every change.
            Policy::Concurrency(_) => State::Fresh,
            _ => self.state.converted_to(limit, history.index_of(self.revision), now),
        };
        let current = history.revision();
        let mut held_until = Time::ZERO;
        let mut converted = self.state != State::Fresh && self.revision != current;
        if self.held_until > Time::ZERO {
            if self.held_until > now || self.hold_revision == current {
                held_until = self.held_until;
            } else {
                let then = history.index_of(self.hold_revision);
                state = state.stricter(State::after_hold(limit, then, self.held_until, now));
                converted = true;
            }
        }
        EffectiveState { state, held_until, converted }
    }

    /// Sets the state, written under the current policy. A hold that `effective` has merged into
    /// the state is dropped.
    pub(crate) fn set_state(&mut self, state: State, effective: EffectiveState, revision: u32) {
        self.state = match state {
            State::Concurrency { .. } => State::Fresh,
            state => state,
        };
        self.revision = revision;
        if effective.held_until == Time::ZERO {
            self.held_until = Time::ZERO;
            self.hold_revision = 0;
        }
    }

    /// Drops a hold that ended before `now`, whose effect a charge has just merged into the state.
    pub(crate) fn drop_hold_before(&mut self, now: Time) {
        if self.held_until <= now {
            (self.held_until, self.hold_revision) = (Time::ZERO, 0);
        }
    }

    /// Closes the bucket until `until`, unless it is closed longer. Returns the end of the hold.
    pub(crate) fn hold(&mut self, until: Time, revision: u32, now: Time) -> Time {
        if until > self.held_until && until > now {
            (self.held_until, self.hold_revision) = (until, revision);
        }
        self.held_until
    }

    /// Forgets leases that have expired.
    pub(crate) fn expire(&mut self, now: Time) {
        self.leases.retain(|lease| lease.ends > now.as_nanos());
    }

    /// Returns the number of slots taken.
    pub(crate) fn taken(&self) -> u64 {
        self.leases.iter().fold(0, |sum, lease| sum.saturating_add(lease.slots))
    }

    /// Returns the number of leases.
    pub(crate) fn leases(&self) -> usize {
        self.leases.len()
    }

    /// Returns how long until enough leases have expired for `wanted` slots to be free.
    pub(crate) fn free_in(&self, wanted: u64, policy: &Concurrency, now: Time) -> Option<Duration> {
        let mut taken = self.taken();
        let expiring = self.leases.iter().filter(|lease| lease.ends != NEVER);
        let mut ends: Vec<_> = expiring.map(|lease| (lease.ends, lease.slots)).collect();
        ends.sort_unstable();
        ends.into_iter().find_map(|(end, slots)| {
            taken = taken.saturating_sub(slots);
            (taken.saturating_add(wanted) <= policy.slots())
                .then(|| Time::from_nanos(end).since(now))
        })
    }

    /// Takes slots under a lease with this id.
    pub(crate) fn acquire(&mut self, id: u64, slots: u64, lease: Option<Duration>, now: Time) {
        let ends = lease.map_or(NEVER, |lease| now.after(lease).as_nanos());
        self.leases.push(Lease { id, slots, ends });
    }

    /// Releases up to `slots` slots of a lease. Returns how many were still held.
    pub(crate) fn release(&mut self, id: u64, slots: u64) -> u64 {
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) else { return 0 };
        let given = lease.slots.min(slots);
        lease.slots -= given;
        self.leases.retain(|lease| lease.slots > 0);
        given
    }

    /// Renews a lease. Returns how many slots it still holds.
    pub(crate) fn renew(&mut self, id: u64, lease: Option<Duration>, now: Time) -> u64 {
        let Some(found) = self.leases.iter_mut().find(|found| found.id == id) else { return 0 };
        found.ends = lease.map_or(NEVER, |lease| now.after(lease).as_nanos());
        found.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_foreign_formats_are_refused() {
        let entry = Entry {
            state: State::Bucket(ExactTime { ns: 9, part: 2 }),
            revision: 7,
            held_until: Time::from_nanos(11),
            hold_revision: 6,
            leases: alloc::vec![Lease { id: 1, slots: 2, ends: NEVER }],
        };
        let bytes = entry.encode().unwrap();
        assert_eq!(Entry::decode(&bytes).unwrap(), entry);
        for length in 0..bytes.len() {
            let left_out = (bytes.len() - length) % LEASE_BYTES;
            let whole = length >= HEAD_BYTES && left_out == 0;
            assert_eq!(Entry::decode(&bytes[..length]).is_ok(), whole, "{length}");
        }
        let mut newer = bytes;
        newer[0] = 2;
        let error = Entry::decode(&newer).unwrap_err();
        assert_eq!(error, "a stored bucket has format 2, but this version reads format 1");
        assert_eq!(Entry { revision: 3, ..Entry::default() }.encode(), None);
    }
}
