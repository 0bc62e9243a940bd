//! Replays events against policies, and counts what each admits and denies.
//!
//! One pass, and 16 bytes per key and 24 per key and policy, besides the text of the key. Each
//! policy sees all requests: a log holds what callers sent, not what they would have sent after a
//! denial.

use std::io;
use std::time::Duration;

use tidegate_core::ExactTime;

use crate::decide::{Ruling, decide};
use crate::distribution::Distribution;
use crate::event::{Event, EventSink};
use crate::policy::NamedPolicy;
use crate::timeline::Timeline;

/// What a policy has decided.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Number of admitted requests.
    pub admitted: u64,
    /// Number of denied requests.
    pub denied: u64,
    /// Cost of the admitted requests.
    pub admitted_cost: u64,
    /// Cost of the denied requests.
    pub denied_cost: u64,
    /// Number of denied requests that cost more than the capacity.
    pub over_capacity: u64,
    /// Number of keys with a denied request.
    pub keys_denied: u64,
    /// How long after each denial the request would have fit.
    pub retry: Distribution,
    /// Waits of admitted requests that had to wait.
    pub waits: Distribution,
}

/// Requests of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTraffic {
    /// Number of requests.
    pub requests: u64,
    /// Their cost.
    pub cost: u64,
}

/// The bucket of a key under a policy.
#[derive(Clone, Copy, Debug, Default)]
struct KeyState {
    tat: ExactTime,
    denied: u64,
}

/// A replay in progress.
#[derive(Clone, Debug)]
pub struct Replay {
    policies: Vec<NamedPolicy>,
    max_wait: Duration,
    totals: Vec<Totals>,
    traffic: Vec<KeyTraffic>,
    /// By key, then by policy.
    states: Vec<KeyState>,
    timeline: Timeline,
}

impl Replay {
    /// Creates a replay in which every bucket is full. Callers wait up to `max_wait` instead of
    /// being denied, but no longer than the horizon of the policy, which is an hour.
    #[must_use]
    pub fn new(policies: Vec<NamedPolicy>, max_wait: Duration) -> Self {
        let totals = vec![Totals::default(); policies.len()];
        let timeline = Timeline::new(policies.len());
        Self { policies, max_wait, totals, traffic: Vec::new(), states: Vec::new(), timeline }
    }

    /// Decides the next event on every policy, and passes each ruling to `each`.
    #[inline]
    pub fn decide(&mut self, event: Event, mut each: impl FnMut(usize, Ruling)) {
        let (key, count) = (event.key as usize, self.policies.len());
        if key >= self.traffic.len() {
            self.traffic.resize(key + 1, KeyTraffic::default());
            self.states.resize((key + 1) * count, KeyState::default());
        }
        let traffic = &mut self.traffic[key];
        traffic.requests += 1;
        traffic.cost = traffic.cost.saturating_add(event.cost);
        let bin = self.timeline.bin(event.time);
        let states = &mut self.states[key * count..(key + 1) * count];
        for (index, state) in states.iter_mut().enumerate() {
            let bucket = &self.policies[index].bucket;
            let ruling = decide(bucket, &mut state.tat, event.cost, event.time, self.max_wait);
            let bin = self.timeline.bin_mut(index, bin);
            match ruling {
                Ruling::Admitted(_) => bin.admitted += 1,
                Ruling::Denied(_) => {
                    bin.denied += 1;
                    self.totals[index].keys_denied += u64::from(state.denied == 0);
                    state.denied += 1;
                }
            }
            self.totals[index].count(ruling, event.cost);
            each(index, ruling);
        }
    }

    /// Returns the policies.
    #[must_use]
    pub fn policies(&self) -> &[NamedPolicy] {
        &self.policies
    }

    /// Returns what each policy has decided.
    #[must_use]
    pub fn totals(&self) -> &[Totals] {
        &self.totals
    }

    /// Returns the requests of each key.
    #[must_use]
    pub fn traffic(&self) -> &[KeyTraffic] {
        &self.traffic
    }

    /// Returns the counts over time.
    #[must_use]
    pub const fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the number of denied requests of a key.
    #[must_use]
    pub fn denied(&self, policy: usize, key: u32) -> u64 {
        self.states[key as usize * self.policies.len() + policy].denied
    }

