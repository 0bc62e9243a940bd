//! What comes of asking to be let in.

use std::fmt;

use tidegate_core::{FailureRule, Outcome, Outcomes, Receipt, Retry};

use super::pending::InFlight;
use super::rules::MissingClient;

/// One of the three tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// More is pending than the service can bear: nobody gets in.
    Backpressure,
    /// The client has used its own share.
    Client,
    /// The clients of the organization have used what they share.
    Organization,
}

impl Tier {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backpressure => "backpressure",
            Self::Client => "client",
            Self::Organization => "organization",
        }
    }

    /// Why it rejects, on the wire: `queue_depth` if too much is pending, `tokens_exhausted` if a
    /// bucket has too few tokens.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Backpressure => "queue_depth",
            Self::Client | Self::Organization => "tokens_exhausted",
        }
    }
}

/// The tiers that were charged, in their order: the outcomes of a decision belong to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charged {
    Nobody,
    /// Nobody, since the organization is on the allow-list.
    AllowedOrganization,
    /// Nobody, since the client is on the allow-list.
    AllowedClient,
    Client,
    Organization,
    Both,
}

impl Charged {
    /// What is charged for a caller that is on the allow-list by the entry of this tier.
    pub(super) const fn allow_listed(entry: Tier) -> Self {
        match entry {
            Tier::Organization => Self::AllowedOrganization,
            _ => Self::AllowedClient,
        }
    }

    pub(super) const fn tiers(self) -> &'static [Tier] {
        match self {
            Self::Nobody | Self::AllowedOrganization | Self::AllowedClient => &[],
            Self::Client => &[Tier::Client],
            Self::Organization => &[Tier::Organization],
            Self::Both => &[Tier::Client, Tier::Organization],
        }
    }
}

/// Whether a caller gets in.
#[derive(Debug)]
#[must_use = "a verdict that nobody reads admits everybody"]
#[non_exhaustive]
pub enum Verdict<'a> {
    /// It does. The request is pending until this is dropped.
    Admitted(Pass<'a>),
    /// It does not, and nothing was spent.
    Rejected(Rejection<'a>),
}

impl<'a> Verdict<'a> {
    /// Whether it gets in.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted(_))
    }

    /// The pass, if it gets in.
    #[must_use]
    pub fn admitted(self) -> Option<Pass<'a>> {
        match self {
            Self::Admitted(pass) => Some(pass),
            Self::Rejected(_) => None,
        }
    }

    /// The rejection, if it does not get in.
    #[must_use]
    pub fn rejected(self) -> Option<Rejection<'a>> {
        match self {
            Self::Admitted(_) => None,
            Self::Rejected(rejection) => Some(rejection),
        }
    }
}

/// A request that was let in. It counts as pending as long as this lives.
#[derive(Debug)]
#[must_use = "the request is pending as long as its pass lives"]
pub struct Pass<'a> {
    pub(super) in_flight: Option<InFlight>,
    pub(super) charged: Charged,
    pub(super) outcomes: Option<Outcomes>,
    pub(super) rare: Option<Box<Rare<'a>>>,
}

/// What few passes have, out of the way of all others.
#[derive(Debug, Default)]
pub(super) struct Rare<'a> {
    /// The receipt, and how the client was named.
    pub(super) billed: Option<(Receipt, MissingClient)>,
    pub(super) degraded: Option<FailureRule>,
    pub(super) would_reject: Option<Rejection<'a>>,
}

impl<'a> Pass<'a> {
    /// Of an admission that is switched off.
    #[inline]
    pub(super) const fn open() -> Self {
        Self { in_flight: None, charged: Charged::Nobody, outcomes: None, rare: None }
    }

    /// How the buckets stand that were charged, in the order of the tiers.
    pub fn outcomes(&self) -> impl Iterator<Item = (Tier, &Outcome)> {
        let outcomes = self.outcomes.as_deref().unwrap_or_default();
        self.charged.tiers().iter().copied().zip(outcomes)
    }

    /// What [`Admission::settle`](super::Admission::settle) takes; `None` if nothing was charged
    /// or no bill was [asked for](super::Admit::billed).
    #[must_use]
    pub fn bill(&self) -> Option<Bill> {
        let (receipt, missing_client) = self.rare.as_ref()?.billed.clone()?;
        Some(Bill { charged: self.charged, missing_client, receipt })
    }

    /// For a caller on the allow-list: whose entry that is, its organization's or the client's own.
    ///
    /// ```
    /// use tidegate::Engine;
    /// use tidegate::admission::{Admission, Caller, Rules, Tier};
    /// let rules = Rules::default().allow_client("acme", "export");
    /// let admission = Admission::new(&Engine::new(), rules)?;
    /// let caller = Caller::new().organization("acme").client("export");
    /// let pass = admission.admit(caller).now()?.admitted().unwrap();
    /// assert_eq!(pass.allow_listed(), Some(Tier::Client));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn allow_listed(&self) -> Option<Tier> {
        match self.charged {
            Charged::AllowedOrganization => Some(Tier::Organization),
            Charged::AllowedClient => Some(Tier::Client),
            _ => None,
        }
    }

    /// Whether the tiers were looked at: not if admission is switched off.
    #[must_use]
    pub const fn is_checked(&self) -> bool {
        self.in_flight.is_some()
    }

    /// In shadow mode: the rejection that would have been.
    #[must_use]
    pub fn would_reject(&self) -> Option<&Rejection<'a>> {
        self.rare.as_ref()?.would_reject.as_ref()
    }

    /// The failure rule that decided because the store did not answer; `None` if the store did.
    #[must_use]
    pub fn degraded(&self) -> Option<FailureRule> {
        self.rare.as_ref()?.degraded
    }

    /// The guard by which the request is pending, for those who keep nothing else of the pass.
    #[must_use]
    pub fn into_in_flight(self) -> Option<InFlight> {
        self.in_flight
    }
}

/// What a pass was charged, to settle later.
#[derive(Clone, Debug)]
pub struct Bill {
    pub(super) charged: Charged,
    /// How the client was named then.
    pub(super) missing_client: MissingClient,
    pub(super) receipt: Receipt,
}

/// A request that was not let in. Nothing was spent for it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Rejection<'a> {
    /// The first tier that rejects, in the order back-pressure, client, organization.
    pub tier: Tier,
    /// Whom it rejects: the id of the client, connection or organization; `None` for
    /// back-pressure, which rejects everybody.
    pub id: Option<&'a str>,
    /// When to try again: the longest wait of all tiers that reject.
    pub retry: Retry,
    /// The failure rule that decided because the store did not answer; `None` if the store did.
    pub degraded: Option<FailureRule>,
    pub(super) charged: Charged,
    pub(super) outcomes: Outcomes,
}

impl Rejection<'_> {
    /// How the buckets stand that were looked at, in the order of the tiers.
    pub fn outcomes(&self) -> impl Iterator<Item = (Tier, &Outcome)> {
        self.charged.tiers().iter().copied().zip(&self.outcomes)
    }
}

impl fmt::Debug for Rejection<'_> {
    /// Ids name people: none is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejection")
            .field("tier", &self.tier)
            .field("retry", &self.retry)
            .field("degraded", &self.degraded)
            .finish_non_exhaustive()
    }
}
