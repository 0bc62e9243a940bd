//! Runs the fuzz target in `TIDEGATE_FUZZ_TARGET` under libFuzzer.
//!
//! `cargo xtask soak fuzz` builds and runs it. By hand, from the root:
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 TIDEGATE_FUZZ_TARGET=sse cargo fuzz run --fuzz-dir fuzz/libfuzzer target
//! ```
#![no_main]

use std::env;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidegate_fuzz::{TARGETS, Target, find};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = env::var("TIDEGATE_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        panic!("TIDEGATE_FUZZ_TARGET must be one of {}", names.join(", "))
    })
});

// Load the vocabulary before the first input is timed.
fuzz_target!(init: tidegate_fuzz::prepare(), |input: &[u8]| (TARGET.run)(input));
