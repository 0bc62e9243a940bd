//! Connections that a listener refused or evicted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    door: &'static str,
    reason: &'static str,
}

/// The metrics of all listeners.
#[derive(Clone, Debug)]
pub(super) struct ClosedConnections(Family<ConnectionLabels, Counter>);

impl ClosedConnections {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family = Family::default();
        registry.register(
            "tidegate_connections_closed",
            "Connections that a listener closed at a connection limit: refused because their \
             network had too many, or evicted while idle",
            Family::clone(&family),
        );
        Self(family)
    }

    pub(super) fn listener(&self, door: &'static str) -> ConnectionMetrics {
        let counter = |reason| self.0.get_or_create_owned(&ConnectionLabels { door, reason });
        ConnectionMetrics { refused: counter("refused"), evicted: counter("evicted") }
    }
}

/// The metrics of one listener.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionMetrics {
    refused: Counter,
    evicted: Counter,
}

impl ConnectionMetrics {
    /// Counts a connection refused because its network is at its limit.
    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    /// Counts idle connections that were closed to make room.
    pub(crate) fn evicted(&self, number: u64) {
        self.evicted.inc_by(number);
    }
}
