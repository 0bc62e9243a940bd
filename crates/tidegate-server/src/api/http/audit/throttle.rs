//! Limits the audit lines of callers without a token.
//!
//! Any client of the HTTP API may hold or reset keys, and must not fill the disk that way. Every
//! peer has its own budget, so that one peer cannot suppress the lines of others. Lines beyond the
//! budget are counted, and the count is logged.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::listener::drain::StopSignal;

/// Burst of lines of one peer: as many as the largest batch causes.
const BURST: u32 = 256;
/// Interval at which a peer gains another line: 20 per second.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of peers with a budget of their own; further peers share one.
const MAX_PEERS: usize = 1_024;
/// How often the number of suppressed lines is logged.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The budgets of all peers.
#[derive(Debug, Default)]
pub(crate) struct AuditThrottle {
    /// When the budget of each peer is full again.
    full_at: Mutex<HashMap<IpAddr, Instant>>,
    suppressed: AtomicU64,
    changed: Notify,
}

impl AuditThrottle {
    /// Returns whether a line caused by this peer may be written. Counts it otherwise.
    pub(super) fn admit(&self, peer: IpAddr) -> bool {
        let is_admitted = self.admit_at(peer, Instant::now());
        if !is_admitted {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            self.changed.notify_one();
        }
        is_admitted
    }

    fn admit_at(&self, peer: IpAddr, now: Instant) -> bool {
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peer = peer_network(peer);
        if full_at.len() >= MAX_PEERS && !full_at.contains_key(&peer) {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= MAX_PEERS {
                peer = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let at = full_at.entry(peer).or_insert(now);
        let next = (*at).max(now) + INTERVAL;
        let is_admitted = next.duration_since(now) <= INTERVAL * BURST;
        if is_admitted {
            *at = next;
        }
        is_admitted
    }

    /// Logs the number of suppressed lines, until the server stops.
    pub(crate) async fn report(&self, stop: StopSignal) {
        let mut stopped = std::pin::pin!(stop.wait());
        loop {
            let due = async {
                self.changed.notified().await;
                sleep(REPORT_INTERVAL).await;
            };
            let is_last = tokio::select! {
                () = &mut stopped => true,
                () = due => false,
            };
            let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
            if suppressed > 0 {
                tracing::warn!(
                    target: "tidegate::audit", door = "http", suppressed,
                    "audit lines suppressed"
                );
            }
            if is_last {
                return;
            }
        }
    }
}

/// Returns an IPv4 address, or the /64 network of an IPv6 address.
fn peer_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(throttle: &AuditThrottle, peer: &str, now: Instant) -> usize {
        let peer = peer.parse().unwrap();
        (0..1_000).filter(|_| throttle.admit_at(peer, now)).count()
    }

    #[test]
    fn each_peer_has_its_own_burst_and_rate() {
        let (throttle, now) = (AuditThrottle::default(), Instant::now());
        assert_eq!(admitted(&throttle, "192.0.2.1", now), 256);
        assert_eq!(admitted(&throttle, "192.0.2.1", now + Duration::from_secs(1)), 20);
        assert_eq!(admitted(&throttle, "192.0.2.2", now), 256);
        assert_eq!(admitted(&throttle, "2001:db8::1", now), 256);
        assert_eq!(admitted(&throttle, "2001:db8::2", now), 0, "of the same network");
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        let (throttle, now) = (AuditThrottle::default(), Instant::now());
        for number in 0..4_000_u32 {
            throttle.admit_at(std::net::Ipv4Addr::from(number).into(), now);
        }
        assert!(throttle.full_at.lock().unwrap().len() <= MAX_PEERS + 1);
    }
}
