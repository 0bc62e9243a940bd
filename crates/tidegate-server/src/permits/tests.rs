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
    permits.reserve(PEER).unwrap().fill(Held::Pending(Some(admission.enter())), ttl)
}

/// Acquires a permit for the only slot of a limiter.
fn slot(permits: &Permits, engine: &Engine, limiter: &Limiter) -> Option<PermitId> {
    let place = permits.reserve(PEER).unwrap();
    let wanted = [Wanted { limiter, key: tidegate::Key::new("box"), cost: 1 }];
    let line = permits.queues().line(engine, &wanted, None).unwrap();
    let permit = line.queue.acquire(line.charges).now().ok()?;
    let charge =
        HeldCharge { limit: "gpu".to_owned(), key: "box".to_owned(), cost: 1, is_slot: true };
    let held = HeldList::new(permit, vec![charge], line.queue, Vec::new());
    Some(place.fill(Held::List(Box::new(held)), secs(60)))
}

fn one_slot(engine: &Engine) -> Limiter {
    engine.limiter("gpu", Policy::concurrency(1, Some(secs(30))).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_than_a_bound_and_a_live_one_is_never_dropped_for_another() {
    let bounds = PermitBounds { all: 2, waiting: 2, waiting_of_peer: 2 };
    let (permits, admission) = (Permits::within(bounds), admission());
    let held = pending(&permits, &admission, secs(60));
    let waiting = permits.reserve(PEER).unwrap();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::Full(2))));
    drop(waiting);
    pending(&permits, &admission, secs(60));
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::Full(2))));
    assert!(matches!(permits.find(held), Found::Held(..)));
    assert!(matches!(permits.release(held), Found::Held(..)));
    assert!(permits.reserve(PEER).is_ok());
}

#[tokio::test]
async fn those_who_wait_leave_connections_to_those_who_release() {
    let permits = Permits::new(8);
    let waiting: Vec<_> = (0..3).map(|_| permits.reserve(PEER).unwrap()).collect();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::CrowdedPeer(3))));
    let others: Vec<_> = (0..3).map(|_| permits.reserve(OTHER_PEER).unwrap()).collect();
    assert!(matches!(permits.reserve(PEER), Err(PermitsError::Crowded(6))));
    drop((waiting, others));
    assert!(permits.book().by_peer.is_empty());
    assert!(permits.reserve(PEER).is_ok());
}

#[tokio::test(start_paused = true)]
async fn permits_run_out_in_time_while_nothing_else_happens() {
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
    assert!(matches!(permits.find(short), Found::Ended(End::Expired)));
    assert!(matches!(permits.renew(short, None), Found::Ended(End::Expired)));
    // Renew with the original lifetime, then with a shorter one.
    tokio::time::sleep(secs(50)).await;
    let Found::Held(_, left) = permits.renew(long, None) else { panic!("it is held") };
    assert_eq!(left, secs(60));
    tokio::time::sleep(secs(50)).await;
    assert!(matches!(permits.renew(long, Some(secs(1))), Found::Held(..)));
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!((admission.pending(), permits.figures().expired), (0, 2));
    drop(drain);
    timer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_its_permit_is_released_or_has_run_out() {
    let (permits, engine) = (Permits::new(100), Engine::new());
    let limiter = one_slot(&engine);
    let first = slot(&permits, &engine, &limiter).unwrap();
    assert!(slot(&permits, &engine, &limiter).is_none());
    let Found::Held(held, _) = permits.release(first) else { panic!("it is held") };
    assert!(held.release(None).await.unwrap().is_none());
    slot(&permits, &engine, &limiter).unwrap();
    tokio::time::sleep(secs(61)).await;
    assert!(permits.end_due(Instant::now()).is_none());
    assert!(slot(&permits, &engine, &limiter).is_some());
    assert_eq!(permits.queues().len(), 1);
}

/// Holders of slots continue to work when the server stops.
#[tokio::test]
async fn a_server_that_stops_frees_no_slot_under_its_holder() {
    let (permits, engine) = (Permits::new(100), Engine::new());
    let limiter = one_slot(&engine);
    slot(&permits, &engine, &limiter).unwrap();
    permits.leave();
    drop(permits);
    assert!(slot(&Permits::new(100), &engine, &limiter).is_none());
}

#[tokio::test]
async fn the_ids_that_ended_last_are_remembered_and_not_more() {
    let permits = Permits::new(100);
    let end = || {
        let id = permits.reserve(PEER).unwrap().fill(Held::Pending(None), secs(60));
        assert!(matches!(permits.release(id), Found::Held(..)));
        id
    };
    let first = end();
    let second = end();
    for _ in 2..MAX_ENDED {
        end();
    }
    assert!(matches!(permits.find(first), Found::Ended(End::Released)));
    end();
    assert!(matches!(permits.find(first), Found::Unknown));
    assert!(matches!(permits.find(second), Found::Ended(End::Released)));
    let book = permits.book();
    assert_eq!((book.ended.len(), book.in_order.len(), book.waiting), (MAX_ENDED, MAX_ENDED, 0));
}
