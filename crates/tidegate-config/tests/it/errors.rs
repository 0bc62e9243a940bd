//! Errors contain position, key, value and rule, and are reported together.

use tidegate_config::{Key, Loader, known_keys};

use crate::error_lines;

#[test]
fn all_errors_are_reported_with_positions() {
    let text = r#"
[listen]
http = "8080"
hosts = ["a"]

[store]
url = "redis+cluster://user:secret@host:6379"
max_memory = "64MB"
overflow = "shred"
on_failure = true
expected_nodes = 0

[limits.client]
capacity = 0
rate = "50/fortnight"
[limits.Organization]
capactiy = 1000
tokens_per_second = -1
[limits.daily]
quota = 10_000
evry = "day"
zone = "Mars/Olympus"
"#;
    assert_eq!(
        error_lines(text),
        [
            "tidegate.toml:3:8: listen.http = \"8080\": must be an address and a port, such as \
             127.0.0.1:8080; port 0 picks a free one",
            "tidegate.toml:4:1: listen.hosts: is not a known key; known keys are http, admin, \
             grpc, resp, allowed_hosts, trusted_proxies",
            "tidegate.toml:7:7: store.url: redis+cluster stores are not supported; use \"memory:\" \
             or a URL such as redis://host:6379 or durable://host",
            "tidegate.toml:8:14: store.max_memory = \"64MB\": must be a size such as 64MiB, \
             512KiB or 1GiB, or a whole number of bytes",
            "tidegate.toml:9:12: store.overflow = \"shred\": must be one of shared, deny",
            "tidegate.toml:10:14: store.on_failure = true: must be one of open, closed, local",
            "tidegate.toml:11:18: store.expected_nodes = 0: must be a whole number >= 1",
            "tidegate.toml:14:12: limits.client.capacity = 0: Rate limit capacity must be >= 1",
            "tidegate.toml:15:8: limits.client.rate = \"50/fortnight\": a rate is written as a \
             number and a unit, such as 50/s, 7/min, 1.5/s, 10000/day or 5/10s",
            "tidegate.toml:16:1: limits.Organization: \"Organization\" is not a limit name: use \
             a lower-case letter, then lower-case letters, digits, _ . or -, at most 128 bytes",
            "tidegate.toml:17:1: limits.Organization.capactiy: is not a known key; did you mean \
             `capacity`?",
            "tidegate.toml:18:21: limits.Organization.tokens_per_second = -1: tokens per second \
             must be > 0",
            "tidegate.toml:19:1: limits.daily.every: is required",
            "tidegate.toml:21:1: limits.daily.evry: is not a known key; did you mean `every`?",
            "tidegate.toml:22:8: limits.daily.zone = \"Mars/Olympus\": \"Mars/Olympus\" is not a \
             time zone: use an IANA name such as UTC or America/Los_Angeles",
        ]
    );
}

