//! The three tiers: which of them rejects, whom it names, and that it spends nothing elsewhere.

use std::sync::Arc;
use std::time::Duration;

use tidegate::admission::{Admission, Caller, Rules, Tier};
use tidegate::guard::Guarded;
use tidegate::{Engine, MemoryStore, Policy, Retry, StoreError};

use super::{Door, bucket, of};

#[test]
fn the_first_client_over_its_burst_is_the_hundred_and_first() {
    let door = Door::with(Rules::default());
    let alice = of("acme", "alice");
    assert!((0..100).all(|_| door.admits(alice)));
    let rejection = door.admission.admit(alice).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client);
    assert_eq!(rejection.tier.reason(), "tokens_exhausted");
    assert_eq!(rejection.id, Some("alice"));
    assert_eq!(rejection.retry, Retry::After(Duration::from_millis(20)));
    assert_eq!((rejection.tier.as_str(), rejection.tier.reason()), ("client", "tokens_exhausted"));
}

#[test]
fn many_clients_share_what_their_organization_has() {
    let door = Door::with(Rules::default());
    let names: Vec<_> = (0..1_001).map(|number| format!("client-{number}")).collect();
    assert!(names[..1_000].iter().all(|name| door.admits(of("acme", name))));
    let rejection =
        door.admission.admit(of("acme", &names[1_000])).now().unwrap().rejected().unwrap();
    assert_eq!((rejection.tier, rejection.id), (Tier::Organization, Some("acme")));
    assert_eq!(rejection.retry, Retry::After(Duration::from_millis(2)));
    assert!(door.admits(of("other", &names[1_000])), "another organization is not its neighbour");
}

#[test]
fn a_rejection_names_the_first_tier_and_the_longest_wait() {
    let rules = Rules::default().client(bucket(2, 10)).organization(bucket(2, 1));
    let door = Door::with(rules.backpressure(1));
    let alice = of("acme", "alice");
    assert!(door.admits(alice.cost(2)));
    let rejection = door.admission.admit(alice).now().unwrap().rejected().unwrap();
    assert_eq!(rejection.tier, Tier::Client, "the client comes before the organization");
    assert_eq!(rejection.retry, Retry::After(Duration::from_secs(1)), "that of the organization");
    let waits: Vec<_> = rejection.outcomes().map(|(tier, outcome)| (tier, outcome.retry)).collect();
    let (client, organization) = (Duration::from_millis(100), Duration::from_secs(1));
    let waits_of_both = [
        (Tier::Client, Some(Retry::After(client))),
        (Tier::Organization, Some(Retry::After(organization))),
    ];
    assert_eq!(waits, waits_of_both);
    let _pending = [door.admission.enter(), door.admission.enter()];
    assert_eq!(door.rejecting(alice), Some(Tier::Backpressure), "and back-pressure before both");
}

#[test]
fn who_is_rejected_by_one_tier_is_not_charged_by_the_other() {
    let rules = Rules::default().client(bucket(5, 1)).organization(bucket(8, 1));
    let door = Door::with(rules);
    let (alice, bob) = (of("acme", "alice"), of("acme", "bob"));
    assert!(door.admits(alice.cost(5)));
    for _ in 0..10 {
        assert_eq!(door.rejecting(alice), Some(Tier::Client));
    }
    assert_eq!(door.left(Tier::Organization, alice), 3, "rejected clients cost nothing");
    for _ in 0..10 {
        assert_eq!(door.rejecting(bob.cost(4)), Some(Tier::Organization));
    }
    assert_eq!(door.left(Tier::Client, bob), 5, "a full organization costs clients nothing");
}

#[test]
fn the_same_client_id_in_two_organizations_is_two_clients() {
    let door = Door::with(Rules::default().client(bucket(1, 1)));
    assert!(door.admits(of("acme", "1")) && door.admits(of("other", "1")));
    assert!(!door.admits(of("acme", "1")));
    // Nor do ids run into each other at their seam.
    assert!(door.admits(of("a", "b:c")) && door.admits(of("a:b", "c")));
    assert!(door.admits(Caller::new().client("1")), "nor is a client of nobody one of theirs");
}

#[test]
fn a_caller_without_an_id_is_skipped_or_known_by_its_connection() {
    let nobody = Caller::new().organization("acme").connection("c-1");
    let skipping = Door::with(Rules::default().client(bucket(1, 1)));
    assert!((0..10).all(|_| skipping.admits(nobody)));
    assert_eq!(
        skipping.left(Tier::Organization, nobody),
        990,
        "the organization pays all the same"
    );

    let rules = Rules::default().client(bucket(1, 1)).limit_connections(true);
    let by_connection = Door::with(rules);
    assert!(by_connection.admits(nobody));
    let rejection = by_connection.admission.admit(nobody).now().unwrap().rejected().unwrap();
    assert_eq!((rejection.tier, rejection.id), (Tier::Client, Some("c-1")));
    assert!(by_connection.admits(nobody.connection("c-2")));
    assert!(by_connection.admits(of("acme", "c-1")), "a client of that name is somebody else");
}

