//! What is stored for a bucket, and how it stands under the policy that decides.

use tidegate_core::{Account, Exact, Now, Policy, State, Time, Windows};

use crate::error::RedisFault;
use crate::format::names::FORMAT;
use crate::format::number::{Pair, Reader, put, put_time};
use crate::policy_history::PolicyHistory;

const FRESH: u8 = 0;
const BUCKET: u8 = 1;
const QUOTA: u8 = 2;
const ALLOWANCE: u8 = 3;
/// Set beside the kind when a hold follows.
const WITH_HOLD: u8 = 128;
/// Set beside both when a fence follows the hold.
const WITH_FENCE: u8 = 64;

/// A value as the script reads and writes it. Words are pairs of the bucket's own rate, or counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: u8,
    generation: u64,
    words: [u64; 2],
    hold: Option<Hold>,
    /// The generation of somebody who waits to convert the entry; 0 if nobody does.
    fence: u64,
}

/// Until when a key is closed, and under which policy that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    until: Time,
    generation: u64,
}

/// How an entry stands under the policy that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveState {
    pub(crate) state: State,
    pub(crate) held_until: Time,
    /// The entry itself is under another policy, or held by one until an instant that has passed.
    pub(crate) converted: bool,
}

impl Entry {
    /// The entry of an answer.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, RedisFault> {
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
            return Err(RedisFault::InvalidReply);
        }
        let hold = hold.filter(|hold| hold.until > Time::ZERO);
        Ok(Self { kind, generation, words, hold, fence })
    }

    /// The value as it is stored: empty for an entry that is the same as none.
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

    /// The newest generation that the entry knows of.
    pub(crate) fn newest(&self) -> u64 {
        let held = self.hold.map_or(0, |hold| hold.generation);
        self.generation.max(held).max(self.fence)
    }

    /// How the entry stands at `now` under the policy that decides for `history`.
    pub(crate) fn effective_state(&self, history: &PolicyHistory, now: Time) -> EffectiveState {
        let generation = history.index_of(self.generation);
        let state = self.state(history.policy_of(self.generation));
        let state = match history.limit().policy() {
            // Slots are kept elsewhere and outlive every change.
            Policy::Concurrency(_) => State::Fresh,
            _ => state.carried(history.limit(), generation, now),
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
                effective_state.state = effective_state.state.or_less(reopened);
                effective_state.converted = true;
            }
        }
        effective_state
    }

    /// The entry brought under the policy that decides for `history`. What was used in a calendar
    /// window that has passed is left behind.
    pub(crate) fn converted(
        &self,
        history: &PolicyHistory,
        windows: Option<&Windows>,
        now: Now,
    ) -> Self {
        let effective_state = self.effective_state(history, now.time);
        let policy = history.limit().policy();
        let mut account = Account::new(policy, effective_state.state, Time::ZERO, 0);
        if let (Policy::Quota(_), Some(windows)) = (policy, windows) {
            // Windows that do not hold the present leave the account as it is.
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

    /// Until when the entry must live, at least.
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

    /// The state, read under the policy that it was written under. That of a policy which nobody
    /// remembers is rounded up: what is made of it is never in the caller's favour.
    fn state(&self, policy: Option<&Policy>) -> State {
        let [first, second] = self.words;
        match self.kind {
            BUCKET => State::Bucket(match policy {
                Some(Policy::Bucket(bucket)) => Pair { us: first, rest: second }.exact(bucket),
                _ => Exact::whole((first + u64::from(second > 0)).saturating_mul(1_000)),
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
    fn an_entry_is_stored_as_the_script_reads_it() {
        assert!(Entry::default().stored().is_empty());
        let plain = Entry { kind: BUCKET, generation: 3, words: [4, 5], hold: None, fence: 0 };
        assert_eq!((plain.stored().len(), plain.stored()[0]), (26, FORMAT));
        let hold = Some(Hold { until: Time::from_nanos(1_500), generation: 3 });
        let held = Entry { hold, ..plain };
        assert_eq!(held.stored().len(), 50);
        // An answer has the same numbers behind one byte instead of two.
        let mut answer = vec![BUCKET | WITH_HOLD];
        answer.extend(&held.stored()[2..]);
        assert_eq!(Entry::read(&mut Reader(&answer)).unwrap(), held);
        // A fence comes after a hold, or after the room for one.
        let fenced = Entry { fence: 9, ..plain };
        assert_eq!(fenced.stored().len(), 58);
        let mut answer = vec![BUCKET | WITH_HOLD | WITH_FENCE];
        answer.extend(&fenced.stored()[2..]);
        assert_eq!(Entry::read(&mut Reader(&answer)).unwrap(), fenced);
        answer[0] = 7;
        assert!(Entry::read(&mut Reader(&answer)).is_err());
    }
}
