//! Short fuzzing: some thousand mutations of the seeds for every target.
//!
//! `cargo xtask soak fuzz` runs longer. A failing input is written to a file; commit it as a seed
//! with the fix.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::fs;
use std::panic;
use std::path::PathBuf;
use std::sync::Once;

use tidegate_fuzz::mutate::Mutator;
use tidegate_fuzz::{TARGETS, Target, find, seeds};

/// Factor for the number of inputs in a soak run (`TIDEGATE_SOAK` is set).
const SOAK: usize = 50;

thread_local! {
    /// Number of panics of this thread, including those caught by a task or a connection.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                fuzz(find(stringify!($name)).unwrap());
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let tested = [$(stringify!($name)),*];
            for target in TARGETS {
                assert!(tested.contains(&target.name), "{} has no test", target.name);
            }
        }
    };
}

targets! {
    admin_body
    admin_head
    answer
    config
    config_patch
    coordinator
    forwarded
    gateway
    host
    http_body
    http_head
    log_line
    ndjson
    paths
    receipt
    reported_limits
    shard_messages
    shard_request
    snapshot
    sse
    summary
    websocket
}

fn fuzz(target: &Target) {
    count_panics();
    tidegate_fuzz::prepare();
    let seeds = seeds::read(target.name);
    for seed in &seeds {
        try_input(target, seed);
    }
    let times = if std::env::var_os("TIDEGATE_SOAK").is_some() { SOAK } else { 1 };
    // Each target has its own fixed sequence.
    let number =
        target.name.bytes().fold(7, |number: u64, byte| number.wrapping_mul(31) ^ u64::from(byte));
    let mut mutator = Mutator::new(seeds, number);
    for _ in 0..target.inputs * times {
        try_input(target, &mutator.input());
    }
}

fn try_input(target: &Target, input: &[u8]) {
    PANICS.set(0);
    let run = panic::catch_unwind(|| (target.run)(input));
    if run.is_err() || PANICS.get() > 0 {
        let file = keep(target, input);
        panic!(
            "{} fails for the {} bytes in {}; mend the parser and keep them as a seed in {}",
            target.name,
            input.len(),
            file.display(),
            seeds::folder(target.name).display()
        );
    }
}

/// Writes a failing input to a file.
fn keep(target: &Target, input: &[u8]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("fuzz-{}", target.name));
    fs::write(&file, input).unwrap();
    file
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            usual(info);
        }));
    });
}
