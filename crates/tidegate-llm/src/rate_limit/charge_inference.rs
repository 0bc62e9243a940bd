//! Infers how a provider charges output from the calls it admits and refuses and the remaining
//! amounts it reports.
//!
//! Few providers document whether they charge `max_tokens` on admission and whether they refund
//! what was not used. The difference is large: a call that allows a hundred times the output it
//! produces takes a hundred times its share until it ends, or until the minute is over.
//!
//! The provider's bucket is therefore simulated under all three rules at once. The rules are
//! ordered: each leaves at least as much in the bucket as the one before it. A provider that
//! reports more than a rule leaves, or admits a call that the rule would refuse, does not use that
//! rule. One that refuses a call which only the current rule would admit uses the previous rule.
//! Levels err upwards, since other clients may use the same key, so doubt favours the stricter
//! rule. Pure: time is an argument.

use std::time::Duration;

use tidegate_core::Time;

use super::estimate::to_f64;
use super::send_rate::Allowed;
use super::token_accounting::OutputCharge;

/// Calls sent within this time may arrive in another order.
pub(super) const REORDERING: Duration = Duration::from_millis(250);
/// Refunds that a report includes are known here after this time.
const SETTLE_TIME: Duration = Duration::from_millis(500);
/// A call not refused within this time was admitted.
const ADMITTED_AFTER: Duration = Duration::from_secs(1);
/// A refusal within this time disproves a probe.
const PROBE_TIME: Duration = Duration::from_secs(3);
/// How long a disproved rule is not tried again.
const EXCLUSION_TIME: Duration = Duration::from_secs(600);
/// Number of reports that must agree with the current rule, and not the next, to make it certain.
const CERTAIN_CONFIRMATIONS: u32 = 3;
/// Maximum error of our token counts, as a fraction of the limit per window.
const MAX_DRIFT: f64 = 0.2;

/// Charge of one call, in tokens of the observed limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenCharge {
    pub(super) input: u64,
    /// Output tokens reserved.
    pub(super) reserve: u64,
}

impl TokenCharge {
    fn total(self) -> f64 {
        to_f64(self.input.saturating_add(self.reserve))
    }
}

/// A call that was sent, and the state at that time.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentCall {
    pub(super) rule: OutputCharge,
    charged: TokenCharge,
    /// Highest levels shortly before it was sent.
    peaks: Levels,
    /// The strictest rule that remains possible if the provider admits the call.
    proves: Option<OutputCharge>,
}

/// Bucket level under each rule.
type Levels = [f64; 3];

/// What to do about calls that wait for tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probing {
    /// Keep waiting.
    Wait,
    /// Send one more call to see whether it is admitted.
    Probe,
    /// The rule has changed.
    Changed,
}

/// A report that exceeds the level under the refunding rule.
#[derive(Clone, Copy, Debug)]
struct Claim {
    at: Time,
    remaining: f64,
    /// Maximum level under the rule, including refunds since.
    upper_bound: f64,
}

/// Inferred rule of one model.
#[derive(Clone, Debug)]
pub(super) struct ChargeInference {
    rule: OutputCharge,
    limit: Option<Allowed>,
    levels: Levels,
    updated: Time,
    /// Start of the current reordering span, its highest levels, and those of the previous one.
    peaks: (Time, Levels, Levels),
    /// When levels were last adjusted towards a report.
    adjusted_at: Time,
    /// When a call was sent that rules before this one would refuse.
    unproven: Option<(Time, OutputCharge)>,
    /// When a call beyond what the current rule allows was last sent.
    probed_at: Option<Time>,
    /// Until when this rule and those after it are not tried again.
    excluded: Option<(Time, OutputCharge)>,
    /// Whether the provider reports remaining amounts. Without reports there are no probes: a probe
    /// refused in vain would be followed by others.
    is_reporting: bool,
    /// A report that contradicts refunding, unless calls turn out to have ended before it.
    claim: Option<Claim>,
    /// Level gained by adopting other rules since it was last taken.
    gained_level: f64,
    confirmations: u32,
}

