//! How an adaptive limit moves.

use super::*;

fn adaptive(start: u64) -> Adaptive {
    Adaptive::new(Tuning::new(start, 200))
}

fn start_call(adaptive: &mut Adaptive, in_flight: u64) -> CallStart {
    adaptive.call_started(in_flight, Time::ZERO)
}

/// Simulates a provider that can serve `hidden` calls at once and pushes the others back. Every
/// round uses all slots, and everything is answered before the next round.
fn round(adaptive: &mut Adaptive, hidden: u64) -> u64 {
    let limit = adaptive.limit();
    let call_starts: Vec<CallStart> =
        (1..=limit).map(|in_flight| start_call(adaptive, in_flight)).collect();
    for (index, call_start) in (1..).zip(call_starts) {
        let pushed_back = PermitOutcome::Throttled { retry_after: None };
        adaptive.call_ended(
            if index > hidden { pushed_back } else { PermitOutcome::Success },
            call_start,
            Time::ZERO,
        );
    }
    adaptive.limit()
}

#[test]
fn it_finds_a_hidden_limit_and_settles_there() {
    for hidden in [1, 2, 3, 7, 20, 64, 150] {
        let mut adaptive = adaptive(4);
        for _ in 0..2_000 {
            round(&mut adaptive, hidden);
        }
        let seen: Vec<u64> = (0..2_000).map(|_| round(&mut adaptive, hidden)).collect();
        let (low, high) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(
            high - low <= 1,
            "hidden {hidden}: swings between {low} and {high} {:?}",
            &seen[..200]
        );
        let reach = hidden..=hidden + hidden / 20 + 1;
        assert!(reach.contains(high), "hidden {hidden}: settled at {low}..{high}");
        assert!(*low + 1 >= hidden, "hidden {hidden}: settled at {low}..{high}");
    }
}

#[test]
fn a_burst_of_push_back_is_one_decrease() {
    let mut adaptive = adaptive(100);
    let call_starts: Vec<CallStart> =
        (1..=100).map(|in_flight| start_call(&mut adaptive, in_flight)).collect();
    for call_start in call_starts {
        adaptive.call_ended(PermitOutcome::Overloaded, call_start, Time::ZERO);
    }
    assert_eq!(adaptive.limit(), 80, "a hundred push-backs, one decrease");
}

#[test]
fn it_recovers_from_one() {
    let mut adaptive = adaptive(1);
    for _ in 0..500 {
        round(&mut adaptive, 50);
    }
    assert!((49..=53).contains(&adaptive.limit()), "{}", adaptive.limit());
    for _ in 0..500 {
        round(&mut adaptive, 1);
    }
    assert!(adaptive.limit() <= 2, "{}", adaptive.limit());
    for _ in 0..5_000 {
        round(&mut adaptive, 50);
    }
    assert!((49..=53).contains(&adaptive.limit()), "{}", adaptive.limit());
}

#[test]
fn it_grows_only_after_it_was_reached() {
    let mut adaptive = adaptive(10);
    for _ in 0..1_000 {
        let call_start = start_call(&mut adaptive, 3);
        adaptive.call_ended(PermitOutcome::Success, call_start, Time::ZERO);
    }
    assert_eq!(adaptive.limit(), 10);
}

#[test]
fn failures_and_cancelled_calls_count_neither_way() {
    let mut adaptive = adaptive(10);
    for outcome in [PermitOutcome::Failed, PermitOutcome::Ignored] {
        for _ in 0..1_000 {
            let call_start = start_call(&mut adaptive, 10);
            adaptive.call_ended(outcome, call_start, Time::ZERO);
        }
    }
    assert_eq!(adaptive.limit(), 10);
}

#[test]
fn a_little_push_back_does_not_shrink_it() {
    let mut adaptive = adaptive(100);
    for number in 0..1_000 {
        let call_start = start_call(&mut adaptive, 100);
        let pushed_back = number % 40 == 39;
        let overloaded = PermitOutcome::Overloaded;
        adaptive.call_ended(
            if pushed_back { overloaded } else { PermitOutcome::Success },
            call_start,
            Time::ZERO,
        );
    }
    assert_eq!(adaptive.limit(), 100, "2.5 % is between the two bounds");
}

