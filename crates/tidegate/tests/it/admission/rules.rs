//! Rules change under live traffic: atomically, or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::admission::{Admission, AdmissionDecision, AdmissionError, Caller, Rules, Tier};
use tidegate::{Engine, LimitError, Policy, PolicyChange, Retry, now_or_never};

use super::{Fixture, bucket, caller_of};

#[test]
fn buckets_keep_their_tokens_when_rules_change() {
    let fixture = Fixture::with(Rules::default());
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice.cost(40)));
    let rules = Rules::default().client(bucket(1_000, 10)).organization(bucket(50, 1));
    fixture.admission.reconfigure(rules, PolicyChange::KeepTokens).unwrap();
    assert_eq!(fixture.remaining(Tier::Client, alice), 60, "a larger bucket adds no tokens");
    assert_eq!(fixture.remaining(Tier::Organization, alice), 50, "a smaller bucket is cut at once");
    assert!(fixture.admits(alice));
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(fixture.remaining(Tier::Client, alice), 69, "refilled at the new rate");
}

#[test]
fn invalid_rules_change_nothing() {
    let fixture = Fixture::with(Rules::default());
    let before = fixture.admission.rules();
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
        assert_eq!(fixture.admission.reconfigure(rules, PolicyChange::KeepTokens), Err(error));
    }
    assert_eq!(fixture.admission.rules(), before);
    assert!((0..100).all(|_| fixture.admits(caller_of("acme", "alice"))));
}

#[test]
fn two_admissions_on_one_engine_need_different_names() {
    let engine = Engine::new();
    let one = Admission::new(&engine, Rules::default()).unwrap();
    assert!(one.admit(caller_of("acme", "alice").cost(100)).now().unwrap().is_admitted());
    let same = Admission::new(&engine, Rules::default()).unwrap();
    assert!(
        !same.admit(caller_of("acme", "alice")).now().unwrap().is_admitted(),
        "equal rules, equal buckets"
    );
    let other = Rules::default().client(bucket(7, 7));
    let taken = Admission::new(&engine, other.clone()).unwrap_err();
    assert!(matches!(taken, AdmissionError::Limit(LimitError::Taken(name)) if name == "client"));
    let writes = Admission::named(&engine, "writes", other).unwrap();
    assert!(writes.admit(caller_of("acme", "alice")).now().unwrap().is_admitted());
    assert_eq!(writes.limiter(Tier::Client).unwrap().limit().name(), "writes.client");
    assert!(Admission::named(&engine, "Not A Name", Rules::default()).is_err());
}

/// The name of the first tier used to stay taken although the second tier was invalid.
#[test]
fn rejected_rules_can_be_corrected() {
    let engine = Engine::new();
    engine.limiter("organization", bucket(1, 1)).unwrap();
    let admission = Admission::new(&engine, Rules::none().backpressure(5)).unwrap();
    let wrong = Rules::none().client(bucket(100, 50)).organization(bucket(1_000, 500));
    assert!(admission.reconfigure(wrong, PolicyChange::KeepTokens).is_err());
    assert!(admission.limiter(Tier::Client).is_none(), "the old rules stay");
    let right = Rules::none().client(bucket(7, 7));
    assert_eq!(admission.reconfigure(right, PolicyChange::KeepTokens), Ok(()));
}

/// A check would take slots and never release them.
#[test]
fn a_tier_cannot_be_reconfigured_to_slots() {
    let fixture = Fixture::with(Rules::default());
    let limiter = fixture.admission.limiter(Tier::Client).unwrap();
    let slots = Policy::concurrency(3, None).unwrap();
    assert_eq!(limiter.reconfigure(slots, PolicyChange::KeepTokens), Err(LimitError::NotABucket));
    assert!((0..10).all(|_| fixture.admits(caller_of("acme", "alice"))));
}

/// An admission receipt used to be recomputed from changed rules, and no longer matched its
/// charges.
#[test]
fn a_bill_is_settled_after_connection_buckets_are_disabled() {
    let rules = Rules::default().limit_connections(true);
    let fixture = Fixture::with(rules.clone());
    let caller = Caller::new().organization("acme").connection("c-1");
    let admitted =
        fixture.admission.admit(caller.cost(10)).with_receipt().now().unwrap().admitted().unwrap();
    let skipping = rules.limit_connections(false);
    fixture.admission.reconfigure(skipping, PolicyChange::KeepTokens).unwrap();
    let settled = now_or_never(fixture.admission.settle(caller, -10, &admitted.receipt().unwrap()))
        .unwrap()
        .unwrap();
    assert_eq!(settled.applied.as_slice(), [-10, -10]);
}

#[test]
fn debug_output_hides_the_allow_list() {
    let rules =
        Rules::default().allow_organization("acme").allow_client("other", "alice@example.org");
    let admission = Admission::new(&Engine::new(), rules).unwrap();
    let shown = format!("{admission:?}");
    assert!(!shown.contains("alice") && !shown.contains("acme"), "{shown}");
}

/// Reconfiguring the limit of a tier by its name reconfigures the tier.
#[test]
fn reconfiguring_a_limit_by_name_changes_its_tier() {
    let fixture = Fixture::with(Rules::default());
    let limiter = fixture.admission.limiter(Tier::Client).unwrap();
    limiter.reconfigure(bucket(3, 1), PolicyChange::KeepTokens).unwrap();
    assert_eq!(fixture.admission.rules().client_policy(), Some(&bucket(3, 1)));
    let alice = caller_of("acme", "alice");
    assert!((0..3).all(|_| fixture.admits(alice)));
    assert_eq!(fixture.rejecting_tier(alice), Some(Tier::Client));
}

