//! Runs the benchmark program.

use std::process::Command;

/// In a separate process, so that no freed memory is reused.
#[test]
fn every_limiter_takes_a_plausible_amount_of_memory_for_its_keys() {
    const KEYS: u64 = 100_000;
    for subject in ["tidegate", "governor", "floor"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
        let output = command.args(["core-memory", subject, &KEYS.to_string()]).output().unwrap();
        assert!(output.status.success(), "{subject}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<Option<u64>> =
            text.split_whitespace().map(|word| word.parse().ok()).collect();
        let [resident, reported] = numbers[..] else { panic!("{subject}: {text:?}") };
        // Every limiter here stores at least a fingerprint and an arrival time per key.
        let plausible = 16 * KEYS..256 * KEYS;
        for bytes in [resident, reported].into_iter().flatten() {
            assert!(plausible.contains(&bytes), "{subject}: {text:?}");
        }
        assert_eq!(resident.is_some(), cfg!(target_os = "linux"), "{subject}: {text:?}");
    }
}
