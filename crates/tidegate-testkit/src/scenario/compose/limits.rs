//! Limits from small random numbers: every kind, rates from one in ten days to 600 million a
//! second, with debts, horizons and revisions.

use crate::scenario::spec::{ChangeSpec, LimitSpec, PolicySpec, RevisionSpec};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Capacity and debt together take at max_tokens this long to refill, well below the 100 years that
/// the core accepts.
const LONGEST_REFILL: u128 = 40 * 365 * DAY as u128;

/// Tokens and periods that are prone to rounding errors.
const RATES: [(u64, u64); 16] = [
    (1, SECOND),
    (50, SECOND),
    (3, SECOND),
    (7, 60 * SECOND),
    (3, 2 * SECOND),
    (1, 10 * SECOND),
    (999_983, 60 * SECOND),
    (600_000_000, SECOND),
    (1, 10 * DAY),
    (10_000, DAY),
    (1_999, 1_000 * SECOND),
    (4_294_967_291, SECOND),
    (1, 1),
    (7, 10 * SECOND),
    (101, 2 * SECOND),
    (1_000_000, DAY),
];

/// Random numbers that determine one policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySeed {
    /// Determines the rate or the amount.
    pub rate: u32,
    /// Determines the capacity.
    pub capacity: u32,
    /// Determines debt, horizon and mode of change.
    pub rest: u32,
}

/// Random numbers that determine one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSeed {
    /// Determines the kind of policy.
    pub kind: u32,
    /// Its revisions; at least one.
    pub policies: Vec<PolicySeed>,
}

/// Returns the limit that the numbers determine.
#[must_use]
pub fn limit(name: String, seed: &LimitSeed) -> LimitSpec {
    let kind = seed.kind % 12;
    let revisions = seed.policies.iter().map(|policy| revision(kind, policy)).collect();
    // A bucket may become a quota, so every limit except concurrency has windows.
    let window_s = [3_600, 86_400, 7 * 86_400][seed.kind as usize / 12 % 3];
    LimitSpec { name: Some(name), window_s: (kind != 11).then_some(window_s), revisions }
}

fn revision(kind: u32, seed: &PolicySeed) -> RevisionSpec {
    let change = match seed.rest / 64 % 5 {
        // Slots survive a revision: their holders are still running.
        _ if kind == 11 => ChangeSpec::KeepTokens,
        3 => ChangeSpec::Proportional,
        4 => ChangeSpec::Reset,
        _ => ChangeSpec::KeepTokens,
    };
    // Occasionally a limit changes its kind.
    let kind = if kind < 11 && seed.rest / 512 % 16 == 15 { 8 + seed.rest % 3 } else { kind };
    let amount = u64::from(seed.capacity % 40) + 1;
    let policy = match kind {
        0..=7 => bucket(seed),
        8 => {
            let burst = amount.min(1 + u64::from(seed.rate % 10));
            let window_ns = [SECOND, 60 * SECOND, 7_001][seed.rate as usize / 10 % 3];
            PolicySpec::StrictWindow { tokens: amount, window_ns, burst }
        }
        9 => PolicySpec::Quota { amount },
        10 => PolicySpec::Allowance { amount },
        _ => PolicySpec::Concurrency { slots: amount % 8 + 1 },
    };
    RevisionSpec { change, policy }
}

fn bucket(seed: &PolicySeed) -> PolicySpec {
    let index = seed.rate as usize % 20;
    let (tokens, period_ns) = RATES.get(index).copied().unwrap_or_else(|| {
        let value = u64::from(seed.rate / 20);
        (value % 10_007 + 1, (value / 7 + 1) * [1_000, SECOND / 10, DAY / 1_000][index % 3])
    });
    let one_second = SECOND.saturating_mul(tokens) / period_ns;
    let value = u64::from(seed.capacity / 6);
    let capacity = match seed.capacity % 6 {
        0 | 1 => value % 20 + 1,
        2 => 10,
        3 => 1,
        4 => one_second.max(1),
        _ => value % 1_000 + 1,
    };
    // Maximum of capacity plus debt, in tokens.
    let max_tokens = LONGEST_REFILL * u128::from(tokens) / u128::from(period_ns);
    let max_tokens = u64::try_from(max_tokens).unwrap_or(u64::MAX).max(2);
    let capacity = capacity.min(max_tokens / 2);
    let max_debt = [capacity, 0, 1, capacity.saturating_mul(100)][seed.rest as usize % 4];
    let horizon_ns = [3_600 * SECOND, 0, SECOND, 30 * DAY][seed.rest as usize / 4 % 4];
    PolicySpec::Bucket {
        tokens,
        period_ns,
        capacity,
        max_debt: max_debt.min(max_tokens - capacity),
        horizon_ns,
    }
}

/// Approximate time from empty to full, for steps of a relevant length.
pub(super) fn time_to_full(policy: &PolicySpec, window_s: Option<u32>) -> u64 {
    let span = |tokens: u64, period: u64, capacity: u64| {
        let span = u128::from(capacity) * u128::from(period) / u128::from(tokens);
        u64::try_from(span).unwrap_or(u64::MAX)
    };
    match *policy {
        PolicySpec::Bucket { tokens, period_ns, capacity, .. } => span(tokens, period_ns, capacity),
        PolicySpec::StrictWindow { window_ns, .. } => window_ns,
        PolicySpec::Quota { .. } => u64::from(window_s.unwrap_or(1)) * SECOND,
        PolicySpec::Allowance { .. } | PolicySpec::Concurrency { .. } => SECOND,
    }
}
