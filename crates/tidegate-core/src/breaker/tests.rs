//! Tests of the state machine: a table of its transitions, and random sequences of events.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// An arbitrary start time.
fn start() -> Time {
    Time::from_nanos(1_000_000_000)
}

fn opened(now: Time) -> CircuitBreaker {
    let mut breaker = CircuitBreaker::new(BreakerSettings::default());
    let epoch = breaker.admit(now).unwrap();
    let transitions = [(); 5].map(|()| breaker.settle(epoch, CallOutcome::Failed, now, 0));
    assert_eq!(transitions, [None, None, None, None, Some(Transition::Opened(SECOND * 5))]);
    breaker
}

#[test]
fn every_outcome_in_every_state() {
    use BreakerState::{Closed, HalfOpen, Open};
    use CallOutcome::{Failed, Rejected, Succeeded, Unknown};
    let now = start();
    let (due, pause) = (now.after(SECOND * 5), SECOND * 5);
    let reopened = Some(Transition::Opened(pause * 2));
    let closed = Some(Transition::Closed(pause));
    for (state, outcome, transition, next) in [
        (Closed, Succeeded, None, Closed),
        (Closed, Rejected, None, Closed),
        (Closed, Unknown, None, Closed),
        (Closed, Failed, Some(Transition::Opened(pause)), Open),
        (HalfOpen, Succeeded, closed, Closed),
        (HalfOpen, Rejected, closed, Closed),
        (HalfOpen, Failed, reopened, Open),
        // The next call becomes the trial.
        (HalfOpen, Unknown, None, HalfOpen),
    ] {
        let mut breaker = CircuitBreaker::new(BreakerSettings::after_failures(1));
        if state == HalfOpen {
            let call = breaker.admit(now).unwrap();
            breaker.settle(call, Failed, now, 0).unwrap();
            assert_eq!((breaker.state(now), breaker.admit(now)), (Open, Err(pause)));
        }
        let call = breaker.admit(due).unwrap();
        assert_eq!(breaker.state(due), state);
        assert_eq!(breaker.settle(call, outcome, due, 0), transition, "{state:?}, {outcome:?}");
        assert_eq!(breaker.state(due), next, "{state:?}, {outcome:?}");
        assert_eq!(breaker.closed_epoch().is_some(), next == Closed);
        assert_eq!(breaker.next_trial_at().is_some(), next != Closed);
    }
}

#[test]
fn only_consecutive_failures_open_the_breaker() {
    let (mut breaker, now) = (CircuitBreaker::new(BreakerSettings::default()), start());
    let epoch = breaker.admit(now).unwrap();
    for _ in 0..10 {
        for failures in 1..5 {
            assert_eq!(breaker.settle(epoch, CallOutcome::Failed, now, 0), None);
            assert_eq!(breaker.failures(), failures);
        }
        assert_eq!(breaker.settle(epoch, CallOutcome::Succeeded, now, 0), None);
        assert_eq!(breaker.failures(), 0);
    }
    for outcome in [CallOutcome::Rejected, CallOutcome::Unknown] {
        assert!((0..100).all(|_| breaker.settle(epoch, outcome, now, 0).is_none()));
    }
    assert!(breaker.admit(now).is_ok());
}

#[test]
fn pause_doubles_up_to_the_maximum_and_resets_after_success() {
    let mut now = start();
    let mut breaker = opened(now);
    for (waited, next) in [(5, 10), (10, 20), (20, 40), (40, 60), (60, 60)] {
        assert_eq!(breaker.admit(now.after(SECOND * (waited - 1))), Err(SECOND));
        now = now.after(SECOND * waited);
        let trial = breaker.admit(now).unwrap();
        assert_eq!(breaker.admit(now), Err(RETRY_DURING_TRIAL), "one trial at a time");
        let transition = breaker.settle(trial, CallOutcome::Failed, now, 0);
        assert_eq!(transition, Some(Transition::Opened(SECOND * next)));
    }
    now = now.after(SECOND * 60);
    let trial = breaker.admit(now).unwrap();
    let transition = breaker.settle(trial, CallOutcome::Rejected, now, 0);
    assert_eq!(transition, Some(Transition::Closed(SECOND * 195)));
    let epoch = breaker.admit(now).unwrap();
    let transitions = [(); 5].map(|()| breaker.settle(epoch, CallOutcome::Failed, now, 0));
    assert_eq!(transitions[4], Some(Transition::Opened(SECOND * 5)));
}

#[test]
fn outcome_from_an_earlier_epoch_is_ignored() {
    let now = start();
    let mut breaker = CircuitBreaker::new(BreakerSettings::after_failures(1));
    let old = breaker.admit(now).unwrap();
    assert!(breaker.settle(old, CallOutcome::Failed, now, 0).is_some());
    assert_eq!(breaker.settle(old, CallOutcome::Succeeded, now, 0), None);
    assert_eq!(breaker.admit(now), Err(SECOND * 5));
    let trial = breaker.admit(now.after(SECOND * 5)).unwrap();
    assert_eq!(breaker.settle(old, CallOutcome::Failed, now, 0), None);
    let transition = breaker.settle(trial, CallOutcome::Succeeded, now, 0);
    assert_eq!(transition, Some(Transition::Closed(Duration::ZERO)));
    assert_eq!(breaker.settle(old, CallOutcome::Failed, now, 0), None);
    assert_eq!(breaker.trip(old, now, 0), None);
    assert!(breaker.admit(now).is_ok());
}

