//! Policies to replay: how they are written on the command line, and how rates are shown.
//!
//! `NAME:capacity=100,rate=50/s`. Only token buckets are replayed, strict windows among them, which
//! the core builds as buckets: calendar quotas need the time zone of the server, and slots how long
//! each request took, which a log of requests does not say.

use std::str::FromStr;

use tidegate_core::{Policy, PolicyBuilder, PolicyError, Rate, RateError, TokenBucket};

/// A token bucket with a name for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPolicy {
    /// The name.
    pub name: String,
    /// The token bucket.
    pub bucket: TokenBucket,
}

/// Why a policy text is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyTextError {
    /// The text is not a list of keys and values.
    #[error("{0:?} is not of the form key=value; write a policy as capacity=100,rate=50/s")]
    Form(String),
    /// A key is not known.
    #[error("{0:?} is not a key of a policy; use capacity and rate")]
    UnknownKey(String),
    /// A key of another kind of policy.
    #[error("{0:?} belongs to a kind of policy that cannot be replayed; use capacity and rate")]
    OtherKind(String),
    /// A key occurs twice.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// The rate is missing.
    #[error("there is no rate; write a policy as capacity=100,rate=50/s")]
    NoRate,
    /// The capacity is not a whole number.
    #[error("capacity {0:?} is not a whole number from 1 to 18446744073709551615")]
    Capacity(String),
    /// The rate is invalid.
    #[error("rate {0:?}: {1}")]
    Rate(String, #[source] RateError),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Keys of policies that are not token buckets, as in the configuration file.
const OTHER_KINDS: &[&str] =
    &["quota", "every", "zone", "allowance", "strict", "burst", "concurrency", "lease"];

impl FromStr for NamedPolicy {
    type Err = PolicyTextError;

    /// Parses `NAME:capacity=100,rate=50/s`. Without a name, the text is the name. Without a
    /// capacity, it is one second's worth, as in the configuration file.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        let (name, keys) = match text.split_once(':') {
            Some((name, keys)) if !name.contains('=') => (name.trim(), keys),
            _ => (text, text),
        };
        let (mut capacity, mut rate) = (None, None);
        for pair in keys.split(',') {
            let form = || PolicyTextError::Form(pair.to_owned());
            let (key, value) = pair.split_once('=').ok_or_else(form)?;
            let value = value.trim();
            match key.trim() {
                "capacity" => put("capacity", &mut capacity, whole(value)?)?,
                "rate" => {
                    let parsed = value.parse::<Rate>();
                    let invalid = |error| PolicyTextError::Rate(value.to_owned(), error);
                    put("rate", &mut rate, parsed.map_err(invalid)?)?;
                }
                key if OTHER_KINDS.contains(&key) => {
                    return Err(PolicyTextError::OtherKind(key.to_owned()));
                }
                key => return Err(PolicyTextError::UnknownKey(key.to_owned())),
            }
        }
        let policy = Policy::rate(rate.ok_or(PolicyTextError::NoRate)?);
        let policy = match capacity {
            Some(capacity) => policy.capacity(capacity),
            None => policy,
        };
        Ok(Self { name: name.to_owned(), bucket: bucket(policy)? })
    }
}

fn put<T>(name: &'static str, slot: &mut Option<T>, value: T) -> Result<(), PolicyTextError> {
    match slot.replace(value) {
        Some(_) => Err(PolicyTextError::Twice(name)),
        None => Ok(()),
    }
}

fn whole(text: &str) -> Result<u64, PolicyTextError> {
    text.parse().map_err(|_| PolicyTextError::Capacity(text.to_owned()))
}

/// Builds a token bucket.
pub(crate) fn bucket(policy: PolicyBuilder) -> Result<TokenBucket, PolicyError> {
    match policy.build()? {
        Policy::Bucket(bucket) => Ok(bucket),
        // A builder builds nothing else.
        _ => Err(PolicyError::NotABucket),
    }
}

/// Formats a rate as in a configuration file: `50/s`, `7/min`, `4/7ms`. The text is equal to the
/// rate.
#[must_use]
pub fn rate_text(rate: Rate) -> String {
    const MILLI: u128 = 1_000_000;
    const UNITS: [(&str, u128); 4] = [
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
        ("day", 86_400_000_000_000),
    ];
    let (tokens, period) = (u128::from(rate.tokens()), u128::from(rate.period()));
    for (unit, nanos) in UNITS {
        if tokens * nanos % period == 0 {
            return format!("{}/{unit}", tokens * nanos / period);
        }
    }
    // Every rate is a number of tokens per some whole number of milliseconds.
    let times = MILLI / gcd(period, MILLI);
    format!("{}/{}ms", tokens * times, period * times / MILLI)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(String, u64, String), String> {
        let policy: NamedPolicy =
            text.parse().map_err(|error: PolicyTextError| error.to_string())?;
        Ok((policy.name, policy.bucket.capacity(), rate_text(policy.bucket.rate())))
    }

    #[test]
    fn policies_are_written_as_in_the_configuration() {
        let named = |text| parsed(text).unwrap();
        assert_eq!(named("client:capacity=100,rate=50/s"), ("client".into(), 100, "50/s".into()));
        assert_eq!(
            named("rate=7/min, capacity=3"),
            ("rate=7/min, capacity=3".into(), 3, "7/min".into())
        );
        assert_eq!(named("a:rate=1.5/s"), ("a".into(), 1, "90/min".into()));
        assert_eq!(named("a:rate=10000/day").2, "10000/day");
        assert_eq!(named("a:rate=3/250ms").2, "12/s");
        assert_eq!(named("a:rate=7/16ms").2, "26250/min");
    }

    #[test]
    fn errors_name_the_value_and_the_rule() {
        let error = |text| parsed(text).unwrap_err();
        assert!(error("capacity=5").contains("there is no rate"));
        assert!(error("100").contains("\"100\" is not of the form key=value"));
        assert!(error("capacity=1,rate=5").contains("rate \"5\": a rate is written"));
        assert!(error("capacity=x,rate=5/s").contains("capacity \"x\" is not a whole number"));
        assert!(error("capacity=0,rate=5/s").contains("capacity must be >= 1"));
        assert!(error("quota=5").contains("cannot be replayed"));
        assert!(error("burst_size=5").contains("not a key of a policy"));
        assert!(error("rate=1/s,rate=2/s").contains("rate is given twice"));
    }

    #[test]
    fn rates_are_shown_exactly() {
        for text in
            ["50/s", "1/min", "7/h", "5/day", "3/16ms", "999983/min", "4/7ms", "100000007/13ms"]
        {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate_text(rate).parse::<Rate>(), Ok(rate), "{text}");
        }
        assert_eq!(rate_text("600000000/s".parse().unwrap()), "600000000/s");
    }
}
