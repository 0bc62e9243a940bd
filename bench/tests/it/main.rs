//! The program as it is started.

use std::process::Command;

/// In a process of its own, so that nothing is used again that others have given back.
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
        let [resident, told] = numbers[..] else { panic!("{subject}: {text:?}") };
        // No limiter here has less than a fingerprint and an arrival time for a key.
        let plausible = 16 * KEYS..256 * KEYS;
        for bytes in [resident, told].into_iter().flatten() {
            assert!(plausible.contains(&bytes), "{subject}: {text:?}");
        }
        assert_eq!(resident.is_some(), cfg!(target_os = "linux"), "{subject}: {text:?}");
    }
}
