//! Load: what organizations get, what one misbehaving client takes, and the memory that ids use.

use std::sync::Arc;
use std::time::Duration;

use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::clock::ManualClock;
use tidegate::{Engine, MemoryStore};

use super::{Fixture, caller_of};

#[test]
fn a_thousand_clients_together_get_the_rate_of_their_organization() {
    let fixture = Fixture::with(Rules::default());
    let names: Vec<_> = (0..1_000).map(|number| format!("client-{number}")).collect();
    let seconds = 10;
    let mut admitted = 0;
    for _ in 0..seconds * 50 {
        fixture.clock.advance(Duration::from_millis(20));
        admitted += names.iter().filter(|name| fixture.admits(caller_of("acme", name))).count();
    }
    // The bucket is full when the first 20 ms are over; nothing refilled before.
    assert_eq!(admitted, 1_000 + 500 * seconds - 10);
}

#[test]
fn a_flooding_client_leaves_the_others_their_share() {
    let fixture = Fixture::with(Rules::default());
    let others: Vec<_> = (0..20).map(|number| format!("client-{number}")).collect();
    let (seconds, mut admitted, mut taken) = (10, 0, 0);
    for millisecond in 0..seconds * 1_000 {
        fixture.clock.advance(Duration::from_millis(1));
        taken += (0..10).filter(|_| fixture.admits(caller_of("acme", "bad"))).count();
        // Each of the others sends a request every 20 ms, twice the rate of the organization in
        // all.
        let asking = others.iter().skip(millisecond % 20).step_by(20);
        admitted += asking.filter(|name| fixture.admits(caller_of("acme", name))).count();
    }
    assert!(taken <= 100 + 50 * seconds, "{taken}");
    assert!(admitted >= 450 * seconds, "{admitted} in {seconds} s");
}

/// Random ids cannot exhaust memory: ten million of them stay within the cap, and a client in debt
/// stays in debt.
#[test]
fn ten_million_ids_stay_within_the_memory_cap() {
    let cap = 16 << 20;
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).max_memory(cap).build().unwrap();
    let engine = Engine::on(Arc::new(store));
    let admission = Admission::new(&engine, Rules::default().organization(None)).unwrap();
    let offender = caller_of("acme", "offender");
    assert!(admission.admit(offender.cost(100)).now().unwrap().is_admitted());
    let mut name = String::new();
    for number in 0..10_000_000_u32 {
        use std::fmt::Write as _;
        name.clear();
        write!(name, "client-{number:x}").unwrap();
        let _ = admission.admit(Caller::new().organization("acme").client(&name)).now().unwrap();
        if number % 1_000_000 == 0 {
            clock.advance(Duration::from_millis(1));
            assert!(engine.store().local().unwrap().stats().memory_bytes <= cap, "after {number}");
        }
    }
    assert!(engine.store().local().unwrap().stats().memory_bytes <= cap);
    let rejection = admission.admit(offender).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client);
}
