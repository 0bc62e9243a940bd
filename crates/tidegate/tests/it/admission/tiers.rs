//! The three tiers: which of them rejects, which id it reports, and that it spends nothing
//! elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::guard::GuardedStore;
use tidegate::{Engine, MemoryStore, Policy, Retry, StoreError};

use super::{Fixture, bucket, caller_of};

#[test]
fn the_request_after_the_burst_is_rejected() {
    let fixture = Fixture::with(Rules::default());
    let alice = caller_of("acme", "alice");
    assert!((0..100).all(|_| fixture.admits(alice)));
    let rejection = fixture.admission.admit(alice).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client);
    assert_eq!(rejection.tier.reason(), "tokens_exhausted");
    assert_eq!(rejection.id, Some("alice"));
    assert_eq!(rejection.retry, Retry::After(Duration::from_millis(20)));
    assert_eq!((rejection.tier.as_str(), rejection.tier.reason()), ("client", "tokens_exhausted"));
}

#[test]
fn clients_share_the_bucket_of_their_organization() {
    let fixture = Fixture::with(Rules::default());
    let names: Vec<_> = (0..1_001).map(|number| format!("client-{number}")).collect();
    assert!(names[..1_000].iter().all(|name| fixture.admits(caller_of("acme", name))));
    let rejection = fixture
        .admission
        .admit(caller_of("acme", &names[1_000]))
        .now()
        .unwrap()
        .rejected()
        .unwrap();
    assert_eq!((rejection.tier, rejection.id), (Tier::Organization, Some("acme")));
    assert_eq!(rejection.retry, Retry::After(Duration::from_millis(2)));
    assert!(
        fixture.admits(caller_of("other", &names[1_000])),
        "another organization is not affected"
    );
}

#[test]
fn a_rejection_names_the_first_tier_and_the_longest_wait() {
    let rules = Rules::default().client(bucket(2, 10)).organization(bucket(2, 1));
    let fixture = Fixture::with(rules.backpressure(1));
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice.cost(2)));
    let rejection = fixture.admission.admit(alice).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client, "the client comes before the organization");
    assert_eq!(
        rejection.retry,
        Retry::After(Duration::from_secs(1)),
        "the wait of the organization"
    );
    let waits: Vec<_> = rejection.outcomes().map(|(tier, outcome)| (tier, outcome.retry)).collect();
    let (client, organization) = (Duration::from_millis(100), Duration::from_secs(1));
    let waits_of_both = [
        (Tier::Client, Some(Retry::After(client))),
        (Tier::Organization, Some(Retry::After(organization))),
    ];
    assert_eq!(waits, waits_of_both);
    let _pending = [fixture.admission.track_request(), fixture.admission.track_request()];
    assert_eq!(
        fixture.rejecting_tier(alice),
        Some(Tier::Backpressure),
        "and back-pressure before both"
    );
}

#[test]
fn a_rejection_by_one_tier_charges_no_other() {
    let rules = Rules::default().client(bucket(5, 1)).organization(bucket(8, 1));
    let fixture = Fixture::with(rules);
    let (alice, bob) = (caller_of("acme", "alice"), caller_of("acme", "bob"));
    assert!(fixture.admits(alice.cost(5)));
    for _ in 0..10 {
        assert_eq!(fixture.rejecting_tier(alice), Some(Tier::Client));
    }
    assert_eq!(fixture.remaining(Tier::Organization, alice), 3, "rejected clients cost nothing");
    for _ in 0..10 {
        assert_eq!(fixture.rejecting_tier(bob.cost(4)), Some(Tier::Organization));
    }
    assert_eq!(
        fixture.remaining(Tier::Client, bob),
        5,
        "a full organization costs clients nothing"
    );
}

#[test]
fn the_same_client_id_in_two_organizations_is_two_clients() {
    let fixture = Fixture::with(Rules::default().client(bucket(1, 1)));
    assert!(fixture.admits(caller_of("acme", "1")) && fixture.admits(caller_of("other", "1")));
    assert!(!fixture.admits(caller_of("acme", "1")));
    // Nor are ids confused when they are joined.
    assert!(fixture.admits(caller_of("a", "b:c")) && fixture.admits(caller_of("a:b", "c")));
    assert!(
        fixture.admits(Caller::new().client("1")),
        "a client without an organization is separate"
    );
}

#[test]
fn a_caller_without_id_is_skipped_or_limited_by_connection() {
    let anonymous = Caller::new().organization("acme").connection("c-1");
    let skipping = Fixture::with(Rules::default().client(bucket(1, 1)));
    assert!((0..10).all(|_| skipping.admits(anonymous)));
    assert_eq!(
        skipping.remaining(Tier::Organization, anonymous),
        990,
        "the organization is charged nevertheless"
    );

    let rules = Rules::default().client(bucket(1, 1)).limit_connections(true);
    let by_connection = Fixture::with(rules);
    assert!(by_connection.admits(anonymous));
    let rejection = by_connection.admission.admit(anonymous).now().unwrap().rejected().unwrap();
    assert_eq!((rejection.tier, rejection.id), (Tier::Client, Some("c-1")));
    assert!(by_connection.admits(anonymous.connection("c-2")));
    assert!(
        by_connection.admits(caller_of("acme", "c-1")),
        "a client with that id is another caller"
    );
}

