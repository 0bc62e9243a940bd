//! Wait attribution: how long each limit kept the queue from advancing.
//!
//! At any instant a wait has one cause: there is no free slot, or else the first limit in the list of
//! the blocked request that is not ready. So the same time never counts for two limits, and the order
//! of the list decides for which: with tokens before requests, the part for requests is what the wait
//! takes beyond the tokens.
//!
//! Totals run for the life of a pacer. A waiter marks them when it joins; the difference at its
//! grant is the wait that each limit caused.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Time;

/// The part of a wait that one limit caused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitPart {
    /// Name of the limit, or [`WaitPart::CONCURRENCY`].
    pub limit: Arc<str>,
    /// How long this limit kept the queue from advancing.
    pub time: Duration,
}

impl WaitPart {
    /// The name under which the concurrency of a pacer is reported.
    pub const CONCURRENCY: &'static str = "concurrency";
}

/// Limits that are not ready, in the order in which they become so, and when; `None` if the time is
/// unknown. Each is the cause of the wait until its time, the last one until the next change.
pub(crate) type Causes = SmallVec<[(Arc<str>, Option<Time>); 2]>;

/// Running totals by limit.
#[derive(Debug, Default)]
pub(crate) struct WaitAttribution {
    limits: Vec<Arc<str>>,
    totals: Totals,
    current: Option<Current>,
}

/// The causes since an instant, by the index of their limits.
#[derive(Debug)]
struct Current {
    since: Time,
    causes: SmallVec<[(usize, Option<Time>); 2]>,
}

/// The totals at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(SmallVec<[Duration; 1]>);

impl WaitAttribution {
    /// Changes the causes.
    pub(crate) fn switch_to<'n>(
        &mut self,
        causes: impl IntoIterator<Item = (&'n str, Option<Time>)>,
        now: Time,
    ) {
        self.clear(now);
        let index_of = |(name, until): (&str, _)| (self.index_of(name), until);
        let causes = causes.into_iter().map(index_of).collect();
        self.current = Some(Current { since: now, causes });
    }

    /// Nothing keeps the queue from advancing.
    pub(crate) fn clear(&mut self, now: Time) {
        self.accumulate(now);
        self.current = None;
    }

    /// The limit that keeps the queue from advancing for longest.
    pub(crate) fn current_limit(&self) -> Option<&Arc<str>> {
        let (index, _) = self.current.as_ref()?.causes.last()?;
        self.limits.get(*index)
    }

    pub(crate) fn totals(&mut self, now: Time) -> Totals {
        self.accumulate(now);
        self.totals.clone()
    }

    /// Names the totals, without those that are zero.
    pub(crate) fn parts(&self, totals: &Totals) -> impl Iterator<Item = WaitPart> {
        let parts = self.limits.iter().zip(&totals.0).filter(|(_, time)| !time.is_zero());
        parts.map(|(limit, time)| WaitPart { limit: limit.clone(), time: *time })
    }

    fn index_of(&mut self, name: &str) -> usize {
        let known = self.limits.iter().position(|known| **known == *name);
        known.unwrap_or_else(|| {
            self.limits.push(name.into());
            self.totals.0.push(Duration::ZERO);
            self.limits.len() - 1
        })
    }

    fn accumulate(&mut self, now: Time) {
        let Some(Current { since, causes }) = &mut self.current else { return };
        while let [(index, Some(until)), _, ..] = causes[..] {
            if until > now {
                break;
            }
            self.totals.0[index] += until.since(*since);
            *since = until.max(*since);
            causes.remove(0);
        }
        if let Some((index, _)) = causes.first() {
            self.totals.0[*index] += now.since(*since);
            *since = now;
        }
    }
}

impl Totals {
    /// What was added since an earlier instant.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let earlier = earlier.0.iter().copied().chain(std::iter::repeat(Duration::ZERO));
        let differences = self.0.iter().zip(earlier);
        Self(differences.map(|(total, earlier)| total.saturating_sub(earlier)).collect())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Duration::ZERO);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(total, other)| *total += *other);
    }
}

/// Adds up parts of the same limit, and sorts them, longest first.
pub(crate) fn combine(parts: impl Iterator<Item = WaitPart>) -> Vec<WaitPart> {
    let mut combined: Vec<WaitPart> = Vec::new();
    for part in parts {
        match combined.iter_mut().find(|known| known.limit == part.limit) {
            Some(known) => known.time += part.time,
            None => combined.push(part),
        }
    }
    combined.sort_by_key(|part| std::cmp::Reverse(part.time));
    combined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time::from_nanos(secs * 1_000_000_000)
    }

    fn seconds(attribution: &mut WaitAttribution, mark: &Totals, now: Time) -> Vec<(String, u64)> {
        let since = attribution.totals(now).since(mark);
        let parts = combine(attribution.parts(&since));
        parts.iter().map(|part| (part.limit.to_string(), part.time.as_secs())).collect()
    }

    #[test]
    fn a_wait_is_split_by_its_causes() {
        let mut attribution = WaitAttribution::default();
        attribution.switch_to([("tokens", None)], at(0));
        let mark = attribution.totals(at(2));
        attribution.switch_to([("requests", None)], at(5));
        attribution.clear(at(6));
        attribution.switch_to([("tokens", None)], at(10));
        let parts = seconds(&mut attribution, &mark, at(11));
        assert_eq!(parts, [("tokens".to_owned(), 4), ("requests".to_owned(), 1)]);
    }

    #[test]
    fn of_several_causes_each_counts_beyond_the_one_before() {
        let mut attribution = WaitAttribution::default();
        let causes = [("tokens", Some(at(4))), ("requests", Some(at(5)))];
        attribution.switch_to(causes, at(0));
        assert_eq!(attribution.current_limit().map(|limit| &**limit), Some("requests"));
        let mark = attribution.totals(at(3));
        let parts = seconds(&mut attribution, &mark, at(5));
        assert_eq!(parts, [("tokens".to_owned(), 1), ("requests".to_owned(), 1)]);
        // Repeating the causes later loses nothing, and the last one stays the cause.
        attribution.switch_to(causes, at(5));
        let parts = seconds(&mut attribution, &mark, at(7));
        assert_eq!(parts, [("requests".to_owned(), 3), ("tokens".to_owned(), 1)]);
    }
}