/// Random push-back that does not depend on the limit must not wear it down.
#[test]
fn noise_below_the_bound_does_not_wear_it_down() {
    for (per_mille, least) in [(5, 150), (10, 100), (20, 50)] {
        let mut adaptive = adaptive(100);
        let (mut random, mut sum, rounds) = (1_u64, 0, 2_000);
        for _ in 0..rounds {
            let limit = adaptive.limit();
            let call_starts: Vec<CallStart> =
                (1..=limit).map(|now| start_call(&mut adaptive, now)).collect();
            for call_start in call_starts {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pushed_back = (random >> 33) % 1_000 < per_mille;
                let outcome = PermitOutcome::Overloaded;
                adaptive.call_ended(
                    if pushed_back { outcome } else { PermitOutcome::Success },
                    call_start,
                    Time::ZERO,
                );
            }
            sum += adaptive.limit();
        }
        let mean = sum / rounds;
        assert!(mean >= least, "{per_mille} in 1,000: mean limit {mean}");
    }
}

/// Long calls: none has been answered yet, and others wait.
#[test]
fn it_doubles_four_times_a_second_while_calls_wait_and_nothing_is_pushed_back() {
    let mut adaptive = adaptive(8);
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    assert_eq!(adaptive.slots_wanted(at(0)), Some(at(250)));
    assert_eq!(adaptive.slots_wanted(at(200)), Some(at(250)));
    assert_eq!(adaptive.limit(), 8);
    let limits: Vec<u64> = (1..=6)
        .map(|quarter| {
            adaptive.slots_wanted(at(quarter * 250));
            adaptive.limit()
        })
        .collect();
    assert_eq!(limits, [16, 32, 64, 128, 200, 200], "to the cap");
    assert_eq!(adaptive.slots_wanted(at(7_000)), None);
}

#[test]
fn an_ended_wait_for_slots_does_not_count() {
    let mut adaptive = adaptive(8);
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    adaptive.slots_wanted(at(0));
    adaptive.slots_free();
    assert_eq!(adaptive.slots_wanted(at(5_000)), Some(at(5_250)));
    assert_eq!(adaptive.limit(), 8);
}

#[test]
fn a_doubling_that_is_pushed_back_is_undone_and_not_repeated() {
    let mut adaptive = adaptive(8);
    let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
    adaptive.slots_wanted(at(0));
    adaptive.slots_wanted(at(1));
    assert_eq!(round(&mut adaptive, 12), 8, "16 were too many");
    adaptive.slots_wanted(at(2));
    adaptive.slots_wanted(at(11));
    assert_eq!(adaptive.limit(), 8);
    let limits: Vec<u64> = (1..=5)
        .map(|step| {
            adaptive.slots_wanted(at(2 + 10 * step));
            adaptive.limit()
        })
        .collect();
    assert_eq!(limits, [12, 14, 15, 15, 15], "to just below where it was pushed back");
}

#[test]
fn bounds_are_kept() {
    let mut adaptive = Adaptive::new(Tuning { floor: 3, ..Tuning::new(50, 6) });
    assert_eq!(adaptive.limit(), 6);
    for _ in 0..100 {
        round(&mut adaptive, 1_000);
    }
    assert_eq!(adaptive.limit(), 6);
    for _ in 0..100 {
        round(&mut adaptive, 0);
    }
    assert_eq!(adaptive.limit(), 3);
}

#[test]
fn a_limit_moves_by_a_fifth_by_default() {
    let mut adaptive = adaptive(100);
    assert_eq!(round(&mut adaptive, 90), 80, "a tenth was pushed back");
    assert_eq!(round(&mut adaptive, 80), 96, "none was pushed back");
}

#[test]
fn step_sizes_and_thresholds_follow_the_tuning() {
    let mut tuning = Tuning::new(100, 200);
    (tuning.decrease_above, tuning.decrease_to, tuning.increase_to) = (300, 500, 1_500);
    let mut adaptive = Adaptive::new(tuning);
    assert_eq!(round(&mut adaptive, 80), 100, "a fifth is not more than 30 %");
    assert_eq!(round(&mut adaptive, 0), 50, "half is left");
    assert_eq!(round(&mut adaptive, 200), 75, "half of it more");
    tuning.increase_below = 0;
    let mut strict = Adaptive::new(tuning);
    let call_starts: Vec<CallStart> = (1..=100).map(|now| start_call(&mut strict, now)).collect();
    for (index, call_start) in call_starts.into_iter().enumerate() {
        let outcome = if index == 0 { PermitOutcome::Overloaded } else { PermitOutcome::Success };
        strict.call_ended(outcome, call_start, Time::ZERO);
    }
    assert_eq!(strict.limit(), 100, "one of a hundred is too many to grow");
}
