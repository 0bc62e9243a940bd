//! The rules in force and the limits of the tiers, replaced together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tidegate_core::Limit;

use crate::jitter::Jitter;
use crate::terms::{Terms, Watch};

use super::pending::Pending;
use super::rules::Rules;
use super::verdict::Tier;

/// The rules and limits that one check uses from start to end.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) rules: Rules,
    /// Limits of the tiers. A limit stays when its tier is removed, so that earlier charges can
    /// still be settled.
    pub(super) client: Option<Limit>,
    pub(super) organization: Option<Limit>,
}

/// The live limits of all tiers that have ever been configured.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    pub(super) client: Option<Arc<Terms>>,
    pub(super) organization: Option<Arc<Terms>>,
}

/// A counter per tier.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; 3]);

impl Counts {
    pub(super) fn add(&self, tier: Tier) {
        self.0[tier as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn of(&self, tier: Tier) -> u64 {
        self.0[tier as usize].load(Ordering::Relaxed)
    }
}

/// State shared by the clones of an admission.
#[derive(Debug)]
pub(super) struct Shared {
    /// Read first: a disabled admission costs this one load.
    pub(super) enabled: AtomicBool,
    pub(super) live: ArcSwap<Live>,
    pub(super) pending: Arc<Pending>,
    pub(super) jitter: Jitter,
    pub(super) rejected: Counts,
    pub(super) shadowed: Counts,
    pub(super) allowed: AtomicU64,
    /// Locked by callers that change the rules.
    pub(super) tiers: Mutex<Tiers>,
}

impl Shared {
    pub(super) fn new(pending: Pending) -> Self {
        let nothing = Live { rules: Rules::none(), client: None, organization: None };
        Self {
            enabled: AtomicBool::new(true),
            live: ArcSwap::from_pointee(nothing),
            pending: Arc::new(pending),
            jitter: Jitter::new(),
            rejected: Counts::default(),
            shadowed: Counts::default(),
            allowed: AtomicU64::new(0),
            tiers: Mutex::default(),
        }
    }

    /// Replaces the rules, together with the current limits.
    pub(super) fn put(&self, rules: Rules, tiers: &Tiers) {
        let limit = |terms: &Option<Arc<Terms>>| terms.as_ref().map(|terms| terms.limit());
        let (client, organization) = (limit(&tiers.client), limit(&tiers.organization));
        self.live.store(Arc::new(Live { rules, client, organization }));
    }
}

impl Watch for Shared {
    /// The limit of a tier was reconfigured by its name.
    fn changed(&self) -> bool {
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = self.live.load().rules.clone();
        let pairs =
            [(&mut rules.client, &tiers.client), (&mut rules.organization, &tiers.organization)];
        for (policy, terms) in pairs {
            if let (Some(policy), Some(terms)) = (policy, terms) {
                *policy = *terms.limit().policy();
            }
        }
        self.put(rules, &tiers);
        true
    }
}
