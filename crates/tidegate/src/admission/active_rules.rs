//! The rules in force and the limits of the tiers, replaced together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tidegate_core::Limit;

use crate::jitter::Jitter;
use crate::live_limit::{LimitWatcher, LiveLimit};

use super::decision::Tier;
use super::pending::Pending;
use super::rules::Rules;

/// The rules and limits that one check uses from start to end.
#[derive(Debug)]
pub(super) struct ActiveRules {
    pub(super) rules: Rules,
    /// Limits of the tiers. A limit stays when its tier is removed, so that earlier charges can
    /// still be settled.
    pub(super) client: Option<Limit>,
    pub(super) organization: Option<Limit>,
}

/// The live limits of all tiers that have ever been configured.
#[derive(Debug, Default)]
pub(super) struct Tiers {
    pub(super) client: Option<Arc<LiveLimit>>,
    pub(super) organization: Option<Arc<LiveLimit>>,
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
    pub(super) active: ArcSwap<ActiveRules>,
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
        let nothing = ActiveRules { rules: Rules::none(), client: None, organization: None };
        Self {
            enabled: AtomicBool::new(true),
            active: ArcSwap::from_pointee(nothing),
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
        let limit = |live_limit: &Option<Arc<LiveLimit>>| {
            live_limit.as_ref().map(|live_limit| live_limit.limit())
        };
        let (client, organization) = (limit(&tiers.client), limit(&tiers.organization));
        self.active.store(Arc::new(ActiveRules { rules, client, organization }));
    }
}

impl LimitWatcher for Shared {
    /// The limit of a tier was reconfigured by its name.
    fn on_change(&self) -> bool {
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = self.active.load().rules.clone();
        let pairs =
            [(&mut rules.client, &tiers.client), (&mut rules.organization, &tiers.organization)];
        for (policy, live_limit) in pairs {
            if let (Some(policy), Some(live_limit)) = (policy, live_limit) {
                *policy = *live_limit.limit().policy();
            }
        }
        self.put(rules, &tiers);
        true
    }
}