    /// Returns up to `count` keys with the most requests, most first.
    #[must_use]
    pub fn busiest(&self, count: usize) -> Vec<u32> {
        largest(count, self.traffic.iter().map(|traffic| traffic.requests))
    }

    /// Returns up to `count` keys with the most denied requests, most first.
    #[must_use]
    pub fn most_denied(&self, policy: usize, count: usize) -> Vec<u32> {
        let states = self.states.iter().skip(policy).step_by(self.policies.len().max(1));
        largest(count, states.map(|state| state.denied))
    }
}

impl Totals {
    #[inline]
    fn count(&mut self, ruling: Ruling, cost: u64) {
        match ruling {
            Ruling::Admitted(wait) => {
                self.admitted += 1;
                self.admitted_cost = self.admitted_cost.saturating_add(cost);
                if !wait.is_zero() {
                    self.waits.add(wait);
                }
            }
            Ruling::Denied(retry) => {
                self.denied += 1;
                self.denied_cost = self.denied_cost.saturating_add(cost);
                match retry {
                    Some(retry) => self.retry.add(retry),
                    None => self.over_capacity += 1,
                }
            }
        }
    }
}

impl EventSink for Replay {
    #[inline]
    fn event(&mut self, event: Event) -> io::Result<()> {
        self.decide(event, |_, _| {});
        Ok(())
    }
}

/// Returns the indices of the largest values above zero; of equal ones the first.
fn largest(count: usize, values: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut top: Vec<(u64, u32)> = Vec::with_capacity(count + 1);
    for (value, key) in values.zip(0..) {
        if value == 0 || top.len() == count && top.last().is_none_or(|last| last.0 >= value) {
            continue;
        }
        let at = top.partition_point(|&(other, _)| other >= value);
        top.insert(at, (value, key));
        top.truncate(count);
    }
    top.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_core::Time;

    use super::*;

    fn at(millis: u64, key: u32, cost: u64) -> Event {
        Event { key, time: Time::from_nanos(1_000_000_000_000 + millis * 1_000_000), cost }
    }

    fn replay(policy: &str, max_wait: Duration, events: &[Event]) -> Replay {
        let mut replay = Replay::new(vec![policy.parse().unwrap()], max_wait);
        events.iter().for_each(|&event| replay.event(event).unwrap());
        replay
    }

    #[test]
    fn denials_have_retry_hints_and_belong_to_keys() {
        let events = [at(0, 0, 1), at(0, 0, 1), at(250, 0, 1), at(250, 1, 1), at(1_000, 0, 1)];
        let replay = replay("capacity=1,rate=1/s", Duration::ZERO, &events);
        let totals = &replay.totals()[0];
        assert_eq!((totals.admitted, totals.denied, totals.keys_denied), (3, 2, 1));
        assert_eq!(totals.retry.max(), Duration::from_secs(1));
        let p50 = totals.retry.percentile(50).as_millis();
        assert!((750..757).contains(&p50), "{p50}");
        assert_eq!((replay.busiest(9), replay.most_denied(0, 9)), (vec![0, 1], vec![0]));
    }

    #[test]
    fn callers_that_wait_are_admitted_later() {
        let events = [at(0, 0, 1), at(0, 0, 1), at(0, 0, 1), at(0, 0, 5)];
        let replay = replay("capacity=1,rate=1/s", Duration::from_secs(1), &events);
        let totals = &replay.totals()[0];
        assert_eq!((totals.admitted, totals.denied, totals.over_capacity), (2, 2, 1));
        assert_eq!(totals.waits.max(), Duration::from_secs(1));
        assert_eq!((totals.admitted_cost, totals.denied_cost), (2, 6));
    }

    #[test]
    fn a_step_back_grants_nothing() {
        let policy = "capacity=2,rate=1/s";
        let events = [at(5_000, 0, 2), at(0, 0, 1), at(5_000, 0, 1), at(6_000, 0, 1)];
        let replay = replay(policy, Duration::ZERO, &events);
        assert_eq!((replay.totals()[0].admitted, replay.totals()[0].denied), (2, 2));
    }

    #[test]
    fn the_largest_are_in_order() {
        assert_eq!(largest(3, [5, 0, 9, 5, 7].into_iter()), [2, 4, 0]);
        assert_eq!(largest(0, [5].into_iter()), [0; 0]);
        assert_eq!(largest(3, [0].into_iter()), [0; 0]);
    }
}
