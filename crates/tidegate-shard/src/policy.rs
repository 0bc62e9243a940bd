//! Policies in JSON, in messages and in stored histories.

use alloc::string::{String, ToString};
use core::time::Duration;

use crate::json::{self, Fields, FromJson};
use serde::Serialize;
use serde_json::Value;
use tidegate_core::{Decimal, Policy, PolicyChange, PolicyError, Rate, RateError};

/// Parameters of a policy: those of one kind, the others absent.
///
/// People write `{"capacity":10,"tokens_per_second":0.5}` or `{"capacity":10,"rate":"30/min"}`;
/// programs write the rate in nanoseconds, which loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PolicyMessage {
    /// Tokens in a full bucket; one second's worth by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// Rate of a bucket, such as `7/min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Rate of a bucket as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// Exact rate of a bucket: tokens, and the nanoseconds in which they refill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_ns: Option<(u64, u64)>,
    /// Maximum debt of a bucket; the capacity by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_debt: Option<u64>,
    /// How far ahead a bucket may be reserved; one hour by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon_ns: Option<u64>,
    /// Amount per calendar window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// Amount in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowance: Option<u64>,
    /// Slots in use at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// After how long a slot is free again without a renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ns: Option<u64>,
    /// [`lease_ns`](Self::lease_ns) in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

impl PolicyMessage {
    /// Returns the parameters of a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        match policy {
            Policy::Bucket(bucket) => Self {
                capacity: Some(bucket.capacity()),
                per_ns: Some((bucket.rate().tokens().into(), bucket.rate().period())),
                max_debt: Some(bucket.max_debt()),
                horizon_ns: Some(nanos(bucket.horizon())),
                ..Self::default()
            },
            Policy::Quota(quota) => Self { quota: Some(quota.amount()), ..Self::default() },
            Policy::Allowance(allowance) => {
                Self { allowance: Some(allowance.amount()), ..Self::default() }
            }
            Policy::Concurrency(limit) => Self {
                concurrency: Some(limit.slots()),
                lease_ns: limit.lease().map(nanos),
                ..Self::default()
            },
            // A future kind of policy needs a future format; without parameters it is refused.
            _ => Self::default(),
        }
    }

    /// Returns the policy.
    ///
    /// # Errors
    /// If the parameters are of no kind, of two kinds, or invalid.
    pub fn to_policy(&self) -> Result<Policy, String> {
        let rates = [self.rate.is_some(), self.tokens_per_second.is_some(), self.per_ns.is_some()];
        let is_bucket = self.capacity.is_some() || rates.contains(&true);
        let kinds =
            [is_bucket, self.quota.is_some(), self.allowance.is_some(), self.concurrency.is_some()];
        if kinds.iter().filter(|&&kind| kind).count() != 1 {
            return Err(
                "a policy needs capacity and rate, or quota, or allowance, or concurrency".into()
            );
        }
        if is_bucket && rates.iter().filter(|&&rate| rate).count() != 1 {
            return Err("a bucket needs one of rate and tokens_per_second".into());
        }
        let bucket_only = self.max_debt.is_some() || self.horizon_ns.is_some();
        let slots_only = self.lease_ns.is_some() || self.lease_ms.is_some();
        if self.lease_ns.is_some() && self.lease_ms.is_some() {
            return Err("a policy has one of lease_ns and lease_ms".into());
        }
        if (bucket_only && !is_bucket) || (slots_only && self.concurrency.is_none()) {
            return Err("the policy has parameters of two kinds".into());
        }
        self.build().map_err(|error| error.to_string())
    }

    fn build(&self) -> Result<Policy, PolicyError> {
        if let Some(amount) = self.quota {
            return Policy::quota(amount);
        }
        if let Some(amount) = self.allowance {
            return Policy::allowance(amount);
        }
        if let Some(slots) = self.concurrency {
            let millis = self.lease_ms.map(Duration::from_millis);
            return Policy::concurrency(slots, self.lease_ns.map(Duration::from_nanos).or(millis));
        }
        if self.capacity == Some(0) {
            return Err(PolicyError::Capacity);
        }
        let mut builder = Policy::rate(self.rate()?);
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        if let Some(max_debt) = self.max_debt {
            builder = builder.max_debt(max_debt);
        }
        if let Some(horizon) = self.horizon_ns {
            builder = builder.max_horizon(Duration::from_nanos(horizon));
        }
        builder.build()
    }

    fn rate(&self) -> Result<Rate, RateError> {
        if let Some((tokens, period)) = self.per_ns {
            return Rate::per(tokens, Duration::from_nanos(period));
        }
        if let Some(number) = self.tokens_per_second {
            // A number in JSON means its shortest decimal: 0.1 is a tenth.
            if number <= 0.0 {
                return Err(RateError::NotPositive);
            }
            let tokens = Decimal::try_from(number).map_err(RateError::Number)?;
            return Rate::decimal(tokens, Duration::from_secs(1));
        }
        self.rate.as_deref().unwrap_or_default().parse()
    }
}

