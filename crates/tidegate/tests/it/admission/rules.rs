//! Rules change under live traffic: whole, at once, and also not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::admission::{Admission, AdmissionError, Caller, Rules, Tier, Verdict};
use tidegate::{Change, Engine, LimitError, Policy, Retry, now_or_never};

use super::{Door, bucket, of};

#[test]
fn buckets_keep_their_tokens_when_rules_change() {
    let door = Door::with(Rules::default());
    let alice = of("acme", "alice");
    assert!(door.admits(alice.cost(40)));
    let rules = Rules::default().client(bucket(1_000, 10)).organization(bucket(50, 1));
    door.admission.reconfigure(rules, Change::KeepTokens).unwrap();
    assert_eq!(door.left(Tier::Client, alice), 60, "a larger bucket is not a gift");
    assert_eq!(door.left(Tier::Organization, alice), 50, "a smaller one is cut at once");
    assert!(door.admits(alice));
    door.clock.advance(Duration::from_secs(1));
    assert_eq!(door.left(Tier::Client, alice), 69, "and fills at the new rate");
}

#[test]
fn rules_that_cannot_be_change_nothing() {
    let door = Door::with(Rules::default());
    let before = door.admission.rules();
    let slots = Policy::concurrency(3, None).unwrap();
    let wrong = [
        (Rules::default().backpressure(0), AdmissionError::Threshold),
        (Rules::default().jitter_percent(101), AdmissionError::Jitter),
        (Rules::default().client(slots), AdmissionError::NotABucket("client")),
        (
            Rules::default().client(bucket(1, 1)).organization(Policy::quota(1).unwrap()),
            AdmissionError::NotABucket("organization"),
        ),
    ];
    for (rules, error) in wrong {
        assert_eq!(door.admission.reconfigure(rules, Change::KeepTokens), Err(error));
    }
    assert_eq!(door.admission.rules(), before);
    assert!((0..100).all(|_| door.admits(of("acme", "alice"))));
}

#[test]
fn two_admissions_of_one_engine_have_names_of_their_own() {
    let engine = Engine::new();
    let one = Admission::new(&engine, Rules::default()).unwrap();
    assert!(one.admit(of("acme", "alice").cost(100)).now().unwrap().is_admitted());
    let same = Admission::new(&engine, Rules::default()).unwrap();
    assert!(
        !same.admit(of("acme", "alice")).now().unwrap().is_admitted(),
        "equal rules, equal buckets"
    );
    let other = Rules::default().client(bucket(7, 7));
    let taken = Admission::new(&engine, other.clone()).unwrap_err();
    assert!(matches!(taken, AdmissionError::Limit(LimitError::Taken(name)) if name == "client"));
    let writes = Admission::named(&engine, "writes", other).unwrap();
    assert!(writes.admit(of("acme", "alice")).now().unwrap().is_admitted());
    assert_eq!(writes.limiter(Tier::Client).unwrap().limit().name(), "writes.client");
    assert!(Admission::named(&engine, "Not A Name", Rules::default()).is_err());
}

/// The name of the first tier was taken although the second could not be had.
#[test]
fn rules_that_were_refused_can_be_corrected() {
    let engine = Engine::new();
    engine.limiter("organization", bucket(1, 1)).unwrap();
    let admission = Admission::new(&engine, Rules::none().backpressure(5)).unwrap();
    let wrong = Rules::none().client(bucket(100, 50)).organization(bucket(1_000, 500));
    assert!(admission.reconfigure(wrong, Change::KeepTokens).is_err());
    assert!(admission.limiter(Tier::Client).is_none(), "the old rules stay");
    let right = Rules::none().client(bucket(7, 7));
    assert_eq!(admission.reconfigure(right, Change::KeepTokens), Ok(()));
}

