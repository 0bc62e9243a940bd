//! Circuits by scope.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::breaker::BreakerSettings;

use super::circuit::Circuit;
use crate::call::Scope;
use crate::recent::Recent;

/// How many scopes are remembered at least.
const REMEMBERED_SCOPES: usize = 4_096;

/// A circuit for each scope. Clones share them.
///
/// The scopes that were asked for lately are remembered, 4,096 of them at least. A circuit that was
/// forgotten lives on with those who have it; who asks for it anew gets one that is closed.
#[derive(Clone, Debug)]
pub(crate) struct Breakers {
    settings: BreakerSettings,
    circuits: Arc<Mutex<Recent<Scope, Circuit>>>,
}

impl Breakers {
    /// No circuits yet.
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        Self { settings, circuits: Arc::new(Mutex::new(Recent::new(REMEMBERED_SCOPES))) }
    }

    /// The circuit of a scope: the same one for the same scope.
    pub(crate) fn get(&self, scope: &Scope) -> Circuit {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        circuits.get(scope, || Circuit::for_scope(scope, self.settings))
    }
}

impl Default for Breakers {
    fn default() -> Self {
        Self::new(BreakerSettings::default())
    }
}
