//! Reads policies, from the file and from requests alike.
//!
//! The keys determine the kind of the policy. Keys of two kinds are an error.

use std::time::Duration;

use tidegate::{Policy, PolicyError, Rate, Schedule};
use tidegate_core::{RateError, WallTime, Windows};

use crate::values::duration::positive;
use crate::values::fields::{Fields, Path};
use crate::values::value::Value;
use crate::values::zone::{UTC, canonical_zone};
use crate::violation::{Rule, Violation};

/// All keys of policies.
pub(crate) const POLICY_KEYS: &[&str] = &[
    "capacity",
    "rate",
    "tokens_per_second",
    "max_debt",
    "quota",
    "every",
    "zone",
    "allowance",
    "strict",
    "burst",
    "concurrency",
    "lease",
];

/// Default lease of a slot.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub(crate) const PERIODS: &[&str] = &["day", "week", "month", "year"];

/// The kinds of policies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bucket,
    Calendar,
    Allowance,
    Strict,
    Concurrency,
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Bucket, Self::Calendar, Self::Allowance, Self::Strict, Self::Concurrency];

    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Bucket => &["rate", "tokens_per_second", "capacity", "max_debt"],
            Self::Calendar => &["quota", "every", "zone"],
            Self::Allowance => &["allowance"],
            Self::Strict => &["strict", "burst"],
            Self::Concurrency => &["concurrency", "lease"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "a token bucket",
            Self::Calendar => "a calendar quota",
            Self::Allowance => "an allowance",
            Self::Strict => "a strict window",
            Self::Concurrency => "a concurrency limit",
        }
    }

    pub(crate) fn of(key: &str) -> Option<(Self, &'static str)> {
        Self::ALL.into_iter().find_map(|kind| {
            kind.keys().iter().find(|&&known| known == key).map(|&known| (kind, known))
        })
    }
}

/// A policy, and its calendar if it is a calendar quota.
#[derive(Clone, Debug)]
pub struct PolicyConfig {
    /// The policy.
    pub policy: Policy,
    /// The calendar of a calendar quota.
    pub calendar: Option<Calendar>,
}

/// The calendar of a quota: window length and time zone.
#[derive(Clone, Debug)]
pub struct Calendar {
    schedule: Schedule,
    name: String,
}

impl Calendar {
    fn new(every: &str, zone: &str) -> Result<Self, Rule> {
        let schedule = Schedule::every(every, zone)?;
        Ok(Self { schedule, name: format!("{every}:{zone}") })
    }

    /// Returns the schedule of the windows.
    #[must_use]
    pub const fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Returns the windows around `wall`.
    #[must_use]
    pub fn windows(&self, wall: WallTime) -> Windows {
        self.schedule.windows(wall)
    }

