//! What an admission goes by: data, made whole and put in place whole.

use std::collections::{HashMap, HashSet};
use std::fmt;

use tidegate_core::{LimitError, Policy, PolicyError};

use super::verdict::Tier;

/// Why rules cannot be put in place. The old ones stay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionError {
    /// A threshold of zero would reject whoever comes while one other is served.
    #[error("the back-pressure threshold must be at least 1")]
    Threshold,
    /// A tier with a policy that is not a token bucket.
    #[error("the {0} tier must have a token bucket: a capacity and a rate")]
    NotABucket(&'static str),
    /// More than 100 %.
    #[error("the jitter must be at most 100 %")]
    Jitter,
    /// The limit of a tier cannot be made or changed.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// What is done for a caller that has no client id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MissingClient {
    /// The client tier is skipped.
    #[default]
    Skip,
    /// Its connection has a bucket in the client tier, if the caller has a connection id.
    Connection,
}

/// Whether rejections count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Who is rejected does not get in.
    #[default]
    Enforce,
    /// Everybody gets in, and the verdict tells who would not have. Who would have been rejected
    /// is charged nothing.
    Shadow,
}

/// Who is never rejected and charged nothing, not even under back-pressure.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct AllowList {
    organizations: HashSet<Box<str>>,
    clients: HashMap<Box<str>, HashSet<Box<str>>>,
}

impl AllowList {
    /// Whether nobody is on the list.
    pub(super) fn is_empty(&self) -> bool {
        self.organizations.is_empty() && self.clients.is_empty()
    }

    /// By which entry a caller is on the list: that of its organization, or its own.
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
    /// Ids name people: only how many there are is shown.
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
/// The default is the tested profile: a threshold of 100, clients with 100 tokens and 50/s,
/// organizations with 1,000 tokens and 500/s, no jitter. Every tier can be left out.
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
    /// No tier at all: a base for rules with a few of them.
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

    /// Rejects while strictly more than `threshold` requests are pending; `None` is no such tier.
    pub fn backpressure(mut self, threshold: impl Into<Option<u32>>) -> Self {
        self.threshold = threshold.into();
        self
    }

    /// The bucket of each client of an organization; `None` is no such tier.
    pub fn client(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.client = policy.into();
        self
    }

    /// The bucket that all clients of an organization share; `None` is no such tier.
    pub fn organization(mut self, policy: impl Into<Option<Policy>>) -> Self {
        self.organization = policy.into();
        self
    }

    /// Lengthens every hint by a random part of up to so many per cent, so that those who were
    /// rejected together do not come back together. Hints are exact without it.
    pub fn jitter_percent(mut self, percent: u8) -> Self {
        self.jitter_percent = percent;
        self
    }

    /// Whether a caller without a client id has the bucket of its connection in the client tier, if
    /// it has a connection id. Default: no, the client tier is skipped.
    pub fn limit_connections(mut self, is_on: bool) -> Self {
        self.missing_client = if is_on { MissingClient::Connection } else { MissingClient::Skip };
        self
    }

    /// Whether everybody gets in, and the verdict only tells who would not have; that caller is
    /// charged nothing. Default: no.
    pub fn shadow(mut self, is_on: bool) -> Self {
        self.mode = if is_on { Mode::Shadow } else { Mode::Enforce };
        self
    }

    /// Never rejects a client of this organization, and charges it nothing, not even under
    /// back-pressure.
    pub fn allow_organization(mut self, organization: &str) -> Self {
        self.allowed.organizations.insert(organization.into());
        self
    }

    /// Never rejects this client of an organization, and charges it nothing, not even under
    /// back-pressure.
    pub fn allow_client(mut self, organization: &str, client: &str) -> Self {
        let clients = self.allowed.clients.entry(organization.into()).or_default();
        clients.insert(client.into());
        self
    }

    /// How many may be pending; `None` without that tier.
    #[must_use]
    pub const fn threshold(&self) -> Option<u32> {
        self.threshold
    }

    /// The policy of each client; `None` without that tier.
    #[must_use]
    pub const fn client_policy(&self) -> Option<&Policy> {
        self.client.as_ref()
    }

    /// The policy of each organization; `None` without that tier.
    #[must_use]
    pub const fn organization_policy(&self) -> Option<&Policy> {
        self.organization.as_ref()
    }

    /// Whether these rules can be put in place.
    ///
    /// # Errors
    /// When a threshold is zero, or a tier has no token bucket.
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
