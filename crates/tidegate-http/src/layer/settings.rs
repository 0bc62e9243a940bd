//! Settings of a layer, shared by all its services.

use std::sync::Arc;

use tidegate::{Engine, Jitter, StoreHandle};
use tidegate_core::WallTime;

use super::decision::limits::Limits;
use super::decision::policy_cache::PolicyCache;
use super::decision::tiers::Tiers;
use super::log::LayerLog;
use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::problem::ProblemRenderer;
use crate::refusal::Refusal;

/// Predicate for requests that are charged nothing.
pub(super) type Exempt = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

/// Callback for refusals.
pub(super) type RefusalCallback = Arc<dyn Fn(&Refusal<'_>) + Send + Sync>;

/// All settings of a layer.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(super) limits: Limits,
    /// Admission in place of single limits.
    pub(super) tiers: Option<Tiers>,
    pub(super) clients: ClientAddress,
    pub(super) styles: Styles,
    pub(super) problems: ProblemRenderer,
    pub(super) exempt: Option<Exempt>,
    pub(super) shadow: bool,
    pub(super) expose: bool,
    pub(super) expose_headers: bool,
    pub(super) jitter: Arc<Jitter>,
    /// Maximum jitter of retry hints, in percent of the wait.
    pub(super) jitter_percent: u8,
    pub(super) on_refused: Option<RefusalCallback>,
    pub(super) log: Arc<LayerLog>,
    pub(super) policy_cache: PolicyCache,
}

/// Settings, shared by all services of a layer.
pub(crate) type SharedSettings = Arc<Settings>;

impl Settings {
    /// Returns whether refusals are currently only reported, not enforced.
    pub(super) fn in_shadow(&self) -> bool {
        self.shadow || self.tiers.as_ref().is_some_and(Tiers::in_shadow)
    }

    /// Returns whether handlers get a `RequestDecision` with every request.
    pub(super) fn exposes_decisions(&self) -> bool {
        self.expose || self.in_shadow()
    }

    /// Calls the refusal callback, if there is one.
    pub(super) fn notify_refused(&self, refusal: &Refusal<'_>) {
        if let Some(callback) = &self.on_refused {
            let _ = self.log.catch_panic(|| callback(refusal));
        }
    }

    /// Returns the wall time by the clock of the store.
    pub(super) fn wall_time(&self) -> WallTime {
        self.engine().map_or_else(WallTime::default, Engine::wall_time)
    }

    /// Returns the engine that decides, or `None` without limits.
    fn engine(&self) -> Option<&Engine> {
        match &self.tiers {
            Some(tiers) => Some(tiers.admission().engine()),
            None => self.limits.engine(),
        }
    }

    /// Returns the store that decides, or `None` without limits.
    pub(super) fn store(&self) -> Option<&StoreHandle> {
        self.engine().map(Engine::store)
    }

    /// Returns whether decisions and settlements are ready at the first poll.
    #[inline]
    pub(super) fn is_local(&self) -> bool {
        self.store().is_none_or(|store| store.local().is_some())
    }
}