/// Slots that a check takes would never be given back.
#[test]
fn a_tier_cannot_become_slots_by_its_name() {
    let door = Door::with(Rules::default());
    let limiter = door.admission.limiter(Tier::Client).unwrap();
    let slots = Policy::concurrency(3, None).unwrap();
    assert_eq!(limiter.reconfigure(slots, Change::KeepTokens), Err(LimitError::NotABucket));
    assert!((0..10).all(|_| door.admits(of("acme", "alice"))));
}

/// A bill was reckoned anew from rules that had changed, and no longer fitted its receipt.
#[test]
fn a_bill_is_settled_after_connections_have_lost_their_buckets() {
    let rules = Rules::default().limit_connections(true);
    let door = Door::with(rules.clone());
    let caller = Caller::new().organization("acme").connection("c-1");
    let pass = door.admission.admit(caller.cost(10)).billed().now().unwrap().admitted().unwrap();
    let skipping = rules.limit_connections(false);
    door.admission.reconfigure(skipping, Change::KeepTokens).unwrap();
    let settled =
        now_or_never(door.admission.settle(caller, -10, &pass.bill().unwrap())).unwrap().unwrap();
    assert_eq!(settled.applied.as_slice(), [-10, -10]);
}

#[test]
fn an_admission_does_not_show_whom_it_allows() {
    let rules =
        Rules::default().allow_organization("acme").allow_client("other", "alice@example.org");
    let admission = Admission::new(&Engine::new(), rules).unwrap();
    let shown = format!("{admission:?}");
    assert!(!shown.contains("alice") && !shown.contains("acme"), "{shown}");
}

/// Whoever revises the limit of a tier by its name revises the tier.
#[test]
fn a_limit_that_is_revised_by_its_name_is_revised_here() {
    let door = Door::with(Rules::default());
    let limiter = door.admission.limiter(Tier::Client).unwrap();
    limiter.reconfigure(bucket(3, 1), Change::KeepTokens).unwrap();
    assert_eq!(door.admission.rules().client_policy(), Some(&bucket(3, 1)));
    let alice = of("acme", "alice");
    assert!((0..3).all(|_| door.admits(alice)));
    assert_eq!(door.rejecting(alice), Some(Tier::Client));
}

#[test]
fn a_tier_that_comes_back_has_its_buckets_back() {
    let door = Door::with(Rules::default().client(bucket(5, 1)));
    let alice = of("acme", "alice");
    assert!(door.admits(alice.cost(5)));
    let without = door.admission.rules().client(None);
    door.admission.reconfigure(without, Change::KeepTokens).unwrap();
    assert!(door.admits(alice));
    let with = door.admission.rules().client(bucket(9, 1));
    door.admission.reconfigure(with, Change::KeepTokens).unwrap();
    assert_eq!(door.rejecting(alice), Some(Tier::Client), "what was spent stays spent");
}

