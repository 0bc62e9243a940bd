//! R425: many readers and two writers, and only complete configurations are visible.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{TestServer, patch};

/// Two consistent sets of values: two capacities, and three settings of a provider.
const SETS: [[u64; 5]; 2] = [[10, 20, 1, 2, 100], [30, 60, 3, 6, 300]];
const KEYS: [&str; 5] = [
    "limits.one.capacity",
    "limits.two.capacity",
    "providers.openai.max_retries",
    "providers.openai.max_concurrent_requests",
    "providers.openai.requests_per_minute",
];

const READERS: usize = 20;
const WRITERS: usize = 2;
/// Number of changes per writer.
const CHANGES: usize = 250;

fn change([one, two, retries, concurrency, requests]: [u64; 5]) -> Value {
    json!({
        "limits": {"one": {"capacity": one}, "two": {"capacity": two}},
        "providers": {"openai": {
            "max_retries": retries,
            "max_concurrent_requests": concurrency,
            "requests_per_minute": requests,
        }},
    })
}

/// Reads the values from the admin API.
fn shown(server: &TestServer) -> [u64; 5] {
    let settings = server.admin_get("/admin/config").member("settings");
    let settings = settings.as_array().unwrap();
    KEYS.map(|key| {
        let one = settings.iter().find(|one| one["key"] == key).unwrap();
        one["value"].as_u64().unwrap()
    })
}

/// Returns the capacities used by a decision over both limits, for a new key.
fn decided(server: &TestServer, key: &str) -> [u64; 2] {
    let body = format!(
        r#"{{"charges":[{{"limit":"one","key":"{key}"}},{{"limit":"two","key":"{key}"}}]}}"#
    );
    let charges = server.post("/v1/take", &body).member("charges");
    [0, 1].map(|index: usize| charges[index]["remaining"].as_u64().unwrap() + 1)
}

#[test]
fn concurrent_readers_see_only_complete_configurations() {
    let server =
        TestServer::configured("[limits.one]\nrate = \"1/day\"\n[limits.two]\nrate = \"1/day\"\n");
    assert_eq!(server.patch(&change(SETS[0])).status, 200);
    let (writing, seen) = (AtomicUsize::new(WRITERS), [const { AtomicUsize::new(0) }; 2]);
    let failed = AtomicBool::new(false);
    let admin = server.admin();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for round in 0..CHANGES {
                    let response = patch(&server.agent, &admin, "*", &change(SETS[round % 2]));
                    failed.fetch_or(response.status != 200, Ordering::SeqCst);
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reader in 0..READERS {
            let (server, writing, seen) = (&server, &writing, &seen);
            scope.spawn(move || {
                let mut round = 0;
                while writing.load(Ordering::SeqCst) > 0 {
                    let values = shown(server);
                    let which = SETS.iter().position(|set| *set == values);
                    let Some(which) = which else { panic!("half of a change: {values:?}") };
                    seen[which].fetch_add(1, Ordering::SeqCst);
                    let capacities = decided(server, &format!("{reader}-{round}"));
                    let known = SETS.iter().any(|set| set[..2] == capacities);
                    assert!(known, "capacities of two configurations: {capacities:?}");
                    round += 1;
                }
            });
        }
    });
    assert!(!failed.load(Ordering::SeqCst), "a change was refused");
    let seen = seen.map(AtomicUsize::into_inner);
    assert!(seen.iter().all(|count| *count > READERS), "both were seen: {seen:?}");
    // A change to the current values does not count.
    let revision = server.admin_get("/admin/config").member("revision").as_u64().unwrap();
    let (least, most) =
        (u64::try_from(CHANGES).unwrap(), u64::try_from(WRITERS * CHANGES).unwrap());
    assert!((least..=1 + most).contains(&revision), "{revision}");
}
