//! A search finds what trying every capacity finds.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::Time;
use tidegate_replay::{
    CountBy, DenyBelow, Event, EventSink as _, FrontierPoint, NamedPolicy, Replay, Spool, best,
    busiest_minutes, search, suggest,
};

const RATES: [u64; 5] = [1, 7, 60, 300, 5_000];

fn events(max_cost: u64) -> impl Strategy<Value = Vec<Event>> {
    let event = (0..3_u32, prop_oneof![4 => 0..200_u64, 1 => 0..90_000_u64], 1..=max_cost);
    vec(event, 1..150).prop_map(|events| {
        let mut millis = 1_700_000_000_000;
        let at = |(key, step, cost)| {
            millis += step;
            Event { key, time: Time::from_nanos(millis * 1_000_000), cost }
        };
        events.into_iter().map(at).collect()
    })
}

fn spooled(events: &[Event]) -> Spool {
    let mut spool = Spool::new().unwrap();
    events.iter().for_each(|&event| spool.event(event).unwrap());
    spool
}

/// Returns the number of denied requests and their cost.
fn denied(events: &[Event], capacity: u64, per_minute: u64) -> (u64, u64) {
    let policy: NamedPolicy = format!("capacity={capacity},rate={per_minute}/min").parse().unwrap();
    let mut replay = Replay::new(vec![policy], Duration::ZERO);
    events.iter().for_each(|&event| replay.event(event).unwrap());
    (replay.totals()[0].denied, replay.totals()[0].denied_cost)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_costs_of_one_it_is_the_smallest_of_all(events in events(1), percent in 1..60_u64) {
        let goal: DenyBelow = format!("{percent}%").parse().unwrap();
        let found = search(&mut spooled(&events), 3, &RATES, goal, &mut ()).unwrap();
        prop_assert_eq!(found.len(), RATES.len());
        for point in &found {
            let total = events.len() as u64;
            let suffices =
                |capacity: &u64| goal.holds(denied(&events, *capacity, point.per_minute).0, total);
            let smallest = (1..).find(suffices).unwrap();
            prop_assert_eq!(point.bucket.capacity(), smallest);
            prop_assert_eq!(point.denied, denied(&events, smallest, point.per_minute).0);
            let nothing = (1..).find(|&it| denied(&events, it, point.per_minute).0 == 0).unwrap();
            prop_assert_eq!(point.denies_nothing, nothing);
        }
        let least = found.iter().map(FrontierPoint::spendable_in_a_minute).min().unwrap();
        prop_assert_eq!(found[best(&found).unwrap()].spendable_in_a_minute(), least);
    }

    #[test]
    fn with_other_costs_the_next_smaller_capacity_does_not_suffice(
        events in events(20),
        percent in 1..60_u64,
    ) {
        let goal: DenyBelow = format!("{percent}%").parse().unwrap();
        let goal = goal.by(CountBy::Cost);
        let total = events.iter().map(|event| event.cost).sum();
        for point in search(&mut spooled(&events), 3, &RATES, goal, &mut ()).unwrap() {
            let capacity = point.bucket.capacity();
            let found = denied(&events, capacity, point.per_minute);
            prop_assert_eq!((point.denied, point.denied_cost), found);
            prop_assert!(goal.holds(found.1, total));
            if capacity > 1 {
                prop_assert!(!goal.holds(denied(&events, capacity - 1, point.per_minute).1, total));
            }
        }
    }

    #[test]
    fn the_largest_suggested_limit_denies_nothing(events in events(20)) {
        // Keys are numbered in the order of their appearance.
        let (mut spool, mut minutes) = (Spool::new().unwrap(), busiest_minutes());
        for &event in &events {
            (&mut spool, &mut minutes).event(event).unwrap();
        }
        let found = suggest(&mut spool, &minutes, &mut ()).unwrap();
        let largest = found.choices.last().unwrap();
        prop_assert_eq!((largest.name, largest.totals.denied), ("max", 0));
        prop_assert_eq!(largest.totals.admitted, events.len() as u64);
        let denials: Vec<u64> = found.choices.iter().map(|it| it.totals.denied_cost).collect();
        prop_assert!(denials[0] >= *denials.last().unwrap());
    }
}
