//! The result of a check: an admitted request or a rejection.

use std::fmt;

use tidegate_core::{FailureRule, Outcome, Outcomes, Receipt, Retry};

use super::pending::InFlight;
use super::rules::MissingClient;

/// A tier of an [`Admission`](super::Admission).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// More requests are pending than the service can handle.
    Backpressure,
    /// The client has used up its bucket.
    Client,
    /// The clients of the organization have used up the bucket that they share.
    Organization,
}

impl Tier {
    /// Name of the tier on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backpressure => "backpressure",
            Self::Client => "client",
            Self::Organization => "organization",
        }
    }

    /// Reason of a rejection on the wire: `queue_depth` if too many requests are pending,
    /// `tokens_exhausted` if a bucket has too few tokens.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Backpressure => "queue_depth",
            Self::Client | Self::Organization => "tokens_exhausted",
        }
    }
}

/// The tiers that were charged, in order: the outcomes of a decision belong to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargedTiers {
    None,
    /// None, because the organization is on the allow-list.
    AllowListedOrganization,
    /// None, because the client is on the allow-list.
    AllowListedClient,
    Client,
    Organization,
    Both,
}

impl ChargedTiers {
    /// The variant for a caller that is on the allow-list by an entry of this tier.
    pub(super) const fn allow_listed(entry: Tier) -> Self {
        match entry {
            Tier::Organization => Self::AllowListedOrganization,
            _ => Self::AllowListedClient,
        }
    }

    pub(super) const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::None | Self::AllowListedOrganization | Self::AllowListedClient => &[],
            Self::Client => &[Tier::Client],
            Self::Organization => &[Tier::Organization],
            Self::Both => &[Tier::Client, Tier::Organization],
        }
    }
}

/// Whether a request is admitted.
#[derive(Debug)]
#[must_use = "an unchecked decision limits nothing"]
#[non_exhaustive]
pub enum AdmissionDecision<'a> {
    /// The request is admitted. It is pending until the value is dropped.
    Admitted(AdmittedRequest<'a>),
    /// The request is rejected, and nothing was spent.
    Rejected(Rejection<'a>),
}

impl<'a> AdmissionDecision<'a> {
    /// Whether the request is admitted.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// The admitted request; `None` if it was rejected.
    #[must_use]
    pub fn admitted(self) -> Option<AdmittedRequest<'a>> {
        match self {
            Self::Admitted(admitted) => Some(admitted),
            Self::Rejected(_) => None,
        }
    }

    /// The rejection of a rejected request.
    #[must_use]
    pub fn rejected(self) -> Option<Rejection<'a>> {
        match self {
            Self::Admitted(_) => None,
            Self::Rejected(rejection) => Some(rejection),
        }
    }
}

/// An admitted request. It counts as pending while this value lives.
#[derive(Debug)]
#[must_use = "the request counts as pending only while this value lives"]
pub struct AdmittedRequest<'a> {
    pub(super) in_flight: Option<InFlight>,
    pub(super) charged: ChargedTiers,
    pub(super) outcomes: Option<Outcomes>,
    pub(super) details: Option<Box<AdmittedDetails<'a>>>,
}

/// Fields that few passes have, boxed to keep the others small.
#[derive(Debug, Default)]
pub(super) struct AdmittedDetails<'a> {
    /// The receipt, and how the client was named.
    pub(super) receipt: Option<(Receipt, MissingClient)>,
    pub(super) degraded: Option<FailureRule>,
    pub(super) would_reject: Option<Rejection<'a>>,
}

impl<'a> AdmittedRequest<'a> {
    /// Admitted by an admission that is switched off.
    #[inline]
    pub(super) const fn unchecked() -> Self {
        Self { in_flight: None, charged: ChargedTiers::None, outcomes: None, details: None }
    }

    /// Outcomes of the buckets that were charged, in the order of the tiers.
    pub fn outcomes(&self) -> impl Iterator<Item = (Tier, &Outcome)> {
        let outcomes = self.outcomes.as_deref().unwrap_or_default();
        self.charged.tiers().iter().copied().zip(outcomes)
    }

    /// The input of [`Admission::settle`](super::Admission::settle); `None` if nothing was charged
    /// or no receipt was [requested](super::Admit::with_receipt).
    #[must_use]
    pub fn receipt(&self) -> Option<AdmissionReceipt> {
        let (receipt, missing_client) = self.details.as_ref()?.receipt.clone()?;
        Some(AdmissionReceipt { charged: self.charged, missing_client, receipt })
    }

    /// The kind of allow-list entry that admitted the caller: its organization's or its own; `None`
    /// if it is not on the allow-list.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules, Tier};
    /// let rules = Rules::default().allow_client("acme", "export");
    /// let admission = Admission::new(&Engine::new(), rules)?;
    /// let caller = Caller::new().organization("acme").client("export");
    /// let admitted = admission.admit(caller).now()?.admitted().unwrap();
    /// assert_eq!(admitted.allow_listed(), Some(Tier::Client));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn allow_listed(&self) -> Option<Tier> {
        match self.charged {
            ChargedTiers::AllowListedOrganization => Some(Tier::Organization),
            ChargedTiers::AllowListedClient => Some(Tier::Client),
            _ => None,
        }
    }

    /// Whether the tiers were checked; `false` if admission is switched off.
    #[must_use]
    pub const fn is_checked(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The rejection that shadow mode suppressed.
    #[must_use]
    pub fn would_reject(&self) -> Option<&Rejection<'a>> {
        self.details.as_ref()?.would_reject.as_ref()
    }

    /// The failure rule that decided because the store did not answer; `None` if the store
    /// answered.
    #[must_use]
    pub fn degraded(&self) -> Option<FailureRule> {
        self.details.as_ref()?.degraded
    }

    /// Converts the value into the guard that keeps the request pending, for callers that need
    /// nothing else of it.
    #[must_use]
    pub fn into_in_flight(self) -> Option<InFlight> {
        self.in_flight
    }
}

/// A record of what a request was charged, to settle later.
#[derive(Clone, Debug)]
pub struct AdmissionReceipt {
    pub(super) charged: ChargedTiers,
    /// How the client was named at that time.
    pub(super) missing_client: MissingClient,
    pub(super) receipt: Receipt,
}

/// A rejected request. Nothing was spent.
#[derive(Clone)]
#[non_exhaustive]
pub struct Rejection<'a> {
    /// The first tier that rejects, in the order back-pressure, client, organization.
    pub tier: Tier,
    /// Id of the rejected client, connection or organization; `None` for back-pressure, which
    /// rejects every request.
    pub id: Option<&'a str>,
    /// When to retry: the longest wait of all tiers that reject.
    pub retry: Retry,
    /// The failure rule that decided because the store did not answer; `None` if the store
    /// answered.
    pub degraded: Option<FailureRule>,
    pub(super) charged: ChargedTiers,
    pub(super) outcomes: Outcomes,
}

impl Rejection<'_> {
    /// Outcomes of the buckets that were checked, in the order of the tiers.
    pub fn outcomes(&self) -> impl Iterator<Item = (Tier, &Outcome)> {
        self.charged.tiers().iter().copied().zip(&self.outcomes)
    }
}

impl fmt::Debug for Rejection<'_> {
    /// Ids may identify people: none is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("tier", &self.tier)
            .field("retry", &self.retry)
            .field("degraded", &self.degraded)
            .finish_non_exhaustive()
    }
}
