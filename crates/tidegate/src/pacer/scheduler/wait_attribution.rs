//! Wait attribution: how long each limit kept the queue from advancing.
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

/// Running totals by limit.
#[derive(Debug, Default)]
pub(crate) struct WaitAttribution {
    totals: Vec<(Arc<str>, Duration)>,
    /// Index of the current cause, and since when.
    current: Option<(usize, Time)>,
}

/// The totals at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark(SmallVec<[Duration; 1]>);

impl WaitAttribution {
    /// Changes the current cause; `None` if nothing keeps the queue from advancing.
    pub(crate) fn switch_to(&mut self, name: Option<&str>, now: Time) {
        if let Some((index, since)) = self.current.take() {
            self.totals[index].1 += now.since(since);
        }
        let Some(name) = name else { return };
        let known = self.totals.iter().position(|(known, _)| **known == *name);
        let index = known.unwrap_or_else(|| {
            self.totals.push((name.into(), Duration::ZERO));
            self.totals.len() - 1
        });
        self.current = Some((index, now));
    }

    /// The limit that currently keeps the queue from advancing.
    pub(crate) fn current_limit(&self) -> Option<&Arc<str>> {
        self.current.map(|(index, _)| &self.totals[index].0)
    }

    pub(crate) fn mark(&mut self, now: Time) -> Mark {
        self.accumulate(now);
        Mark(self.totals.iter().map(|(_, total)| *total).collect())
    }

    /// What each limit has caused since the mark, largest first.
    pub(crate) fn since(&mut self, mark: &Mark, now: Time) -> Vec<WaitPart> {
        self.accumulate(now);
        let before = mark.0.iter().copied().chain(std::iter::repeat(Duration::ZERO));
        let mut parts: Vec<_> = self
            .totals
            .iter()
            .zip(before)
            .map(|((limit, total), before)| WaitPart {
                limit: limit.clone(),
                time: total.saturating_sub(before),
            })
            .filter(|part| !part.time.is_zero())
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.time));
        parts
    }

    fn accumulate(&mut self, now: Time) {
        if let Some((index, since)) = &mut self.current {
            self.totals[*index].1 += now.since(*since);
            *since = now;
        }
    }
}

/// Combines the parts that a tenant's own limits caused with the shared ones: the rest of the wait
/// is divided in proportion to what the shared limits caused meanwhile.
pub(crate) fn combine(
    own: Vec<WaitPart>,
    shared: Vec<WaitPart>,
    waited: Duration,
) -> Vec<WaitPart> {
    let total = |parts: &[WaitPart]| parts.iter().map(|part| part.time).sum::<Duration>();
    let left = waited.saturating_sub(total(&own));
    let caused = total(&shared).as_nanos().max(1);
    let mut parts = own;
    for part in shared {
        let nanos = part.time.as_nanos() * left.as_nanos().min(caused) / caused;
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        match parts.iter_mut().find(|known| known.limit == part.limit) {
            Some(known) => known.time += time,
            None if !time.is_zero() => parts.push(WaitPart { time, ..part }),
            None => {}
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.time));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_split_by_its_causes() {
        let at = |secs: u64| Time::from_nanos(secs * 1_000_000_000);
        let mut attribution = WaitAttribution::default();
        attribution.switch_to(Some("tokens"), at(0));
        let mark = attribution.mark(at(2));
        attribution.switch_to(Some("requests"), at(5));
        attribution.switch_to(None, at(6));
        attribution.switch_to(Some("tokens"), at(10));
        let parts = attribution.since(&mark, at(11));
        let parts: Vec<_> = parts.iter().map(|p| (&*p.limit, p.time.as_secs())).collect();
        assert_eq!(parts, [("tokens", 4), ("requests", 1)]);
    }
}