#[test]
fn every_subset_of_tiers_can_be_had() {
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
        let door = Door::with(rules);
        let by_client = [(); 2].map(|()| door.rejecting(of("acme", "alice")))[1];
        assert_eq!(by_client, client.then_some(Tier::Client), "{subset}");
        let by_organization = [(); 3].map(|()| door.rejecting(Caller::new().organization("x")))[2];
        assert_eq!(by_organization, organization.then_some(Tier::Organization), "{subset}");
        let _pending = [door.admission.enter(), door.admission.enter()];
        let by_pressure = door.rejecting(Caller::new());
        assert_eq!(by_pressure, pressure.then_some(Tier::Backpressure), "{subset}");
    }
}

#[test]
fn a_batch_costs_its_size_in_every_tier() {
    let door = Door::with(Rules::default());
    let batch = of("acme", "alice").cost(70);
    let pass = door.admission.admit(batch).now().unwrap().admitted().unwrap();
    let left: Vec<_> = pass.outcomes().map(|(tier, outcome)| (tier, outcome.remaining)).collect();
    assert_eq!(left, [(Tier::Client, 30), (Tier::Organization, 930)]);
    let never = door.admission.admit(batch.cost(101)).now().unwrap().rejected().unwrap();
    assert_eq!((never.tier, never.retry), (Tier::Client, Retry::Never));
    let wait = door.admission.admit(batch).now().unwrap().rejected().unwrap();
    assert_eq!(wait.retry, Retry::After(Duration::from_millis(800)));
    assert!(door.admits(batch.cost(0)), "a cost of nothing is never rejected");
}

#[test]
fn who_comes_back_too_early_is_rejected_again_with_a_shorter_wait() {
    let door = Door::with(Rules::default().client(bucket(1, 1)));
    let alice = of("acme", "alice");
    assert!(door.admits(alice));
    for left in [1_000, 900, 800] {
        let rejection = door.admission.admit(alice).now().unwrap().rejected().unwrap();
        assert_eq!(rejection.retry, Retry::After(Duration::from_millis(left)));
        door.clock.advance(Duration::from_millis(100));
    }
    door.clock.advance(Duration::from_millis(700));
    assert!(door.admits(alice));
}

/// A rate that is no whole number of tokens a millisecond loses nothing, however often it is asked.
#[test]
fn fractional_rates_are_exact_at_any_polling_rate() {
    for (tenths, admitted) in [(15, 250), (7, 170), (5, 150)] {
        let rate = Policy::per(tenths, Duration::from_secs(10)).capacity(100).build().unwrap();
        let door = Door::with(Rules::none().client(rate));
        let mut count = 0;
        for _ in 0..100_000 {
            count += u32::from(door.admits(of("acme", "alice")));
            door.clock.advance(Duration::from_millis(1));
        }
        assert!((admitted - 1..=admitted).contains(&count), "{tenths}/10 s admitted {count}");
    }
}

#[test]
fn what_was_charged_can_be_corrected_also_after_a_tier_is_gone() {
    let door = Door::with(Rules::default());
    let alice = of("acme", "alice");
    let pass = door.admission.admit(alice.cost(10)).billed().now().unwrap().admitted().unwrap();
    let bill = pass.bill().unwrap();
    let change = tidegate::Change::KeepTokens;
    door.admission.reconfigure(Rules::default().client(None), change).unwrap();
    let settle = door.admission.settle(alice, -10, &bill);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let settled = runtime.block_on(settle).unwrap();
    assert_eq!(settled.applied.as_slice(), [-10, -10]);
    assert_eq!(door.left(Tier::Organization, alice), 1_000);
}

/// Any store will do: here one behind a guard, which has to be awaited.
#[tokio::test]
async fn a_store_that_has_to_be_waited_for_decides_the_same() {
    let guarded = Guarded::builder(Arc::new(MemoryStore::new())).build().unwrap();
    let engine = Engine::on(guarded);
    let rules = Rules::default().client(bucket(1, 1)).organization(bucket(1, 1));
    let admission = Admission::new(&engine, rules).unwrap();
    let alice = of("acme", "alice");
    let at_once = admission.admit(alice).now();
    assert!(matches!(at_once, Err(StoreError::MustAwait)), "nothing has happened");
    assert_eq!(admission.pending(), 0);
    let pass = admission.admit(alice).billed().await.unwrap().admitted().unwrap();
    assert_eq!(admission.pending(), 1);
    let settled = admission.settle(alice, -1, &pass.bill().unwrap()).await.unwrap();
    assert_eq!(settled.applied.as_slice(), [-1, -1]);
    assert!(admission.admit(alice).await.unwrap().is_admitted());
    let rejection = tokio::spawn(async move {
        let verdict = admission.admit(of("acme", "bob")).await.unwrap();
        verdict.rejected().map(|rejection| rejection.tier)
    });
    assert_eq!(rejection.await.unwrap(), Some(Tier::Organization));
}
