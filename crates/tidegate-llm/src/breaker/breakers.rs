//! Registry of circuits by scope.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::breaker::BreakerSettings;

use super::circuit::Circuit;
use crate::call::LimitScope;
use crate::recent::Recent;

/// Minimum number of scopes whose circuits are remembered.
const REMEMBERED_SCOPES: usize = 4_096;

/// One circuit per scope. Clones share them.
///
/// At least the 4,096 most recently used scopes are remembered. Existing holders keep a circuit
/// that was evicted; the next lookup of its scope creates a closed one.
#[derive(Clone, Debug)]
pub(crate) struct Breakers {
    circuits: Arc<Mutex<Recent<LimitScope, Circuit>>>,
}

impl Breakers {
    /// Returns the circuit of a scope, and creates it with these settings if necessary.
    pub(crate) fn get(&self, scope: &LimitScope, settings: BreakerSettings) -> Circuit {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        circuits.get(scope, || Circuit::for_scope(scope, settings))
    }
}

impl Default for Breakers {
    fn default() -> Self {
        Self { circuits: Arc::new(Mutex::new(Recent::new(REMEMBERED_SCOPES))) }
    }
}