impl ChargeInference {
    pub(super) const fn new(rule: OutputCharge) -> Self {
        Self {
            rule,
            limit: None,
            levels: [0.0; 3],
            updated: Time::from_nanos(0),
            peaks: (Time::from_nanos(0), [0.0; 3], [0.0; 3]),
            adjusted_at: Time::from_nanos(0),
            unproven: None,
            probed_at: None,
            excluded: None,
            gained_level: 0.0,
            is_reporting: false,
            claim: None,
            confirmations: 0,
        }
    }

    pub(super) const fn rule(&self) -> OutputCharge {
        self.rule
    }

    /// Returns whether calls may cost less than they reserve.
    pub(super) const fn expects_refunds(&self) -> bool {
        !matches!(self.rule, OutputCharge::MaxTokens) || self.confirmations < CERTAIN_CONFIRMATIONS
    }

    /// Takes the amount by which the provider's bucket turned out to be fuller.
    pub(super) fn take_gain(&mut self) -> u64 {
        to_u64(std::mem::take(&mut self.gained_level))
    }

    /// Bucket level under the current rule.
    fn level(&mut self, now: Time) -> f64 {
        self.refill(now);
        self.levels[index(self.rule)]
    }

    /// Records a sent call, under the tightest known token limit that counts output.
    pub(super) fn call_sent(
        &mut self,
        limit: Option<Allowed>,
        charged: TokenCharge,
        now: Time,
    ) -> SentCall {
        self.set_limit(limit, now);
        let peaks = self.peaks();
        let proves = self.rule_proven_by(charged);
        // A provider never charges more than its limit.
        let upper_bound = limit.map_or(u64::MAX, |limit| limit.amount);
        let input = charged.input.min(upper_bound);
        let charged = TokenCharge { input, reserve: charged.reserve.min(upper_bound - input) };
        for rule in [OutputCharge::MaxTokens, OutputCharge::MaxTokensRefunded] {
            self.levels[index(rule)] -= charged.total();
        }
        self.levels[index(OutputCharge::ActualUsage)] -= to_f64(charged.input);
        if let Some(proven) = proves.filter(|proven| *proven > self.rule) {
            self.unproven.get_or_insert((now, proven));
        }
        SentCall { rule: self.rule, charged, peaks, proves }
    }

    /// Records that the call was admitted. Returns whether the rule changed.
    pub(super) fn admitted(&mut self, sent_call: &SentCall, now: Time) -> bool {
        self.refill(now);
        sent_call.proves.is_some_and(|proven| self.adopt(proven, now))
    }

    /// Records a reported remaining amount. Returns whether the rule changed.
    ///
    /// The report may describe the time of admission or the present, so it counts only if it
    /// exceeds the level at both.
    pub(super) fn reported(&mut self, remaining: u64, sent_call: &SentCall, now: Time) -> bool {
        self.refill(now);
        self.is_reporting = true;
        let Some(limit) = self.limit else { return false };
        let (amount, remaining) = (to_f64(limit.amount), to_f64(remaining));
        let before = self.rule;
        while let Some(next) = next(self.rule) {
            let rule = index(self.rule);
            let here =
                self.levels[rule].max(self.peaks()[rule]).max(sent_call.peaks[rule]).max(0.0);
            let gap = self.levels[index(next)] - here;
            let upper_bound = here + (amount / 10.0).max(gap / 2.0);
            if remaining <= upper_bound {
                let agrees = gap > amount / 8.0 && remaining <= here + amount / 20.0;
                self.confirmations = self.confirmations.saturating_add(u32::from(agrees));
                break;
            }
            if self.rule == OutputCharge::MaxTokensRefunded {
                self.claim.get_or_insert(Claim { at: now, remaining, upper_bound });
                break;
            }
            if !self.adopt(next, now) {
                break;
            }
        }
        self.resolve_claim(now);
        self.adjust_levels(remaining, rate(limit), now);
        before != self.rule
    }

    /// Accepts a claim that later refunds do not explain.
    fn resolve_claim(&mut self, now: Time) {
        let Some(claim) = self.claim.filter(|claim| now.since(claim.at) >= SETTLE_TIME) else {
            return;
        };
        self.claim = None;
        if claim.remaining > claim.upper_bound {
            self.adopt(OutputCharge::ActualUsage, now);
        }
    }