#[test]
fn a_restored_tier_keeps_its_buckets() {
    let fixture = Fixture::with(Rules::default().client(bucket(5, 1)));
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice.cost(5)));
    let without = fixture.admission.rules().client(None);
    fixture.admission.reconfigure(without, PolicyChange::KeepTokens).unwrap();
    assert!(fixture.admits(alice));
    let with = fixture.admission.rules().client(bucket(9, 1));
    fixture.admission.reconfigure(with, PolicyChange::KeepTokens).unwrap();
    assert_eq!(fixture.rejecting_tier(alice), Some(Tier::Client), "what was spent stays spent");
}

/// Two sets of rules, swapped continuously: every check uses one or the other. Nothing is spent
/// here, because a bucket that was converted to newer rules keeps them for all checks.
#[test]
fn no_check_sees_half_of_a_change() {
    let fixture = Fixture::with(rules_of(1));
    let stop = AtomicBool::new(false);
    let admission = &fixture.admission;
    std::thread::scope(|scope| {
        let checks: Vec<_> = (0..2).map(|_| scope.spawn(|| count_torn(admission, &stop))).collect();
        for round in 0..20_000 {
            admission.reconfigure(rules_of(1 + round % 2), PolicyChange::Reset).unwrap();
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
        let capacities: Vec<_> =
            match admission.admit(caller_of("acme", "alice").cost(0)).now().unwrap() {
                AdmissionDecision::Admitted(admitted) => {
                    admitted.outcomes().map(|(_, one)| one.capacity).collect()
                }
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
fn a_disabled_admission_admits_all_and_counts_nothing() {
    let fixture = Fixture::with(Rules::default().client(bucket(1, 1)).backpressure(1));
    let alice = caller_of("acme", "alice");
    fixture.admission.disable();
    assert!(!fixture.admission.is_enabled());
    let passes: Vec<_> =
        (0..10).map(|_| fixture.admission.admit(alice).now().unwrap().admitted()).collect();
    assert!(passes.iter().all(Option::is_some));
    assert_eq!(fixture.admission.pending(), 0);
    assert_eq!(fixture.remaining(Tier::Client, alice), 1);
    fixture.admission.enable();
    assert!(fixture.admits(alice));
    assert_eq!(fixture.rejecting_tier(alice), Some(Tier::Client));
}

#[test]
fn shadow_mode_admits_all_and_reports_rejections() {
    let rules = Rules::default().client(bucket(2, 1)).backpressure(1).shadow(true);
    let fixture = Fixture::with(rules);
    let alice = caller_of("acme", "alice");
    assert!(
        fixture
            .admission
            .admit(alice.cost(2))
            .now()
            .unwrap()
            .admitted()
            .unwrap()
            .would_reject()
            .is_none()
    );
    let admitted = fixture.admission.admit(alice).now().unwrap().admitted().unwrap();
    let would = admitted.would_reject().unwrap();
    assert_eq!((would.tier, would.id), (Tier::Client, Some("alice")));
    assert_eq!(would.retry, Retry::After(Duration::from_secs(1)));
    assert_eq!(
        fixture.remaining(Tier::Organization, alice),
        998,
        "nothing is charged in shadow mode"
    );
    let _more = [fixture.admission.track_request(), fixture.admission.track_request()];
    let pressed = fixture.admission.admit(Caller::new()).now().unwrap().admitted().unwrap();
    assert_eq!(pressed.would_reject().unwrap().tier, Tier::Backpressure);
    assert_eq!(fixture.admission.shadow_rejected_count(Tier::Client), 1);
    assert_eq!(fixture.admission.rejected_count(Tier::Client), 0);
    assert_eq!(fixture.admission.shadow_rejected_count(Tier::Backpressure), 1);
}

#[test]
fn allow_listed_callers_are_neither_charged_nor_rejected() {
    let rules = Rules::default().client(bucket(1, 1)).backpressure(1);
    let rules = rules.allow_organization("probes").allow_client("acme", "export");
    let fixture = Fixture::with(rules);
    fixture.admission.set_pending(50, Duration::from_secs(1));
    for _ in 0..5 {
        assert!(
            fixture.admits(caller_of("probes", "anybody"))
                && fixture.admits(caller_of("acme", "export"))
        );
        assert!(fixture.admits(Caller::new().organization("probes")));
    }
    assert_eq!(fixture.rejecting_tier(caller_of("acme", "alice")), Some(Tier::Backpressure));
    assert_eq!(fixture.rejecting_tier(caller_of("other", "export")), Some(Tier::Backpressure));
    assert_eq!(fixture.rejecting_tier(Caller::new().client("export")), Some(Tier::Backpressure));
    assert_eq!(fixture.admission.allow_listed_count(), 15);
    assert_eq!(fixture.remaining(Tier::Client, caller_of("acme", "export")), 1);
}

#[test]
fn retry_hints_are_jittered_after_a_mass_rejection() {
    let fixture = Fixture::with(Rules::default().client(bucket(1, 1)).jitter_percent(20));
    let alice = caller_of("acme", "alice");
    assert!(fixture.admits(alice));
    let wait = |_| {
        fixture.admission.admit(alice).now().unwrap().rejected().unwrap().retry.after().unwrap()
    };
    let waits: Vec<_> = (0..1_000).map(wait).collect();
    let (least, most) = (*waits.iter().min().unwrap(), *waits.iter().max().unwrap());
    assert!(least >= Duration::from_secs(1) && most <= Duration::from_millis(1_200));
    assert!(most - least >= Duration::from_millis(100), "{least:?} to {most:?}");
}
