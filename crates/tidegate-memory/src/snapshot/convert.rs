//! Converting a restored state to the policy its limit has in this process.
//!
//! This happens when the key is next used, since only then is it known which limit it belongs to.
//! Tokens are kept, as with any policy change. A bucket written under an unknown policy counts as
//! empty, never in the caller's favour.

use tidegate_core::{Limit, Policy, PolicyChange, State, Time};

use super::history::{History, PolicySpan};

/// A generation that no limit has.
const UNKNOWN: u32 = u32::MAX;

/// Converts a state that an earlier process wrote under policy version `version` to the current
/// policy of `limit`. `history` is the history of the limit in the file.
pub(crate) fn converted(
    state: State,
    version: u32,
    history: Option<&History>,
    limit: &Limit,
    now: Time,
) -> State {
    // The policy of an inline limit is its identity; another policy would be another bucket.
    if limit.is_inline() {
        return state;
    }
    let spans = history.and_then(|history| history.since(version));
    let first = limit.revisions_since(0).and_then(|mut revisions| revisions.next());
    let known = spans.zip(first).and_then(|(spans, first)| {
        let state = convert_through(state, spans, first.policy(), now)?;
        Some(state.converted_to(limit, 0, now))
    });
    known.unwrap_or_else(|| state.converted_to(limit, UNKNOWN, now))
}

/// Converts a state through every policy after the one it was written under, up to `last`.
fn convert_through(state: State, spans: &[PolicySpan], last: &Policy, now: Time) -> Option<State> {
    let (first, later) = spans.split_first()?;
    let later = later.iter().map(|span| (span.policy, span.change));
    let mut before = first.policy;
    let mut state = state;
    for (policy, change) in later.chain([(*last, PolicyChange::KeepTokens)]) {
        if policy != before || change == PolicyChange::Reset {
            state = convert_step(state, before, policy, change, now)?;
        }
        before = policy;
    }
    Some(state)
}

/// Converts a state from one policy to the next, like a revision of a limit.
fn convert_step(
    state: State,
    old: Policy,
    new: Policy,
    change: PolicyChange,
    now: Time,
) -> Option<State> {
    let limit = Limit::named("step", old).and_then(|limit| limit.revise(new, change)).ok()?;
    Some(state.converted_to(&limit, 0, now))
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use tidegate_core::ExactTime;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: Time = Time::from_nanos(100 * SECOND);

    fn per_second(capacity: u64) -> Policy {
        Policy::per_second(1).capacity(capacity).build().unwrap()
    }

    fn limit(capacity: u64) -> Limit {
        Limit::named("a", per_second(capacity)).unwrap()
    }

    /// Returns a bucket of one token per second in which this many tokens are missing.
    fn missing(tokens: u64) -> State {
        State::Bucket(ExactTime::from_nanos(NOW.as_nanos() + tokens * SECOND))
    }

    fn history(spans: &[(u32, u64, PolicyChange)]) -> History {
        let mut history = History::default();
        for &(from, capacity, change) in spans {
            assert!(history.push(from, per_second(capacity), change));
        }
        history
    }

    #[test]
    fn unchanged_policy_keeps_the_state() {
        let known = history(&[(1, 10, PolicyChange::KeepTokens)]);
        assert_eq!(converted(missing(3), 1, Some(&known), &limit(10), NOW), missing(3));
        assert_eq!(converted(missing(3), 7, Some(&known), &limit(10), NOW), missing(3));
    }

    #[test]
    fn changed_policy_keeps_the_tokens() {
        let known = history(&[(1, 10, PolicyChange::KeepTokens)]);
        // Seven tokens are left, now out of twenty.
        assert_eq!(converted(missing(3), 1, Some(&known), &limit(20), NOW), missing(13));
        // A bucket of five is full with five.
        assert_eq!(converted(missing(3), 1, Some(&known), &limit(5), NOW), State::Fresh);
    }

    #[test]
    fn every_intermediate_change_applies_in_its_mode() {
        let known = history(&[(1, 10, PolicyChange::KeepTokens), (2, 5, PolicyChange::Reset)]);
        assert_eq!(converted(missing(3), 1, Some(&known), &limit(5), NOW), State::Fresh);
        assert_eq!(converted(missing(3), 2, Some(&known), &limit(5), NOW), missing(3));
        let revised = limit(5).revise(per_second(6), PolicyChange::Reset).unwrap();
        assert_eq!(converted(missing(3), 2, Some(&known), &revised, NOW), State::Fresh);
        let revised = limit(5).revise(per_second(6), PolicyChange::KeepTokens).unwrap();
        assert_eq!(converted(missing(3), 2, Some(&known), &revised, NOW), missing(4));
    }

    #[test]
    fn unknown_policy_gives_an_empty_bucket() {
        assert_eq!(converted(missing(3), 1, None, &limit(10), NOW), missing(10));
        let known = history(&[(2, 10, PolicyChange::KeepTokens)]);
        assert_eq!(converted(missing(3), 1, Some(&known), &limit(10), NOW), missing(10));
        let full = State::Bucket(ExactTime::from_nanos(NOW.as_nanos()));
        assert_eq!(converted(full, 1, None, &limit(10), NOW), State::Fresh);
        let mut worn = limit(10);
        for capacity in 11..400 {
            worn = worn.revise(per_second(capacity), PolicyChange::KeepTokens).unwrap();
        }
        assert_eq!(converted(missing(3), 2, Some(&known), &worn, NOW), missing(399));
    }

    #[test]
    fn inline_limit_keeps_the_state() {
        let inline = Limit::inline(per_second(10));
        assert_eq!(converted(missing(3), 1, None, &inline, NOW), missing(3));
    }

    #[test]
    fn quota_usage_is_kept_and_another_kind_starts_fresh() {
        let mut known = History::default();
        assert!(known.push(1, Policy::quota(10).unwrap(), PolicyChange::KeepTokens));
        let used = State::Quota { ends: 500, used: 7 };
        let raised = Limit::named("a", Policy::quota(20).unwrap()).unwrap();
        assert_eq!(converted(used, 1, Some(&known), &raised, NOW), used);
        assert_eq!(converted(used, 1, None, &raised, NOW), used);
        assert_eq!(converted(used, 1, Some(&known), &limit(5), NOW), State::Fresh);
    }
}