    /// Returns a name that identifies the calendar, such as `day:UTC`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Reads a table that contains only a policy, as in a request.
pub fn read_policy(
    value: &Value<'_>,
    path: Path<'_>,
    violations: &mut Vec<Violation>,
) -> Option<PolicyConfig> {
    read_policy_fields(&mut Fields::open(value, path, POLICY_KEYS, violations)?)
}

/// Reads a policy from a table that may have other keys.
pub(crate) fn read_policy_fields(fields: &mut Fields<'_, '_>) -> Option<PolicyConfig> {
    let plain = |policy| PolicyConfig { policy, calendar: None };
    match kind(fields)? {
        Kind::Bucket => bucket(fields).map(plain),
        Kind::Calendar => calendar(fields),
        Kind::Allowance => counted(fields, "allowance", Policy::allowance).map(plain),
        Kind::Strict => strict(fields).map(plain),
        Kind::Concurrency => concurrency(fields).map(plain),
    }
}

/// Determines the kind from the first key, and rejects keys of other kinds.
fn kind(fields: &mut Fields<'_, '_>) -> Option<Kind> {
    let mut keys = fields.entries().iter().filter_map(|entry| Kind::of(&entry.key));
    let Some((first, other)) = keys.next() else {
        let (path, position) = (fields.path().to_string(), fields.position());
        // If there are only unknown keys, they have been reported already.
        if fields.entries().is_empty() {
            fields.violations().push(Violation {
                key: path,
                value: None,
                rule: Rule::NoPolicyKind,
                position,
            });
        }
        return None;
    };
    let mismatched: Vec<_> = keys.filter(|(kind, _)| *kind != first).collect();
    for &(kind, key) in &mismatched {
        let rule = Rule::MixedPolicyKinds { kind: kind.name(), other, other_kind: first.name() };
        fields.report(key, rule);
    }
    mismatched.is_empty().then_some(first)
}

fn bucket(fields: &mut Fields<'_, '_>) -> Option<Policy> {
    let capacity = fields.read("capacity", capacity);
    let max_debt = fields.read("max_debt", |value| value.to_whole(0));
    let rate = match (fields.get("rate"), fields.get("tokens_per_second")) {
        (Some(_), Some(_)) => {
            fields.report("tokens_per_second", Rule::TwoRates);
            None
        }
        (Some(_), None) => fields.read("rate", rate),
        (None, Some(_)) => fields.read("tokens_per_second", tokens_per_second),
        (None, None) => {
            fields.report("rate", Rule::NoRate);
            None
        }
    };
    // Build the policy only if no key was rejected above.
    let given = |key, read: Option<u64>| fields.get(key).is_none() || read.is_some();
    if !given("capacity", capacity) || !given("max_debt", max_debt) {
        return None;
    }
    let mut builder = Policy::rate(rate?);
    if let Some(capacity) = capacity {
        builder = builder.capacity(capacity);
    }
    if let Some(max_debt) = max_debt {
        builder = builder.max_debt(max_debt);
    }
    let at = if capacity.is_some() { "capacity" } else { "rate" };
    builder.build().map_err(|error| fields.report(at, error.into())).ok()
}

fn capacity(value: &Value<'_>) -> Result<u64, Rule> {
    let Some(number) = value.as_number() else { return value.to_whole(1) };
    match number.decimal() {
        _ if number.is_negative() => Err(PolicyError::Capacity.into()),
        Ok(tokens) if tokens.mantissa() < tokens.denominator() => Err(PolicyError::Capacity.into()),
        Ok(tokens) if tokens.scale() > 0 => Err(PolicyError::FractionalCapacity.into()),
        _ => value.to_whole(1),
    }
}

fn rate(value: &Value<'_>) -> Result<Rate, Rule> {
    let rate = value.to_text().map_err(|_| RateError::Malformed).and_then(str::parse);
    rate.map_err(|error| PolicyError::from(error).into())
}

fn tokens_per_second(value: &Value<'_>) -> Result<Rate, Rule> {
    let number = value.as_number().ok_or(PolicyError::from(RateError::NotPositive))?;
    let rate = match number.decimal() {
        Ok(tokens) => Rate::decimal(tokens, Duration::from_secs(1)),
        Err(tidegate_core::DecimalError::TooLong) => Err(RateError::TooFine),
        // Negative, infinite, not a number.
        Err(_) => Err(RateError::NotPositive),
    };
    rate.map_err(|error| PolicyError::from(error).into())
}

/// Checks the value of a policy key by itself.
pub(crate) fn check(key: &str, value: &Value<'_>) -> Result<(), Rule> {
    match key {
        "rate" => rate(value).map(drop),
        "tokens_per_second" => tokens_per_second(value).map(drop),
        "capacity" => capacity(value).map(drop),
        "max_debt" => value.to_whole(0).map(drop),
        "quota" => count(value, Policy::quota).map(drop),
        "allowance" => count(value, Policy::allowance).map(drop),
        "every" => period(value).map(drop),
        "zone" => canonical_zone(value.to_text()?).map(drop),
        "strict" => window(value.to_text().ok()).map(drop),
        "concurrency" => count(value, slots).map(drop),
        "lease" => positive(value).map(drop),
        _ => value.to_whole(1).map(drop),
    }
}

fn calendar(fields: &mut Fields<'_, '_>) -> Option<PolicyConfig> {
    let policy = counted(fields, "quota", Policy::quota);
    let every = fields.require("every", period);
    let zone = match fields.get("zone") {
        Some(_) => fields.read("zone", |value| canonical_zone(value.to_text()?)),
        None => Some(UTC.to_owned()),
    };
    let calendar = Calendar::new(every?, &zone?).ok()?;
    Some(PolicyConfig { policy: policy?, calendar: Some(calendar) })
}

fn period<'v>(value: &'v Value<'v>) -> Result<&'v str, Rule> {
    let known = value.to_text().ok().filter(|word| PERIODS.contains(word));
    known.ok_or(Rule::NotOneOf(PERIODS))
}

/// Reads a required integer and builds a policy from it.
fn counted(
    fields: &mut Fields<'_, '_>,
    key: &str,
    policy: fn(u64) -> Result<Policy, PolicyError>,
) -> Option<Policy> {
    fields.require(key, |value| count(value, policy))
}

fn count(
    value: &Value<'_>,
    policy: fn(u64) -> Result<Policy, PolicyError>,
) -> Result<Policy, Rule> {
    match value.as_number() {
        // For zero and negative numbers, use the policy's error, which is the most specific.
        Some(number) if number.is_negative() => policy(0).map_err(Rule::from),
        _ => policy(value.to_whole(0)?).map_err(Rule::from),
    }
}

fn strict(fields: &mut Fields<'_, '_>) -> Option<Policy> {
    let window = fields.require("strict", |value| window(value.to_text().ok()));
    let burst = match fields.get("burst") {
        Some(_) => fields.read("burst", |value| value.to_whole(1)),
        // The smallest burst gives the highest sustained rate.
        None => Some(1),
    };
    let ((tokens, window), burst) = (window?, burst?);
    let at = if fields.get("burst").is_some() { "burst" } else { "strict" };
    let policy = Policy::strict_window(tokens, window, burst);
    policy.map_err(|error| fields.report(at, error.into())).ok()
}

fn concurrency(fields: &mut Fields<'_, '_>) -> Option<Policy> {
    let slots = fields.require("concurrency", |value| count(value, slots));
    let lease = match fields.get("lease") {
        Some(_) => fields.read("lease", positive),
        None => Some(DEFAULT_LEASE),
    };
    let (slots, lease) = (slots?.capacity(), lease?);
    let policy = Policy::concurrency(slots, Some(lease));
    policy.map_err(|error| fields.report("lease", error.into())).ok()
}

/// Builds a concurrency policy with the default lease. Without a lease, slots of a crashed holder
/// would never be released.
fn slots(slots: u64) -> Result<Policy, PolicyError> {
    Policy::concurrency(slots, Some(DEFAULT_LEASE))
}

/// Parses a number of tokens and a window, such as `60/min`.
fn window(text: Option<&str>) -> Result<(u64, Duration), Rule> {
    let (tokens, unit) = text.and_then(|text| text.split_once('/')).ok_or(Rule::Strict)?;
    let tokens = tokens.trim().parse::<u64>().map_err(|_| Rule::Strict)?;
    // The rate "1/window" is already in lowest terms, so its period is the window.
    let per_window: Rate = format!("1/{unit}").parse().map_err(|error| match error {
        RateError::Malformed => Rule::Strict,
        other => PolicyError::from(other).into(),
    })?;
    Ok((tokens, Duration::from_nanos(per_window.period())))
}