/// Two sets of rules, swapped all the time: every check goes by one or the other. Nothing is spent
/// here: a bucket that somebody has brought under newer rules stays under them for everybody.
#[test]
fn no_check_sees_half_of_a_change() {
    let door = Door::with(rules_of(1));
    let stop = AtomicBool::new(false);
    let admission = &door.admission;
    std::thread::scope(|scope| {
        let checks: Vec<_> = (0..2).map(|_| scope.spawn(|| count_torn(admission, &stop))).collect();
        for round in 0..20_000 {
            admission.reconfigure(rules_of(1 + round % 2), Change::Reset).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for check in checks {
            let (seen, torn) = check.join().unwrap();
            assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
            assert_eq!(torn, 0, "of {seen:?}");
        }
    });
}

/// Capacity 1 for both tiers, or 2 for both.
fn rules_of(capacity: u64) -> Rules {
    Rules::none().client(bucket(capacity, 1)).organization(bucket(capacity, 1))
}

fn count_torn(admission: &Admission, stop: &AtomicBool) -> ([u32; 2], u32) {
    let (mut seen, mut torn) = ([0; 2], 0);
    while !stop.load(Ordering::Relaxed) {
        let capacities: Vec<_> = match admission.admit(of("acme", "alice").cost(0)).now().unwrap() {
            Verdict::Admitted(pass) => pass.outcomes().map(|(_, one)| one.capacity).collect(),
            _ => Vec::new(),
        };
        match capacities[..] {
            [1, 1] => seen[0] += 1,
            [2, 2] => seen[1] += 1,
            _ => torn += 1,
        }
    }
    (seen, torn)
}

#[test]
fn switched_off_it_lets_everybody_in_and_counts_nothing() {
    let door = Door::with(Rules::default().client(bucket(1, 1)).backpressure(1));
    let alice = of("acme", "alice");
    door.admission.disable();
    assert!(!door.admission.is_enabled());
    let passes: Vec<_> =
        (0..10).map(|_| door.admission.admit(alice).now().unwrap().admitted()).collect();
    assert!(passes.iter().all(Option::is_some));
    assert_eq!(door.admission.pending(), 0);
    assert_eq!(door.left(Tier::Client, alice), 1);
    door.admission.enable();
    assert!(door.admits(alice));
    assert_eq!(door.rejecting(alice), Some(Tier::Client));
}

#[test]
fn in_shadow_mode_everybody_gets_in_and_the_verdict_tells_who_would_not() {
    let rules = Rules::default().client(bucket(2, 1)).backpressure(1).shadow(true);
    let door = Door::with(rules);
    let alice = of("acme", "alice");
    assert!(
        door.admission
            .admit(alice.cost(2))
            .now()
            .unwrap()
            .admitted()
            .unwrap()
            .would_reject()
            .is_none()
    );
    let pass = door.admission.admit(alice).now().unwrap().admitted().unwrap();
    let would = pass.would_reject().unwrap();
    assert_eq!((would.tier, would.id), (Tier::Client, Some("alice")));
    assert_eq!(would.retry, Retry::After(Duration::from_secs(1)));
    assert_eq!(door.left(Tier::Organization, alice), 998, "nobody is charged for a shadow");
    let _more = [door.admission.enter(), door.admission.enter()];
    let pressed = door.admission.admit(Caller::new()).now().unwrap().admitted().unwrap();
    assert_eq!(pressed.would_reject().unwrap().tier, Tier::Backpressure);
    assert_eq!(door.admission.shadowed(Tier::Client), 1);
    assert_eq!(door.admission.rejected(Tier::Client), 0);
    assert_eq!(door.admission.shadowed(Tier::Backpressure), 1);
}

#[test]
fn who_is_on_the_allow_list_is_neither_charged_nor_rejected() {
    let rules = Rules::default().client(bucket(1, 1)).backpressure(1);
    let rules = rules.allow_organization("probes").allow_client("acme", "export");
    let door = Door::with(rules);
    door.admission.set_pending(50, Duration::from_secs(1));
    for _ in 0..5 {
        assert!(door.admits(of("probes", "anybody")) && door.admits(of("acme", "export")));
        assert!(door.admits(Caller::new().organization("probes")));
    }
    assert_eq!(door.rejecting(of("acme", "alice")), Some(Tier::Backpressure));
    assert_eq!(door.rejecting(of("other", "export")), Some(Tier::Backpressure));
    assert_eq!(door.rejecting(Caller::new().client("export")), Some(Tier::Backpressure));
    assert_eq!(door.admission.allowed(), 15);
    assert_eq!(door.left(Tier::Client, of("acme", "export")), 1);
}

#[test]
fn hints_are_spread_after_a_mass_rejection() {
    let door = Door::with(Rules::default().client(bucket(1, 1)).jitter_percent(20));
    let alice = of("acme", "alice");
    assert!(door.admits(alice));
    let wait =
        |_| door.admission.admit(alice).now().unwrap().rejected().unwrap().retry.after().unwrap();
    let waits: Vec<_> = (0..1_000).map(wait).collect();
    let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
    assert!(least >= Duration::from_secs(1) && most <= Duration::from_millis(1_200));
    assert!(most - least >= Duration::from_millis(100), "{least:?} to {most:?}");
}