/// What happens to existing buckets when a policy changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeMessage {
    /// Keep the number of tokens.
    #[default]
    KeepTokens,
    /// Keep the filled share.
    Proportional,
    /// Start full.
    Reset,
}

impl From<PolicyChange> for ChangeMessage {
    fn from(change: PolicyChange) -> Self {
        match change {
            PolicyChange::Proportional => Self::Proportional,
            PolicyChange::Reset => Self::Reset,
            _ => Self::KeepTokens,
        }
    }
}

impl From<ChangeMessage> for PolicyChange {
    fn from(change: ChangeMessage) -> Self {
        match change {
            ChangeMessage::KeepTokens => Self::KeepTokens,
            ChangeMessage::Proportional => Self::Proportional,
            ChangeMessage::Reset => Self::Reset,
        }
    }
}

impl FromJson for PolicyMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let policy = Self {
            capacity: capacity(fields.optional("capacity")?)?,
            rate: fields.optional("rate")?,
            tokens_per_second: fields.optional("tokens_per_second")?,
            per_ns: fields.optional("per_ns")?,
            max_debt: fields.optional("max_debt")?,
            horizon_ns: fields.optional("horizon_ns")?,
            quota: fields.optional("quota")?,
            allowance: fields.optional("allowance")?,
            concurrency: fields.optional("concurrency")?,
            lease_ns: fields.optional("lease_ns")?,
            lease_ms: fields.optional("lease_ms")?,
        };
        fields.finish().map(|()| policy)
    }
}

/// Reads a capacity; a fraction has an error of its own.
fn capacity(number: Option<Value>) -> Result<Option<u64>, String> {
    match number {
        Some(number) if number.as_f64().is_some_and(|number| number > 1.0) && !number.is_u64() => {
            Err(PolicyError::FractionalCapacity.to_string())
        }
        Some(number) => {
            u64::from_json(number).map(Some).map_err(|reason| alloc::format!("capacity {reason}"))
        }
        None => Ok(None),
    }
}

impl FromJson for ChangeMessage {
    fn from_json(value: Value) -> Result<Self, String> {
        match &*String::from_json(value)? {
            "keep_tokens" => Ok(Self::KeepTokens),
            "proportional" => Ok(Self::Proportional),
            "reset" => Ok(Self::Reset),
            other => json::unknown(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip_exactly() {
        for policy in [
            Policy::rate("999983/min".parse().unwrap())
                .capacity(7)
                .max_debt(0)
                .max_horizon(Duration::ZERO)
                .build()
                .unwrap(),
            Policy::strict_window(5, Duration::from_secs(60), 5).unwrap(),
            Policy::quota(u64::MAX).unwrap(),
            Policy::allowance(1 << 60).unwrap(),
            Policy::concurrency(3, None).unwrap(),
            Policy::concurrency(3, Some(Duration::from_nanos(1_500))).unwrap(),
        ] {
            let text = serde_json::to_string(&PolicyMessage::new(&policy)).unwrap();
            let back: PolicyMessage = json::parse(text.as_bytes()).unwrap();
            assert_eq!(back.to_policy(), Ok(policy), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_their_decimal() {
        let read = |text: &str| json::parse::<PolicyMessage>(text.as_bytes()).unwrap().to_policy();
        let tenth = read(r#"{"capacity":10,"tokens_per_second":0.1}"#).unwrap();
        assert_eq!(tenth, read(r#"{"capacity":10,"rate":"1/10s"}"#).unwrap());
        for (bad, rule) in [
            (r#"{"capacity":0,"rate":"1/s"}"#, "Rate limit capacity must be >= 1"),
            (r#"{"capacity":1,"tokens_per_second":0}"#, "tokens per second must be > 0"),
            (r#"{"capacity":1,"tokens_per_second":-2.5}"#, "tokens per second must be > 0"),
            (r#"{"capacity":1}"#, "a bucket needs one of rate and tokens_per_second"),
            (r#"{"quota":1,"max_debt":1}"#, "the policy has parameters of two kinds"),
            (
                r#"{"concurrency":1,"lease_ms":1,"lease_ns":5}"#,
                "a policy has one of lease_ns and lease_ms",
            ),
            (r#"{"allowance":1,"lease_ms":1}"#, "the policy has parameters of two kinds"),
            ("{}", "a policy needs capacity and rate, or quota, or allowance, or concurrency"),
            (
                r#"{"allowance":1,"quota":1}"#,
                "a policy needs capacity and rate, or quota, or allowance, or concurrency",
            ),
        ] {
            assert_eq!(read(bad).unwrap_err(), rule, "{bad}");
        }
        for (bad, rule) in [
            (r#"{"capacity":2.5,"rate":"1/s"}"#, PolicyError::FractionalCapacity.to_string()),
            (r#"{"capacity":-2,"rate":"1/s"}"#, "capacity must be an integer >= 0".to_string()),
        ] {
            assert_eq!(json::parse::<PolicyMessage>(bad.as_bytes()).unwrap_err(), rule, "{bad}");
        }
    }
}
