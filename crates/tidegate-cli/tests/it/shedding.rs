//! Admission: rejected, shadowed and allow-listed requests, as counted in `/metrics`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::program::{Serving, serve};

const LIMITS: &str = "[limits.client]\ncapacity = 1\nrate = \"1/day\"\n\
                      [limits.organization]\ncapacity = 3\nrate = \"1/day\"\n";

fn serving(directory: &Path, admission: &str) -> Serving {
    let text = format!("{LIMITS}[admission]\n{admission}");
    fs::write(directory.join("tidegate.toml"), text).unwrap();
    Serving::start(&mut serve(directory, &[]))
}

/// Requests admission and returns the status and the rejected id.
fn admit(serving: &Serving, body: &str) -> (u16, Value) {
    let (status, answer) = serving.post("/v1/admit", body);
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    (status, answer["id"].take())
}

fn change(serving: &Serving, admission: &Value) {
    let (status, body) = serving.patch(&json!({"admission": admission}));
    assert_eq!(status, 200, "{body}");
}

/// Returns the count of an outcome per tier: backpressure, client, organization.
fn counts(serving: &Serving, outcome: &str) -> [u64; 3] {
    let (status, text) = serving.ask("/metrics");
    assert_eq!(status, 200);
    ["backpressure", "client", "organization"].map(|tier| {
        let series = format!("tidegate_admissions_total{{tier=\"{tier}\",outcome=\"{outcome}\"}} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&series));
        found.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
    })
}

fn gauges(serving: &Serving) -> [String; 2] {
    let (_, text) = serving.ask("/metrics");
    ["tidegate_admission_pending ", "tidegate_admission_backpressure_threshold "].map(|gauge| {
        let found = text.lines().find_map(|line| line.strip_prefix(gauge));
        found.unwrap_or_else(|| panic!("{gauge} in {text}")).to_owned()
    })
}

/// Rejections, shadow rejections and allow-listed requests are counted separately.
///
/// Setting: admission.allow_clients
#[test]
fn admissions_are_counted_by_tier_and_outcome() {
    let here = tempfile::tempdir().unwrap();
    let lists = "backpressure_threshold = 5\nallow_organizations = [\"probes\"]\n\
                 allow_clients = [\"acme/export\"]\n";
    let serving = serving(here.path(), lists);
    let client = |id: &str| format!(r#"{{"organization":"acme","client":"{id}"}}"#);
    assert_eq!(
        counts(&serving, "rejected"),
        [0, 0, 0],
        "the series exist before the first rejection"
    );
    let statuses = ["a", "a", "b", "c", "d"].map(|id| admit(&serving, &client(id)).0);
    assert_eq!(statuses, [200, 429, 200, 200, 429]);
    assert_eq!(counts(&serving, "admitted"), [3, 3, 3]);
    assert_eq!(counts(&serving, "rejected"), [0, 1, 1]);
    assert_eq!(serving.put("/v1/pending", r#"{"value":6,"ttl_ms":600000}"#).0, 200);
    assert_eq!(gauges(&serving), ["6", "5"]);
    assert_eq!(admit(&serving, &client("e")).0, 429);
    assert_eq!(counts(&serving, "rejected"), [1, 1, 1]);
    // Allow-listed clients are admitted even under backpressure.
    assert_eq!(admit(&serving, &client("export")).0, 200);
    assert_eq!(admit(&serving, r#"{"organization":"probes","client":"x"}"#).0, 200);
    assert_eq!(counts(&serving, "allow_listed"), [0, 1, 1]);
    // The same client id in another organization is another client.
    let elsewhere = r#"{"organization":"initech","client":"export"}"#;
    assert_eq!(admit(&serving, elsewhere).0, 429);
    change(&serving, &json!({"mode": "shadow"}));
    assert_eq!(admit(&serving, &client("e")).0, 200);
    assert_eq!(serving.put("/v1/pending", r#"{"value":0}"#).0, 200);
    assert_eq!(["a", "e"].map(|id| admit(&serving, &client(id)).0), [200, 200]);
    assert_eq!(counts(&serving, "shadow"), [1, 1, 1]);
    assert_eq!(
        counts(&serving, "admitted"),
        [3, 3, 3],
        "shadow rejections do not count as admitted"
    );
    change(&serving, &json!({"enabled": false}));
    assert_eq!(admit(&serving, &client("a")).0, 200);
    assert_eq!(counts(&serving, "admitted"), [3, 3, 3], "nothing is counted while disabled");
}

/// R414: depending on the setting, the tier is skipped or the connection is charged.
///
/// Setting: admission.missing_client
#[test]
fn request_without_a_client_follows_its_setting() {
    let here = tempfile::tempdir().unwrap();
    let serving = serving(here.path(), "missing_client = \"connection\"\n");
    let over = |connection: &str| {
        admit(&serving, &format!(r#"{{"organization":"o1","connection":"{connection}"}}"#))
    };
    assert_eq!(over("c1").0, 200);
    assert_eq!(over("c1"), (429, "c1".into()));
    assert_eq!(over("c2").0, 200, "another connection has its own bucket");
    // Without a connection id, the peer address is used.
    let nameless = r#"{"organization":"o2"}"#;
    assert_eq!(admit(&serving, nameless).0, 200);
    assert_eq!(admit(&serving, nameless), (429, "127.0.0.1".into()));
    // A client whose id equals the address has a different bucket.
    let named = r#"{"organization":"o2","client":"127.0.0.1"}"#;
    assert_eq!(admit(&serving, named).0, 200);
    change(&serving, &json!({"missing_client": "skip"}));
    assert_eq!(admit(&serving, nameless).0, 200, "only the organization is charged");
    assert_eq!(admit(&serving, nameless), (429, "o2".into()));
    let (status, body) = serving.patch(&json!({"admission": {"missing_client": "reject"}}));
    assert_eq!((status, body.contains("must be one of skip, connection")), (422, true), "{body}");
}
