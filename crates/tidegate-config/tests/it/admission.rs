//! The section `[admission]`, and the limits that are its tiers.

use tidegate::Policy;
use tidegate::admission::Rules;
use tidegate_config::{Loader, Source};

use crate::{config, error_lines};

#[test]
fn default_admission_matches_default_rules() {
    let config = config("").unwrap();
    assert!(config.admission.enabled.value);
    let rules = config.admission.rules(&config.limits);
    assert_eq!(rules, Rules::default());
}

#[test]
fn tiers_are_the_limits_named_client_and_organization() {
    let text = r#"
[admission]
enabled = false
backpressure_threshold = 250
jitter_percent = 25
mode = "shadow"
allow_organizations = ["probes", "billing"]
allow_clients = ["acme/nightly-export", "initech/alice"]
missing_client = "connection"
[limits.client]
capacity = 7
rate = "3/s"
[limits.daily]
quota = 10
every = "day"
"#;
    let config = config(text).unwrap();
    assert!(!config.admission.enabled.value);
    assert!(config.admission.is_shadow.value);
    assert_eq!(config.admission.jitter_percent.source, Source::File);
    let rules = config.admission.rules(&config.limits);
    assert_eq!(rules.threshold(), Some(250));
    let client = Policy::per_second(3).capacity(7).build().unwrap();
    assert_eq!(rules.client_policy(), Some(&client));
    assert_eq!(rules.organization_policy(), None, "limits of a file replace the default limits");
    let expected = Rules::none()
        .backpressure(250)
        .client(client)
        .jitter_percent(config.admission.jitter_percent.value)
        .shadow(true)
        .limit_connections(true)
        .allow_organization("probes")
        .allow_organization("billing")
        .allow_client("acme", "nightly-export")
        .allow_client("initech", "alice");
    assert_eq!(rules, expected);
}

#[test]
fn every_key_can_be_set_by_a_variable() {
    let variables = [
        ("TIDEGATE_ADMISSION_ENABLED", "false"),
        ("TIDEGATE_ADMISSION_BACKPRESSURE_THRESHOLD", "9"),
        ("TIDEGATE_ADMISSION_JITTER_PERCENT", "10"),
        ("TIDEGATE_ADMISSION_MODE", "shadow"),
        ("TIDEGATE_ADMISSION_ALLOW_ORGANIZATIONS", "probes, billing"),
        ("TIDEGATE_ADMISSION_ALLOW_CLIENTS", "acme/nightly-export, acme/alice"),
        ("TIDEGATE_ADMISSION_MISSING_CLIENT", "connection"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Loader::default().environment(variables).text("none", "").unwrap();
    let admission = &config.admission;
    assert!(!admission.enabled.value && admission.enabled.source == Source::Environment);
    assert_eq!(admission.backpressure_threshold.value.get(), 9);
    assert_eq!(admission.jitter_percent.value, 10);
    assert!(admission.is_shadow.value);
    assert_eq!(admission.allow_organizations.value, ["probes", "billing"]);
    let clients: Vec<_> = admission.allow_clients.value.iter().map(|it| &*it.client).collect();
    assert_eq!(clients, ["nightly-export", "alice"]);
    assert!(admission.charges_connections.value);
}

#[test]
fn errors_carry_their_position() {
    let text = r#"
[admission]
enabled = "yes"
backpressure_threshold = 0
jitter_percent = 101
mode = "dark"
allow = []
[limits.client]
allowance = 3
[limits.organization]
quota = 10
every = "day"
"#;
    let tier = "is a tier of [admission] and must be a token bucket: set capacity and rate";
    assert_eq!(
        error_lines(text),
        [
            "tidegate.toml:3:11: admission.enabled = \"yes\": must be true or false".to_owned(),
            "tidegate.toml:4:26: admission.backpressure_threshold = 0: must be a whole number \
             between 1 and 4294967295"
                .to_owned(),
            "tidegate.toml:5:18: admission.jitter_percent = 101: must be a whole number between 0 \
             and 100"
                .to_owned(),
            "tidegate.toml:6:8: admission.mode = \"dark\": must be one of enforce, shadow"
                .to_owned(),
            "tidegate.toml:7:1: admission.allow: is not a known key; did you mean \
             `allow_clients`?"
                .to_owned(),
            format!("tidegate.toml:8:1: limits.client: {tier}"),
            format!("tidegate.toml:10:1: limits.organization: {tier}"),
        ]
    );
    // It is also an error if another layer configures admission.
    let variables = [("TIDEGATE_ADMISSION_MODE".to_owned(), "shadow".to_owned())];
    let limits_only = "[limits.client]\nallowance = 3\n";
    let loaded = Loader::default().environment(variables).text("tidegate.toml", limits_only);
    assert_eq!(
        loaded.unwrap_err().to_string(),
        format!("tidegate.toml:1:1: limits.client: {tier}")
    );
    let config = config(limits_only).unwrap();
    assert_eq!(
        config.admission.rules(&config.limits).client_policy(),
        None,
        "without the section it is not a tier"
    );
}

/// Client ids are unique only within an organization, so an ambiguous entry could admit another
/// client.
#[test]
fn allowed_client_requires_its_organization() {
    for client in ["alice", "acme/", "/alice", "acme/team/alice", ""] {
        let text = format!("[admission]\nallow_clients = [\"{client}\"]\n");
        let lines = error_lines(&text);
        assert!(lines[0].contains("each as organization/client"), "{client}: {lines:?}");
    }
    let lines = error_lines("[admission]\nmissing_client = \"reject\"\n");
    assert!(lines[0].ends_with("must be one of skip, connection"), "{lines:?}");
}

#[test]
fn limit_that_cannot_be_a_tier_causes_a_warning() {
    let config = config("[limits.client]\nallowance = 3\n").unwrap();
    let lines: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        ["limits.client is not used as an admission tier: a tier must be a token bucket with \
          capacity and rate"]
    );
}