#[test]
fn every_subset_of_tiers_works() {
    for subset in 0..8_u8 {
        let [pressure, client, organization] = [1, 2, 4].map(|bit| subset & bit != 0);
        let mut rules = Rules::none();
        if pressure {
            rules = rules.backpressure(1);
        }
        if client {
            rules = rules.client(bucket(1, 1));
        }
        if organization {
            rules = rules.organization(bucket(2, 1));
        }
        let fixture = Fixture::with(rules);
        let by_client = [(); 2].map(|()| fixture.rejecting_tier(caller_of("acme", "alice")))[1];
        assert_eq!(by_client, client.then_some(Tier::Client), "{subset}");
        let by_organization =
            [(); 3].map(|()| fixture.rejecting_tier(Caller::new().organization("x")))[2];
        assert_eq!(by_organization, organization.then_some(Tier::Organization), "{subset}");
        let _pending = [fixture.admission.track_request(), fixture.admission.track_request()];
        let by_pressure = fixture.rejecting_tier(Caller::new());
        assert_eq!(by_pressure, pressure.then_some(Tier::Backpressure), "{subset}");
    }
}

#[test]
fn a_batch_costs_its_size_in_every_tier() {
    let fixture = Fixture::with(Rules::default());
    let batch = caller_of("acme", "alice").cost(70);
    let admitted = fixture.admission.admit(batch).now().unwrap().admitted().unwrap();
    let left: Vec<_> =
        admitted.outcomes().map(|(tier, outcome)| (tier, outcome.remaining)).collect();
    assert_eq!(left, [(Tier::Client, 30), (Tier::Organization, 930)]);
    let never = fixture.admission.admit(batch.cost(101)).now().unwrap().rejected().unwrap();
    assert_eq!((never.tier, never.retry), (Tier::Client, Retry::Never));
    let wait = fixture.admission.admit(batch).now().unwrap().rejected().unwrap();
    assert_eq!(wait.retry, Retry::After(Duration::from_millis(800)));
    assert!(fixture.admits(batch.cost(0)), "a cost of zero is never rejected");
}

#[test]
fn an_early_retry_is_rejected_with_a_shorter_wait() {
    let fixture = Fixture::with(Rules::default().client(bucket(1, 1)));
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice));
    for left in [1_000, 900, 800] {
        let rejection = fixture.admission.admit(alice).now().unwrap().rejected().unwrap();
        assert_eq!(rejection.retry, Retry::After(Duration::from_millis(left)));
        fixture.clock.advance(Duration::from_millis(100));
    }
    fixture.clock.advance(Duration::from_millis(700));
    assert!(fixture.admits(alice));
}

/// A rate that is not a whole number of tokens per millisecond loses nothing, however often it is
/// polled.
#[test]
fn fractional_rates_are_exact_at_any_polling_rate() {
    for (tenths, admitted) in [(15, 250), (7, 170), (5, 150)] {
        let rate = Policy::per(tenths, Duration::from_secs(10)).capacity(100).build().unwrap();
        let fixture = Fixture::with(Rules::none().client(rate));
        let mut count = 0;
        for _ in 0..100_000 {
            count += u32::from(fixture.admits(caller_of("acme", "alice")));
            fixture.clock.advance(Duration::from_millis(1));
        }
        assert!((admitted - 1..=admitted).contains(&count), "{tenths}/10 s admitted {count}");
    }
}

#[test]
fn charges_can_be_settled_after_a_tier_is_removed() {
    let fixture = Fixture::with(Rules::default());
    let alice = caller_of("acme", "alice");
    let admitted =
        fixture.admission.admit(alice.cost(10)).with_receipt().now().unwrap().admitted().unwrap();
    let receipt = admitted.receipt().unwrap();
    let change = tidegate::PolicyChange::KeepTokens;
    fixture.admission.reconfigure(Rules::default().client(None), change).unwrap();
    let settle = fixture.admission.settle(alice, -10, &receipt);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let settled = runtime.block_on(settle).unwrap();
    assert_eq!(settled.applied.as_slice(), [-10, -10]);
    assert_eq!(fixture.remaining(Tier::Organization, alice), 1_000);
}

/// Any store works: here a guarded one, which has to be awaited.
#[tokio::test]
async fn an_awaited_store_decides_the_same() {
    let guarded = GuardedStore::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let engine = Engine::on(guarded);
    let rules = Rules::default().client(bucket(1, 1)).organization(bucket(1, 1));
    let admission = Admission::new(&engine, rules).unwrap();
    let alice = caller_of("acme", "alice");
    let at_once = admission.admit(alice).now();
    assert!(matches!(at_once, Err(StoreError::MustAwait)), "nothing was executed");
    assert_eq!(admission.pending(), 0);
    let admitted = admission.admit(alice).with_receipt().await.unwrap().admitted().unwrap();
    assert_eq!(admission.pending(), 1);
    let settled = admission.settle(alice, -1, &admitted.receipt().unwrap()).await.unwrap();
    assert_eq!(settled.applied.as_slice(), [-1, -1]);
    assert!(admission.admit(alice).await.unwrap().is_admitted());
    let rejection = tokio::spawn(async move {
        let result = admission.admit(caller_of("acme", "bob")).await.unwrap();
        result.rejected().map(|rejection| rejection.tier)
    });
    assert_eq!(rejection.await.unwrap(), Some(Tier::Organization));
}
