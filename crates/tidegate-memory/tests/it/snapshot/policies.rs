//! Policies that differ between the process that saves and the one that restores.

use tidegate_core::PolicyChange;

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn per_second(capacity: u64) -> Policy {
    Policy::per_second(1).capacity(capacity).build().unwrap()
}

/// Returns a machine with a snapshot in which alice has spent 3 of 10.
fn spent(limits: &[Limit]) -> Machine {
    let machine = Machine::new();
    let store = machine.first();
    assert!(take(&store, &limit(10), "alice", 3));
    store.save(machine.file(), limits).unwrap();
    machine
}

#[test]
fn tokens_are_kept_under_another_policy() {
    let mut machine = spent(&[limit(10)]);
    let (store, clock, _) = machine.restart(secs(0));
    let larger = limit(20);
    assert_eq!(remaining(&store, &larger, "alice"), 7);
    assert!(!take(&store, &larger, "alice", 8));
    // It refills under the new policy since its first use.
    clock.advance(secs(5));
    assert_eq!(remaining(&store, &larger, "alice"), 12);
}

#[test]
fn limit_missing_from_the_file_gives_an_empty_bucket() {
    let mut machine = spent(&[]);
    let (store, ..) = machine.restart(secs(1));
    assert!(!take(&store, &limit(10), "alice", 1));
    assert!(take(&store, &limit(10), "bob", 10));
}

#[test]
fn inline_limit_needs_no_entry_in_the_file() {
    let mut machine = Machine::new();
    let (store, inline) = (machine.first(), Limit::inline(per_second(10)));
    assert!(take(&store, &inline, "alice", 9));
    store.save(machine.file(), &[]).unwrap();
    let (store, ..) = machine.restart(secs(2));
    assert_eq!(remaining(&store, &inline, "alice"), 3);
}

#[test]
fn revised_limit_is_saved_without_being_listed() {
    let mut machine = Machine::new();
    let store = machine.first();
    let first = limit(10);
    let second = first.revise(per_second(20), PolicyChange::KeepTokens).unwrap();
    assert!(take(&store, &first, "old", 4));
    assert!(take(&store, &second, "new", 4));
    store.save(machine.file(), &[]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    let now = limit(20);
    assert_eq!(remaining(&store, &now, "new"), 16);
    assert_eq!(remaining(&store, &now, "old"), 6);
}

#[test]
fn untouched_key_survives_several_restarts() {
    let mut machine = spent(&[limit(10)]);
    // It is not used while the limit is 20, then revised to 30.
    let (store, ..) = machine.restart(secs(0));
    let revised = limit(20).revise(per_second(30), PolicyChange::KeepTokens).unwrap();
    assert!(take(&store, &revised, "bob", 30));
    store.save(machine.file(), &[revised]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    store.save(machine.file(), &[limit(5)]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    let now = limit(5);
    assert_eq!(remaining(&store, &now, "bob"), 0);
    // Of seven tokens, five fit.
    assert_eq!(remaining(&store, &now, "alice"), 5);
    // The file keeps a limit that is no longer listed.
    store.save(machine.file(), &[]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &now, "bob"), 0);
    assert_eq!(remaining(&store, &now, "alice"), 5);
}

#[test]
fn restarts_without_a_change_do_not_grow_the_file() {
    let mut machine = spent(&[limit(10)]);
    let size = std::fs::metadata(machine.file()).unwrap().len();
    for _ in 0..300 {
        let (store, ..) = machine.restart(secs(0));
        let saved = store.save(machine.file(), &[limit(10)]).unwrap();
        assert_eq!(saved.bytes, size);
    }
    let (store, ..) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &limit(10), "alice"), 7);
}

/// Regression: a limit with many revisions changed how the generations of all others were read.
#[test]
fn frequent_revisions_of_one_limit_do_not_affect_others() {
    let mut machine = Machine::new();
    let store = machine.first();
    let mut often = Limit::named("often", limit(1).policy().to_owned()).unwrap();
    for number in 0..9_000 {
        often = often.revise(*limit(1 + number % 7).policy(), PolicyChange::KeepTokens).unwrap();
    }
    assert!(take(&store, &often, "bob", 1));
    let few = limit(10);
    assert!(take(&store, &few, "alice", 10));
    let more = few.revise(*limit(1_000).policy(), PolicyChange::KeepTokens).unwrap();
    store.save(machine.file(), &[often.clone(), more]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &limit(1_000), "alice"), 0);
    let often = Limit::named("often", *often.policy()).unwrap();
    assert_eq!(remaining(&store, &often, "bob"), 0, "a bucket of an unknown policy is empty");
}

/// Regression: usage under a name not passed to `save` was read under the policy that the previous
/// file had for it.
#[test]
fn unlisted_limit_gives_an_empty_bucket_even_if_an_older_file_had_it() {
    let mut machine = Machine::new();
    let store = machine.first();
    assert!(take(&store, &limit(1_000), "bob", 1_000));
    store.save(machine.file(), &[limit(1_000)]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert!(take(&store, &limit(10), "alice", 10));
    store.save(machine.file(), &[]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &limit(10), "alice"), 0);
    store.save(machine.file(), &[limit(10)]).unwrap();
    let (store, ..) = machine.restart(secs(0));
    assert_eq!(remaining(&store, &limit(10), "alice"), 0, "also if it is listed later");
}

/// Regression: a limit was revised during a save, and usage under its new policy was read under the
/// old one.
#[test]
fn limit_revised_during_a_save_is_saved_with_its_last_policy() {
    const KEYS: u64 = 20_000;
    let mut machine = Machine::new();
    let (store, first) = (machine.first(), limit(1_000));
    for number in 0..KEYS {
        assert!(take(&store, &first, &number.to_string(), 1_000));
    }
    let second = first.revise(*limit(10).policy(), PolicyChange::KeepTokens).unwrap();
    let done = AtomicBool::new(false);
    let touched = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut touched = 0;
            while !done.load(Ordering::SeqCst) && touched < KEYS {
                assert!(take(&store, &second, &format!("new {touched}"), 10));
                touched += 1;
            }
            touched
        });
        store.save(machine.file(), std::slice::from_ref(&first)).unwrap();
        done.store(true, Ordering::SeqCst);
        other.join().unwrap()
    });
    let (again, ..) = machine.restart(secs(0));
    let left = |number: u64| remaining(&again, &limit(10), &format!("new {number}"));
    let partial = (0..touched).filter(|number| ![0, 10].contains(&left(*number))).count();
    assert_eq!(partial, 0, "a key is saved with all its usage or not at all");
}