    /// Raises levels towards a higher report. Token counts differ slightly from the provider's and
    /// the error accumulates; refunds arrive faster than this correction.
    fn adjust_levels(&mut self, remaining: f64, rate: f64, now: Time) {
        let upper_bound = rate * MAX_DRIFT * now.since(self.adjusted_at).as_secs_f64();
        self.adjusted_at = now;
        for level in &mut self.levels {
            *level += (remaining - *level).clamp(0.0, upper_bound);
        }
    }

    /// Records that the provider refused the call for its tokens. The call was not charged. If an
    /// earlier rule would have refused it, that rule applies.
    pub(super) fn refused(&mut self, sent_call: &SentCall, now: Time) {
        let is_covered = self.is_well_above_zero(sent_call.charged, now);
        self.ended(sent_call, Some(0), now);
        self.levels[index(OutputCharge::MaxTokens)] += sent_call.charged.total();
        self.unproven = None;
        let was_probed = self.probed_at.take().is_some_and(|when| now.since(when) < PROBE_TIME);
        if sent_call.rule != self.rule {
            // It was sent under a rule that was abandoned since.
            return;
        }
        let disproved = match sent_call.proves {
            Some(proven) if proven > self.rule || is_covered => proven,
            None if was_probed => next(self.rule).unwrap_or(self.rule),
            // With a nearly empty bucket, calls are refused under any rule.
            _ => return,
        };
        self.rule = self.rule.min(previous(disproved));
        let before = self.excluded.filter(|(until, _)| now < *until).map(|(_, excluded)| excluded);
        let excluded = before.map_or(disproved, |before| before.min(disproved));
        self.excluded = Some((now.after(EXCLUSION_TIME), excluded));
        self.confirmations = 0;
    }

    /// Records the end of the call and the tokens it used; `None` means as many as it reserved.
    pub(super) fn ended(&mut self, sent_call: &SentCall, used: Option<u64>, now: Time) {
        self.refill(now);
        let TokenCharge { input, .. } = sent_call.charged;
        let used = used.map_or(sent_call.charged.total(), to_f64);
        self.levels[index(OutputCharge::MaxTokensRefunded)] += sent_call.charged.total() - used;
        if let Some(claim) = &mut self.claim {
            claim.upper_bound += sent_call.charged.total() - used;
        }
        self.levels[index(OutputCharge::ActualUsage)] += to_f64(input) - used;
        self.clamp_levels();
    }

    /// Decides what to do about calls of this cost that wait for tokens. If the bucket is well
    /// filled by actual usage, one more call is probed; if it is not refused, the provider charges
    /// less than assumed.
    pub(super) fn waited(&mut self, cost: u64, now: Time) -> Probing {
        self.refill(now);
        if !self.is_reporting {
            return Probing::Wait;
        }
        if let Some((since, proven)) = self.unproven {
            if now.since(since) < ADMITTED_AFTER {
                return Probing::Wait;
            }
            self.unproven = None;
            return if self.adopt(proven, now) { Probing::Changed } else { Probing::Wait };
        }
        let Some(limit) = self.limit else { return Probing::Wait };
        let is_well_filled =
            self.levels[index(OutputCharge::ActualUsage)] > to_f64(limit.amount) / 2.0;
        // A probe is conclusive only if the current rule would clearly refuse it.
        let proven = self.rule_proven_by(TokenCharge { input: 0, reserve: cost });
        let is_conclusive =
            proven.is_some_and(|proven| proven > self.rule && !self.is_excluded(proven, now));
        if !(is_well_filled && is_conclusive && self.confirmations < CERTAIN_CONFIRMATIONS) {
            return Probing::Wait;
        }
        self.probed_at = Some(now);
        Probing::Probe
    }

    fn rule_proven_by(&self, charged: TokenCharge) -> Option<OutputCharge> {
        let limit = to_f64(self.limit?.amount);
        let cost = charged.total();
        let would_refuse = |rule| self.would_refuse(rule, cost, limit);
        if charged.reserve == 0 {
            None
        } else if cost > limit || would_refuse(OutputCharge::MaxTokensRefunded) {
            Some(OutputCharge::ActualUsage)
        } else {
            would_refuse(OutputCharge::MaxTokens).then_some(OutputCharge::MaxTokensRefunded)
        }
    }