#[test]
fn trial_with_unknown_outcome_lets_the_next_call_try() {
    let now = start();
    let (mut breaker, later) = (opened(now), now.after(SECOND * 5));
    let first = breaker.admit(later).unwrap();
    assert_eq!(breaker.settle(first, CallOutcome::Unknown, later, 0), None);
    let second = breaker.admit(later).unwrap();
    assert_eq!(breaker.settle(first, CallOutcome::Failed, later, 0), None, "it has already ended");
    let third = breaker.start_trial().unwrap();
    assert_eq!(breaker.settle(second, CallOutcome::Failed, later, 0), None, "it was replaced");
    let transition = breaker.settle(third, CallOutcome::Succeeded, later, 0);
    assert_eq!(transition, Some(Transition::Closed(SECOND * 5)));
    assert_eq!(breaker.start_trial(), None, "the breaker is closed");
}

#[test]
fn jitter_shortens_a_pause_by_at_most_a_quarter() {
    let (shortest, longest) = (Duration::from_millis(100), SECOND * 5);
    let settings = BreakerSettings::after_failures(3).pause(shortest, longest);
    let millis = |doublings, jitter| settings.pause_after(doublings, jitter).as_millis();
    assert_eq!([0, 1, 2, 5, 6, 99].map(|n| millis(n, 0)), [100, 200, 400, 3_200, 5_000, 5_000]);
    assert_eq!([0, 6].map(|n| millis(n, u16::MAX.into())), [75, 3_750]);
    for jitter in [1, 99, 65_000, u64::MAX, 1 << 40] {
        assert!((3_750..=5_000).contains(&millis(9, jitter)));
    }
    let endless = BreakerSettings::after_failures(0).pause(Duration::MAX, Duration::MAX);
    assert_eq!(endless.pause_after(u32::MAX, 0), Duration::MAX);
    assert!(endless.pause_after(u32::MAX, u64::MAX) < Duration::MAX);
}

mod random {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    #[derive(Clone, Debug)]
    enum Event {
        Admit,
        Trial,
        /// A call admitted earlier ends, possibly for the second time.
        Settle(Index, CallOutcome, u64),
        Trip(Index, u64),
        Pass(u64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let outcome = select(vec![
            CallOutcome::Succeeded,
            CallOutcome::Rejected,
            CallOutcome::Failed,
            CallOutcome::Failed,
            CallOutcome::Unknown,
        ]);
        let event = prop_oneof![
            4 => Just(Event::Admit),
            1 => Just(Event::Trial),
            6 => (any::<Index>(), outcome, any::<u64>()).prop_map(|(i, o, j)| Event::Settle(i, o, j)),
            1 => (any::<Index>(), any::<u64>()).prop_map(|(i, j)| Event::Trip(i, j)),
            3 => (0..20_000_u64).prop_map(Event::Pass),
        ];
        vec(event, 1..200)
    }

    proptest! {
        /// Calls are admitted while closed, and otherwise one trial at a time. The breaker opens
        /// after exactly the configured number of consecutive failures, for a time within bounds.
        /// Outcomes of earlier epochs are ignored.
        #[test]
        fn invariants_hold_for_random_events(tolerated in 1..4_u32, events in events()) {
            let (shortest, longest) = (SECOND, SECOND * 8);
            let settings = BreakerSettings::after_failures(tolerated)
                .pause(shortest, longest)
                .keep_backoff_within(SECOND * 3);
            let mut breaker = CircuitBreaker::new(settings);
            let mut now = start();
            let mut calls = vec![breaker.admit(now).unwrap()];
            let mut consecutive = 0;
            for event in events {
                let (closed, epoch, state) = (breaker.closed_epoch(), breaker.epoch, breaker.state(now));
                let (transition, tripped) = match event {
                    Event::Pass(millis) => {
                        now = now.after(Duration::from_millis(millis));
                        continue;
                    }
                    Event::Admit => {
                        let due = breaker.next_trial_at();
                        let was_trial = matches!(breaker.state, InnerState::HalfOpen { .. });
                        match breaker.admit(now) {
                            Ok(call) => {
                                prop_assert!(closed.is_some() || due <= Some(now) && !was_trial);
                                calls.push(call);
                            }
                            Err(wait) => {
                                prop_assert!(closed.is_none() && wait > Duration::ZERO);
                                prop_assert!(wait <= longest);
                            }
                        }
                        continue;
                    }
                    Event::Trial => {
                        let trial = breaker.start_trial();
                        prop_assert_eq!(trial.is_none(), closed.is_some());
                        calls.extend(trial);
                        continue;
                    }
                    Event::Settle(index, outcome, jitter) => {
                        let call = *index.get(&calls);
                        let transition = breaker.settle(call, outcome, now, jitter);
                        if call != epoch {
                            prop_assert_eq!((transition, breaker.state(now)), (None, state));
                            continue;
                        }
                        match outcome {
                            CallOutcome::Failed if closed.is_some() => consecutive += 1,
                            CallOutcome::Succeeded => consecutive = 0,
                            _ => {}
                        }
                        (transition, false)
                    }
                    Event::Trip(index, jitter) => {
                        let call = *index.get(&calls);
                        let transition = breaker.trip(call, now, jitter);
                        prop_assert_eq!(transition.is_some(), closed == Some(call));
                        (transition, true)
                    }
                };
                match transition {
                    Some(Transition::Opened(pause)) => {
                        prop_assert!(pause >= shortest * 3 / 4 && pause <= longest);
                        prop_assert_eq!(breaker.next_trial_at(), Some(now.after(pause)));
                        if closed.is_some() && !tripped {
                            prop_assert_eq!(consecutive, tolerated);
                        }
                        consecutive = 0;
                    }
                    Some(Transition::Closed(_)) => {
                        prop_assert!(closed.is_none() && breaker.closed_epoch().is_some());
                        consecutive = 0;
                    }
                    None => prop_assert!(consecutive < tolerated),
                }
            }
        }
    }
}
