//! Stored entry of a bucket, and its effective state under the current policy.

use tidegate_core::{BucketEntry, ExactTime, Now, Policy, State, Time, Windows};

use crate::error::RedisStoreError;
use crate::format::names::FORMAT;
use crate::format::number::{Pair, Reader, put, put_time};
use crate::policy_history::PolicyHistory;

const FRESH: u8 = 0;
const BUCKET: u8 = 1;
const QUOTA: u8 = 2;
const ALLOWANCE: u8 = 3;
/// Flag in the kind: a hold follows.
const WITH_HOLD: u8 = 128;
/// Flag in the kind: a fence follows the hold.
const WITH_FENCE: u8 = 64;

/// An entry as the script reads and writes it. The words are a pair in the units of the bucket's
/// rate, or counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: u8,
    generation: u64,
    words: [u64; 2],
    hold: Option<Hold>,
    /// Generation of a node that waits to convert the entry; 0 if there is none.
    fence: u64,
}

/// Until when a key is held, and under which policy the hold was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    until: Time,
    generation: u64,
}

/// State of an entry under the current policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveState {
    pub(crate) state: State,
    pub(crate) held_until: Time,
    /// Whether the entry is under another policy, or has an expired hold from one.
    pub(crate) converted: bool,
}

impl Entry {
    /// Reads an entry from a reply.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RedisStoreError> {
        let kind = reader.byte()?;
        if kind == FRESH {
            return Ok(Self::default());
        }
        let (generation, words) = (reader.number()?, [reader.number()?, reader.number()?]);
        let hold = if kind & WITH_HOLD == 0 {
            None
        } else {
            Some(Hold { until: reader.time()?, generation: reader.number()? })
        };
        let fence = if kind & WITH_FENCE == 0 { 0 } else { reader.number()? };
        let kind = kind & !(WITH_HOLD | WITH_FENCE);
        if kind > ALLOWANCE {
            return Err(RedisStoreError::InvalidReply);
        }
        let hold = hold.filter(|hold| hold.until > Time::ZERO);
        Ok(Self { kind, generation, words, hold, fence })
    }

    /// Encodes the stored value: empty for an entry that is equal to none.
    pub(crate) fn stored(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(58);
        if self.kind == FRESH && self.hold.is_none() && self.fence == 0 {
            return bytes;
        }
        bytes.extend([FORMAT, self.kind]);
        put(self.generation, &mut bytes);
        put(self.words[0], &mut bytes);
        put(self.words[1], &mut bytes);
        if self.hold.is_some() || self.fence > 0 {
            let hold = self.hold.unwrap_or(Hold { until: Time::ZERO, generation: 0 });
            put_time(hold.until, &mut bytes);
            put(hold.generation, &mut bytes);
        }
        if self.fence > 0 {
            put(self.fence, &mut bytes);
        }
        bytes
    }

    /// Returns the newest generation in the entry.
    pub(crate) fn newest(&self) -> u64 {
        let held = self.hold.map_or(0, |hold| hold.generation);
        self.generation.max(held).max(self.fence)
    }

    /// Returns the state of the entry at `now` under the current policy of `history`.
    pub(crate) fn effective_state(&self, history: &PolicyHistory, now: Time) -> EffectiveState {
        let generation = history.index_of(self.generation);
        let state = self.state(history.policy_of(self.generation));
        let state = match history.limit().policy() {
            // Slots are stored separately and survive every change.
            Policy::Concurrency(_) => State::Fresh,
            _ => state.converted_to(history.limit(), generation, now),
        };
        let mut effective_state = EffectiveState {
            state,
            held_until: Time::ZERO,
            converted: self.kind != FRESH && self.generation != history.generation(),
        };
        if let Some(hold) = self.hold {
            if hold.until > now || hold.generation == history.generation() {
                effective_state.held_until = hold.until;
            } else {
                let generation = history.index_of(hold.generation);
                let reopened = State::after_hold(history.limit(), generation, hold.until, now);
                effective_state.state = effective_state.state.stricter(reopened);
                effective_state.converted = true;
            }
        }
        effective_state
    }

    /// Converts the entry to the current policy of `history`. Usage in a past calendar window is
    /// dropped.
    pub(crate) fn converted(
        &self,
        history: &PolicyHistory,
        windows: Option<&Windows>,
        now: Now,
    ) -> Self {
        let effective_state = self.effective_state(history, now.time);
        let policy = history.limit().policy();
        let mut account = BucketEntry::new(policy, effective_state.state, Time::ZERO, 0);
        if let (Policy::Quota(_), Some(windows)) = (policy, windows) {
            // If the windows do not include the present, the account stays as it is.
            let _ = account.open_window(windows, now);
        }
        let (kind, words) = match (account.state(), policy) {
            (State::Bucket(tat), Policy::Bucket(bucket)) => {
                let pair = Pair::instant(tat, bucket);
                (BUCKET, [pair.us, pair.rest])
            }
            (State::Quota { ends, used }, _) => (QUOTA, [ends.into(), used]),
            (State::Allowance { used }, _) => (ALLOWANCE, [used, 0]),
            _ => (FRESH, [0, 0]),
        };
        let hold = self.hold.filter(|hold| effective_state.held_until == hold.until);
        Self { kind, generation: history.generation(), words, hold, fence: 0 }
    }

    /// Returns until when the entry must be kept, at least.
    pub(crate) fn lasts_until(&self, policy: &Policy) -> Time {
        let full = match policy {
            Policy::Bucket(bucket) => bucket.time_to_full().ceil(),
            _ => 0,
        };
        let own = match self.kind {
            BUCKET => Time::from_nanos((self.words[0] + 1).saturating_mul(1_000)),
            QUOTA => Time::from_nanos((self.words[0] + 60).saturating_mul(1_000_000_000)),
            _ => Time::ZERO,
        };
        let held = self.hold.map_or(0, |hold| hold.until.as_nanos().saturating_add(full));
        own.max(Time::from_nanos(held))
    }

    /// Decodes the state under the policy it was written under. For an unknown policy it is rounded
    /// up, so that the conversion never favours the caller.
    fn state(&self, policy: Option<&Policy>) -> State {
        let [first, second] = self.words;
        match self.kind {
            BUCKET => State::Bucket(match policy {
                Some(Policy::Bucket(bucket)) => Pair { us: first, rest: second }.exact(bucket),
                _ => ExactTime::from_nanos((first + u64::from(second > 0)).saturating_mul(1_000)),
            }),
            QUOTA => State::Quota { ends: u32::try_from(first).unwrap_or(u32::MAX), used: second },
            ALLOWANCE => State::Allowance { used: first },
            _ => State::Fresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_entries_match_the_script_format() {
        assert!(Entry::default().stored().is_empty());
        let plain = Entry { kind: BUCKET, generation: 3, words: [4, 5], hold: None, fence: 0 };
        assert_eq!((plain.stored().len(), plain.stored()[0]), (26, FORMAT));
        let hold = Some(Hold { until: Time::from_nanos(1_500), generation: 3 });
        let held = Entry { hold, ..plain };
        assert_eq!(held.stored().len(), 50);
        // A reply has the same numbers after one byte instead of two.
        let mut reply = vec![BUCKET | WITH_HOLD];
        reply.extend(&held.stored()[2..]);
        assert_eq!(Entry::read(&mut Reader(&reply)).unwrap(), held);
        // A fence follows a hold, or an empty one.
        let fenced = Entry { fence: 9, ..plain };
        assert_eq!(fenced.stored().len(), 58);
        let mut reply = vec![BUCKET | WITH_HOLD | WITH_FENCE];
        reply.extend(&fenced.stored()[2..]);
        assert_eq!(Entry::read(&mut Reader(&reply)).unwrap(), fenced);
        reply[0] = 7;
        assert!(Entry::read(&mut Reader(&reply)).is_err());
    }
}