    /// Returns whether the bucket under `rule` would refuse a call even if counts are off.
    fn would_refuse(&self, rule: OutputCharge, cost: f64, limit: f64) -> bool {
        cost - self.levels[index(rule)] > (limit / 50.0).max(cost / 4.0)
    }

    /// Returns whether the bucket is above zero under the current rule, allowing for inaccurate
    /// counts and late call ends.
    fn is_well_above_zero(&mut self, charged: TokenCharge, now: Time) -> bool {
        let limit = self.limit.map_or(0.0, |limit| to_f64(limit.amount));
        self.level(now) > (limit / 10.0).max(charged.total() / 4.0)
    }

    fn adopt(&mut self, rule: OutputCharge, now: Time) -> bool {
        if rule <= self.rule || self.is_excluded(rule, now) {
            return false;
        }
        self.gained_level +=
            (self.levels[index(rule)] - self.levels[index(self.rule)].max(0.0)).max(0.0);
        (self.rule, self.confirmations) = (rule, 0);
        true
    }

    fn is_excluded(&self, rule: OutputCharge, now: Time) -> bool {
        self.excluded.is_some_and(|(until, excluded)| rule >= excluded && now < until)
    }

    /// Changes the observed limit. Usage of a new limit is unknown, so its bucket starts full.
    fn set_limit(&mut self, limit: Option<Allowed>, now: Time) {
        self.refill(now);
        if limit == self.limit {
            return;
        }
        let amount = |limit: Option<Allowed>| limit.map_or(0.0, |limit| to_f64(limit.amount));
        let more = (amount(limit) - amount(self.limit)).max(0.0);
        let is_new = self.limit.is_none();
        for level in &mut self.levels {
            *level = if is_new { amount(limit) } else { *level + more };
        }
        self.limit = limit;
        self.clamp_levels();
        self.peaks = (now, self.levels, self.levels);
    }

    fn refill(&mut self, now: Time) {
        let span = now.since(self.updated);
        if let Some(limit) = self.limit {
            let refilled = rate(limit) * span.as_secs_f64();
            self.levels.iter_mut().for_each(|level| *level += refilled);
            self.clamp_levels();
        }
        self.updated = self.updated.max(now);
        let (since, present, _) = self.peaks;
        match now.since(since) {
            span if span >= REORDERING * 2 => self.peaks = (now, self.levels, self.levels),
            span if span >= REORDERING => self.peaks = (now, self.levels, present),
            _ => self.peaks.1 = highest(present, self.levels),
        }
    }

    /// A bucket never holds more than its limit. One far in debt belongs to a rule that the
    /// provider does not use.
    fn clamp_levels(&mut self) {
        let upper_bound = self.limit.map_or(0.0, |limit| to_f64(limit.amount));
        self.levels.iter_mut().for_each(|level| *level = level.clamp(-upper_bound, upper_bound));
    }

    fn peaks(&self) -> Levels {
        highest(self.peaks.1, self.peaks.2)
    }
}

const fn index(rule: OutputCharge) -> usize {
    match rule {
        OutputCharge::MaxTokens => 0,
        OutputCharge::MaxTokensRefunded => 1,
        OutputCharge::ActualUsage => 2,
    }
}

const fn next(rule: OutputCharge) -> Option<OutputCharge> {
    match rule {
        OutputCharge::MaxTokens => Some(OutputCharge::MaxTokensRefunded),
        OutputCharge::MaxTokensRefunded => Some(OutputCharge::ActualUsage),
        OutputCharge::ActualUsage => None,
    }
}

const fn previous(rule: OutputCharge) -> OutputCharge {
    match rule {
        OutputCharge::MaxTokens | OutputCharge::MaxTokensRefunded => OutputCharge::MaxTokens,
        OutputCharge::ActualUsage => OutputCharge::MaxTokensRefunded,
    }
}

fn highest(one: Levels, other: Levels) -> Levels {
    std::array::from_fn(|rule| one[rule].max(other[rule]))
}

/// Tokens per second.
fn rate(limit: Allowed) -> f64 {
    to_f64(limit.amount) / limit.window.as_secs_f64().max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn to_u64(tokens: f64) -> u64 {
    tokens as u64
}

#[cfg(test)]
mod tests;
