//! Permits in virtual time: bounds, expiry, memory of ended ones.

use tidegate::admission::{Admission, Rules};
use tidegate::{Engine, Limiter, Policy};

use super::*;
use crate::listener::drain::Drain;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const OTHER_PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn admission() -> Admission {
    Admission::new(&Engine::new(), Rules::default()).unwrap()
}

/// Creates a permit that holds a pending request.
fn pending(permits: &Permits, admission: &Admission, ttl: Duration) -> PermitId {
    permits
        .reserve(PEER)
        .unwrap()
        .grant(GrantedPermit::Pending(Some(admission.track_request())), ttl)
}

/// Acquires a permit for the only slot of a limiter.
fn slot(permits: &Permits, engine: &Engine, limiter: &Limiter) -> Option<PermitId> {
    let reservation = permits.reserve(PEER).unwrap();
    let requested = [RequestedCharge { limiter, key: tidegate::Key::new("box"), cost: 1 }];
    let entry = permits.queues().entry(engine, &requested, None).unwrap();
    let permit = entry.queue.acquire(entry.charges).now().ok()?;
    let charge =
        GrantedCharge { limit: "gpu".to_owned(), key: "box".to_owned(), cost: 1, is_slot: true };
    let held = GrantedCharges::new(permit, vec![charge], entry.queue, Vec::new());
    Some(reservation.grant(GrantedPermit::Charges(Box::new(held)), secs(60)))
}

fn one_slot(engine: &Engine) -> Limiter {
    engine.limiter("gpu", Policy::concurrency(1, Some(secs(30))).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_number_of_permits_is_bounded_and_live_ones_are_kept() {
    let bounds = PermitBounds { all: 2, waiting: 2, waiting_per_peer: 2 };
    let (permits, admission) = (Permits::with_bounds(bounds), admission());
    let held = pending(&permits, &admission, secs(60));
    let waiting = permits.reserve(PEER).unwrap();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::TooManyPermits(2))));
    drop(waiting);
    pending(&permits, &admission, secs(60));
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::TooManyPermits(2))));
    assert!(matches!(permits.find(held), Lookup::Active(..)));
    assert!(matches!(permits.release(held), Lookup::Active(..)));
    assert!(permits.reserve(PEER).is_ok());
}

#[tokio::test]
async fn waiting_acquires_leave_connections_for_releases() {
    let permits = Permits::new(8);
    let waiting: Vec<_> = (0..3).map(|_| permits.reserve(PEER).unwrap()).collect();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::TooManyWaitingFromPeer(3))));
    let others: Vec<_> = (0..3).map(|_| permits.reserve(OTHER_PEER).unwrap()).collect();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::TooManyWaiting(6))));
    drop((waiting, others));
    assert!(permits.table().by_peer.is_empty());
    assert!(permits.reserve(PEER).is_ok());
}

#[tokio::test(start_paused = true)]
async fn permits_expire_on_time_without_other_activity() {
    let (permits, admission, drain) = (Permits::new(100), admission(), Drain::new());
    let timer = tokio::spawn({
        let (permits, stop) = (permits.clone(), drain.signal());
        async move { permits.expire(stop).await }
    });
    let long = pending(&permits, &admission, secs(60));
    tokio::time::sleep(secs(1)).await;
    let short = pending(&permits, &admission, secs(5));
    for (after, left) in [(4_900, 2), (200, 1)] {
        tokio::time::sleep(Duration::from_millis(after)).await;
        assert_eq!(admission.pending(), left);
    }
    assert!(matches!(permits.find(short), Lookup::Ended(PermitEnd::Expired)));
    assert!(matches!(permits.renew(short, None), Lookup::Ended(PermitEnd::Expired)));
    // Renew with the original lifetime, then with a shorter one.
    tokio::time::sleep(secs(50)).await;
    let Lookup::Active(_, left) = permits.renew(long, None) else { panic!("it is held") };
    assert_eq!(left, secs(60));
    tokio::time::sleep(secs(50)).await;
    assert!(matches!(permits.renew(long, Some(secs(1))), Lookup::Active(..)));
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!((admission.pending(), permits.stats().expired), (0, 2));
    drop(drain);
    timer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn release_and_expiry_free_the_slot() {
    let (permits, engine) = (Permits::new(100), Engine::new());
    let limiter = one_slot(&engine);
    let first = slot(&permits, &engine, &limiter).unwrap();
    assert!(slot(&permits, &engine, &limiter).is_none());
    let Lookup::Active(held, _) = permits.release(first) else { panic!("it is held") };
    assert!(held.release(None).await.unwrap().is_none());
    slot(&permits, &engine, &limiter).unwrap();
    tokio::time::sleep(secs(61)).await;
    assert!(permits.expire_due(Instant::now()).is_none());
    assert!(slot(&permits, &engine, &limiter).is_some());
    assert_eq!(permits.queues().len(), 1);
}

/// Holders of slots continue to work when the server stops.
#[tokio::test]
async fn shutdown_does_not_free_slots_in_use() {
    let (permits, engine) = (Permits::new(100), Engine::new());
    let limiter = one_slot(&engine);
    slot(&permits, &engine, &limiter).unwrap();
    permits.abandon_all();
    drop(permits);
    assert!(slot(&Permits::new(100), &engine, &limiter).is_none());
}

#[tokio::test]
async fn a_bounded_number_of_ended_ids_is_remembered() {
    let permits = Permits::new(100);
    let end = || {
        let id = permits.reserve(PEER).unwrap().grant(GrantedPermit::Pending(None), secs(60));
        assert!(matches!(permits.release(id), Lookup::Active(..)));
        id
    };
    let first = end();
    let second = end();
    for _ in 2..MAX_ENDED {
        end();
    }
    assert!(matches!(permits.find(first), Lookup::Ended(PermitEnd::Released)));
    end();
    assert!(matches!(permits.find(first), Lookup::Unknown));
    assert!(matches!(permits.find(second), Lookup::Ended(PermitEnd::Released)));
    let table = permits.table();
    assert_eq!(
        (table.ended.len(), table.ended_order.len(), table.waiting),
        (MAX_ENDED, MAX_ENDED, 0)
    );
}
