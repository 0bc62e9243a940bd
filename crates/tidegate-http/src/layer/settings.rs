//! What a layer was told: the settings that all its services share.

use std::sync::Arc;

use tidegate::{Engine, Jitter, StoreHandle};
use tidegate_core::WallTime;

use super::decision::limits::Limits;
use super::decision::policy_line::PolicyLine;
use super::decision::tiers::Tiers;
use super::log::LayerLog;
use crate::field::Styles;
use crate::head::Head;
use crate::identity::ClientAddress;
use crate::problem::Problems;
use crate::refusal::Refusal;

/// Requests that are charged nothing.
pub(super) type Exempt = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

/// Whoever wants to hear of refusals.
pub(super) type Listener = Arc<dyn Fn(&Refusal<'_>) + Send + Sync>;

/// Everything that can be said to a layer. Shared by all its services.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(super) limits: Limits,
    /// An admission in place of limits.
    pub(super) tiers: Option<Tiers>,
    pub(super) clients: ClientAddress,
    pub(super) styles: Styles,
    pub(super) problems: Problems,
    pub(super) exempt: Option<Exempt>,
    pub(super) shadow: bool,
    pub(super) expose: bool,
    pub(super) browsers: bool,
    pub(super) jitter: Arc<Jitter>,
    /// How much longer a hint may get.
    pub(super) jitter_percent: u8,
    pub(super) on_refused: Option<Listener>,
    pub(super) log: Arc<LayerLog>,
    pub(super) policies: PolicyLine,
}

/// The settings, shared by all services of a layer.
pub(crate) type Shared = Arc<Settings>;

impl Settings {
    /// Whether refusals count for nothing at present.
    pub(super) fn in_shadow(&self) -> bool {
        self.shadow || self.tiers.as_ref().is_some_and(Tiers::in_shadow)
    }

    /// Whether handlers are told of every decision.
    pub(super) fn tells_handlers(&self) -> bool {
        self.expose || self.in_shadow()
    }

    /// Tells of a refusal those who want to hear of it.
    pub(super) fn tell_refused(&self, refusal: &Refusal<'_>) {
        if let Some(listener) = &self.on_refused {
            let _ = self.log.contained(|| listener(refusal));
        }
    }

    /// The wall time by the clock of the store.
    pub(super) fn wall_time(&self) -> WallTime {
        self.engine().map_or_else(WallTime::default, Engine::wall_time)
    }

    /// The engine that decides; `None` if there are no limits.
    fn engine(&self) -> Option<&Engine> {
        match &self.tiers {
            Some(tiers) => Some(tiers.admission().engine()),
            None => self.limits.engine(),
        }
    }

    /// The store that decides, if there are limits.
    pub(super) fn store(&self) -> Option<&StoreHandle> {
        self.engine().map(Engine::store)
    }

    /// Whether decisions and settlements are ready at the first poll.
    #[inline]
    pub(super) fn is_local(&self) -> bool {
        self.store().is_none_or(|store| store.local().is_some())
    }
}