#[test]
fn syntax_errors_have_a_position_and_do_not_hide_other_errors() {
    let lines = error_lines("[store]\nurl = memory:\nexpected_nodes = 0\n");
    assert!(lines[0].starts_with("tidegate.toml:2:"), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!(last, "tidegate.toml:3:18: store.expected_nodes = 0: must be a whole number >= 1");
}

#[test]
fn duplicate_key_is_rejected() {
    let lines = error_lines("[store]\nexpected_nodes = 1\nexpected_nodes = 2\n");
    assert_eq!(lines, ["tidegate.toml:3:1: duplicate key"]);
}

#[test]
fn unknown_section_is_rejected() {
    assert_eq!(
        error_lines("[limts.client]\nrate = \"1/s\"\n"),
        ["tidegate.toml:1:2: limts: is not a known key; did you mean `limits`?"]
    );
    assert_eq!(
        error_lines("[envoy]\nconfig_dir = \"x\"\n"),
        ["tidegate.toml:1:2: envoy: is not a known key; known keys are state_dir, listen, \
             store, database, admin, limits, api, admission, gateway, providers, proxy, modules"]
    );
    assert_eq!(
        error_lines("listen = 5\n"),
        ["tidegate.toml:1:10: listen = 5: must be a table of keys and values"]
    );
}

#[test]
fn columns_count_characters() {
    assert_eq!(
        error_lines("[limits.\"ä\"]\nallowance = 1\n"),
        ["tidegate.toml:1:1: limits.\"ä\": \"ä\" is not a limit name: use a lower-case letter, \
          then lower-case letters, digits, _ . or -, at most 128 bytes"]
    );
    assert_eq!(
        error_lines("limits = { \"ä\" = 1 }\n"),
        ["tidegate.toml:1:18: limits.\"ä\" = 1: must be a table of keys and values"]
    );
}

#[test]
fn errors_name_the_variable_or_flag() {
    let error = Loader::default()
        .environment([
            ("TIDEGATE_STORE_URL".to_owned(), "rediss://:secret@host:x".to_owned()),
            ("TIDEGATE_LISTEN_HTTP".to_owned(), "8080".to_owned()),
            ("TIDEGATE_LISTEN_ALLOWED_HOSTS".to_owned(), "a b".to_owned()),
        ])
        .flag(Key::ListenGrpc, "here")
        .text("tidegate.toml", "[store]\nexpected_nodes = \"x\"\n")
        .unwrap_err();
    assert_eq!(
        error.to_string().lines().collect::<Vec<_>>(),
        [
            "tidegate.toml:2:18: store.expected_nodes = \"x\": must be a whole number >= 1",
            "TIDEGATE_LISTEN_HTTP: listen.http = \"8080\": must be an address and a port, such as \
             127.0.0.1:8080; port 0 picks a free one",
            "TIDEGATE_LISTEN_ALLOWED_HOSTS: listen.allowed_hosts = \"a b\": must be a host name \
             or address, with or without a port, such as tidegate.internal",
            "TIDEGATE_STORE_URL: store.url: must have a port from 1 to 65535, or none for the \
             default, 6379",
            "--grpc: listen.grpc = \"here\": must be an address and a port, such as \
             127.0.0.1:8080; port 0 picks a free one",
        ]
    );
}

#[test]
fn too_small_max_memory_is_rejected() {
    assert_eq!(
        error_lines("[store]\nmax_memory = \"512KiB\"\n"),
        ["tidegate.toml:2:14: store.max_memory = \"512KiB\": must be at least 1MiB"]
    );
    assert_eq!(
        error_lines("[store]\nmax_memory = -5\n"),
        ["tidegate.toml:2:14: store.max_memory = -5: must be a size such as 64MiB, 512KiB or \
          1GiB, or a whole number of bytes"]
    );
}

/// Regression: such a size reached the allocation of the table, which panicked.
#[test]
fn too_large_max_memory_is_rejected() {
    let rule = "must be at most 1TiB, and no more than this machine can address";
    for size in ["\"99999999GiB\"", "\"1025GiB\"", "1099511627777", "18446744073709551615"] {
        assert_eq!(
            error_lines(&format!("[store]\nmax_memory = {size}\n")),
            [format!("tidegate.toml:2:14: store.max_memory = {size}: {rule}")]
        );
    }
    let error = Loader::default()
        .environment([("TIDEGATE_STORE_MAX_MEMORY".to_owned(), "2TiB".to_owned())])
        .text("tidegate.toml", "")
        .unwrap_err();
    assert!(error.to_string().ends_with(rule), "{error}");
}

/// Regression: a URL with a password was hidden only at its own key.
#[test]
fn errors_hide_passwords_at_any_key() {
    let address = "redis://gate:hunter2@cache.internal:6379/0";
    let long = format!("redis://gate:{}hunter2@cache.internal", "x".repeat(100));
    let split = "redis://gate:hunter2 and some@more@cache.internal";
    for text in [
        format!("store = \"{address}\"\n"),
        format!("\"{address}\" = 1\n"),
        format!("[store]\nurl = [\"{address}\"]\n"),
        format!("[store]\nurl = {address}\n"),
        format!("[store]\nurl = \"{address}\n"),
        format!("[store]\nurl = '{split}'\n"),
        format!("[store]\nurl = '{address}'\nurl = '{address}'\n"),
        format!("[store]\n\"{address}\" = 1\n"),
        format!("[store]\nmax_memory = \"{address}\"\n"),
        format!("[store]\nmax_memory = \"{long}\"\n"),
        "[store]\noverflow = \":hunter2@host\"\n".to_owned(),
        "[store]\nexpected_nodes = \"gate:hunter2\"\n".to_owned(),
        format!("[listen]\nhttp = \"{address}\"\n"),
        format!("[listen]\nhttp = \"{long}\"\n"),
        format!("[listen]\nallowed_hosts = [\"{address}\"]\n"),
        format!("[limits.client]\nrate = \"{split}\"\n"),
        format!("[limits.\"{address}\"]\nrate = \"1/s\"\n"),
        format!("[limits.\"{long}\"]\nrate = \"1/s\"\n"),
        format!("[limits.\"{split}\"]\nrate = 5\n"),
        format!("[limits.daily]\nquota = 1\nevery = \"day\"\nzone = \"{address}\"\n"),
        format!("[limits.daily]\nquota = 1\nevery = \"{address}\"\nzone = \"UTC\"\n"),
    ] {
        let output = error_lines(&text).join("\n");
        assert!(!output.contains("hunter2") && !output.contains("gate:"), "{text}{output}");
    }
    assert_eq!(
        error_lines(&format!("[limits.\"{address}\"]\nrate = \"1/s\"\n")),
        ["tidegate.toml:1:1: limits.\"...\": \"redis://...@cache.internal:6379/0\" is not a \
             limit name: use a lower-case letter, then lower-case letters, digits, _ . or -, at most \
             128 bytes"]
    );
}

/// Passwords from the environment and from flags are hidden like those of a file.
#[test]
fn errors_hide_passwords_from_environment_and_flags() {
    let address = "redis://gate:hunter2@cache.internal:6379/x";
    // Organizations, models and directories accept any text.
    let free = [
        "state_dir",
        "admission.allow_organizations",
        "providers.*.model",
        "providers.*.models",
        "providers.*.fallback_models.*.*",
    ];
    for key in known_keys().filter(|key| !free.contains(&key.path())) {
        let variable = key.variable().replace('*', "OPENAI");
        let output = Loader::default()
            .environment([(variable.clone(), address.to_owned())])
            .text("tidegate.toml", "")
            .unwrap_err()
            .to_string();
        assert!(output.starts_with(&variable), "{output}");
        assert!(!output.contains("hunter2"), "{output}");
    }
    for key in Key::ALL.into_iter().filter(|key| *key != Key::StateDir) {
        let output = Loader::default()
            .environment([(key.variable().to_owned(), address.to_owned())])
            .flag(key, address)
            .text("tidegate.toml", "")
            .unwrap_err()
            .to_string();
        assert_eq!(output.lines().count(), 2, "a shadowed error is reported too: {output}");
        assert!(!output.contains("hunter2"), "{output}");
    }
    let output =
        Loader::default().flag(Key::StoreUrl, "4711").text("tidegate.toml", "").unwrap_err();
    assert!(!output.to_string().contains("4711"), "a numeric password: {output}");
}

/// Regression: such URLs reached the client, whose login failed without an explanation.
#[test]
fn redis_user_without_a_password_is_rejected_with_a_hint() {
    assert_eq!(
        error_lines("[store]\nurl = \"redis://hunter2@host\"\n"),
        ["tidegate.toml:2:7: store.url: must have a password after the user, as in \
          redis://user:password@host, or neither; for a password without a user write \
          redis://:password@host"]
    );
}
