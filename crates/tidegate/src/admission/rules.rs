//! The rules of an admission: plain data, validated and replaced as one value.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tidegate_core::{LimitError, Policy, PolicyError};

use super::decision::Tier;

/// Why rules are rejected. The old rules stay in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// A threshold of zero would reject every request that arrives while another one is served.
    #[error("the back-pressure threshold must be at least 1, not 0")]
    Threshold,
    /// The policy of a tier is not a token bucket.
    #[error("the policy of the {0} tier must be a token bucket with a capacity and a rate")]
    NotABucket(&'static str),
    /// The jitter is above 100%.
    #[error("the jitter must be at most 100%")]
    Jitter,
    /// The limit of a tier cannot be created or changed.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// Treatment of callers without a client id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MissingClient {
    /// The client tier is skipped.
    #[default]
    Skip,
    /// The connection gets a bucket in the client tier, if the caller has a connection id.
    Connection,
}

/// Whether rejections are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// A rejected request is not admitted.
    #[default]
    Enforce,
    /// Every request is admitted, and the result reports what would have been rejected. Such a
    /// request is charged nothing.
    Shadow,
}

/// Callers that are never rejected and never charged, not even under back-pressure.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct AllowList {
    organizations: HashSet<Box<str>>,
    clients: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl AllowList {
    pub(super) fn is_empty(&self) -> bool {
        self.organizations.is_empty() && self.clients.is_empty()
    }

    /// The entry that matches a caller: that of its organization, or its own.
    pub(super) fn entry(&self, organization: Option<&str>, client: Option<&str>) -> Option<Tier> {
        let organization = organization?;
        if self.organizations.contains(organization) {
            return Some(Tier::Organization);
        }
        let clients = self.clients.get(organization);
        let listed = clients.zip(client).is_some_and(|(clients, client)| clients.contains(client));
        listed.then_some(Tier::Client)
    }
}

impl fmt::Debug for AllowList {
    /// Ids may identify people: only their number is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients: usize = self.clients.values().map(HashSet::len).sum();
        f.debug_struct("AllowList")
            .field("organizations", &self.organizations.len())
            .field("clients", &clients)
            .finish()
    }
}

/// The tiers of an [`Admission`](super::Admission), and how they reject.
///
/// The default is a tested profile: a threshold of 100, clients with 100 tokens and 50/s,
/// organizations with 1,000 tokens and 500/s, no jitter. Each tier is optional.
///
/// ```
/// use tidegate::Policy;
/// use tidegate::admission::Rules;
/// let rules = Rules::default()
///     .backpressure(400)
///     .client(Policy::per_second(20).capacity(40).build()?)
///     .organization(None)
///     .jitter_percent(25);
/// assert_eq!(rules.threshold(), Some(400));
/// # Ok::<(), tidegate::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rules {
    pub(super) threshold: Option<u32>,
    pub(super) client: Option<Policy>,
    pub(super) organization: Option<Policy>,
    pub(super) jitter_percent: u8,
    pub(super) missing_client: MissingClient,
    pub(super) mode: Mode,
    pub(super) allowed: AllowList,
}

impl Rules {
    /// No tiers: the base for rules with only some of them.
    pub fn none() -> Self {
        Self {
            threshold: None,
            client: None,
            organization: None,
            jitter_percent: 0,
            missing_client: MissingClient::default(),
            mode: Mode::default(),
            allowed: AllowList::default(),
        }
    }

    /// Rejects while more than `threshold` requests are pending; `None` removes the tier.
    pub fn backpressure(mut self, threshold: impl Into<Option<u32>>) -> Self {
        self.threshold = threshold.into();
        self
    }

    /// Sets the policy of each client's bucket; `None` removes the tier.
    pub fn client(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.client = policy.into();
        self
    }

    /// Sets the policy of the bucket that all clients of an organization share; `None` removes the
    /// tier.
    pub fn organization(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.organization = policy.into();
        self
    }

    /// Extends every retry hint by a random part of up to `percent` per cent, so that callers that
    /// were rejected together do not come back together. Default: 0, which gives exact hints.
    pub fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent;
        self
    }

    /// Sets whether a caller without a client id is limited by its connection in the client tier,
    /// if it has a connection id. Default: `false`, the client tier is skipped.
    pub fn limit_connections(mut self, is_on: bool) -> Self {
        self.missing_client = if is_on { MissingClient::Connection } else { MissingClient::Skip };
        self
    }

    /// Sets shadow mode: every request is admitted, and the result reports what would have been
    /// rejected; such a request is charged nothing. Default: `false`.
    pub fn shadow(mut self, is_on: bool) -> Self {
        self.mode = if is_on { Mode::Shadow } else { Mode::Enforce };
        self
    }

    /// Puts an organization on the allow-list: its clients are never rejected and never charged,
    /// not even under back-pressure.
    pub fn allow_organization(mut self, organization: &str) -> Self {
        self.allowed.organizations.insert(organization.into());
        self
    }

    /// Puts a client on the allow-list: it is never rejected and never charged, not even under
    /// back-pressure.
    pub fn allow_client(mut self, organization: &str, client: &str) -> Self {
        let clients = self.allowed.clients.entry(organization.into()).or_default();
        clients.insert(client.into());
        self
    }

    /// Number of pending requests above which requests are rejected; `None` without that tier.
    #[must_use]
    pub const fn threshold(&self) -> Option<u32> {
        self.threshold
    }

    /// Policy of each client's bucket; `None` without that tier.
    #[must_use]
    pub const fn client_policy(&self) -> Option<&Policy> {
        self.client.as_ref()
    }

    /// Policy of each organization's bucket; `None` without that tier.
    #[must_use]
    pub const fn organization_policy(&self) -> Option<&Policy> {
        self.organization.as_ref()
    }

    /// Checks that these rules are valid.
    ///
    /// # Errors
    /// When the threshold is zero, the jitter is above 100%, or a tier's policy is not a token
    /// bucket.
    pub fn check(&self) -> Result<(), AdmissionError> {
        if self.threshold == Some(0) {
            return Err(AdmissionError::Threshold);
        }
        if self.jitter_percent > 100 {
            return Err(AdmissionError::Jitter);
        }
        for (tier, policy) in [("client", &self.client), ("organization", &self.organization)] {
            if policy.is_some_and(|policy| !matches!(policy, Policy::Bucket(_))) {
                return Err(AdmissionError::NotABucket(tier));
            }
        }
        Ok(())
    }
}

impl Default for Rules {
    fn default() -> Self {
        let bucket = |rate, capacity| Policy::per_second(rate).capacity(capacity).build();
        let usable = |policy: Result<Policy, PolicyError>| policy.ok();
        Self {
            threshold: Some(100),
            client: usable(bucket(50, 100)),
            organization: usable(bucket(500, 1_000)),
            ..Self::none()
        }
    }
}
