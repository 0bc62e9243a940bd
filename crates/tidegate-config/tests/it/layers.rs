//! Precedence of defaults, file, environment and flags, and the reported source.

use std::fs;

use tidegate::FailureRule;
use tidegate_config::{ByteSize, Config, ConfigError, Key, Loader, Source, StoreUrl};

use crate::{config, variables};

fn limit_names(config: &Config) -> Vec<&str> {
    config.limits.by_name.keys().map(String::as_str).collect()
}

#[test]
fn defaults_work_without_a_file() {
    let nowhere = tempfile::tempdir().unwrap();
    let config = Loader::default().working_directory(nowhere.path()).load().unwrap();
    assert_eq!(config.file, None);
    assert_eq!(config.listen.http.value.to_string(), "127.0.0.1:8080");
    assert_eq!(config.listen.admin.value.to_string(), "127.0.0.1:6070");
    assert_eq!(config.listen.grpc.value.to_string(), "127.0.0.1:8081");
    assert_eq!(config.listen.resp.value.to_string(), "127.0.0.1:6380");
    assert!(config.listen.allowed_hosts.value.is_empty());
    assert_eq!(config.store.max_memory.value.to_string(), "64MiB");
    assert_eq!(config.store.on_failure.value, FailureRule::Local);
    assert_eq!(config.store.expected_nodes.value.get(), 1);
    assert_eq!(config.store.url.source, Source::Default);
    assert_eq!(limit_names(&config), ["client", "organization"]);
    let client = config.limits.by_name["client"].limit.policy().fingerprint();
    assert_eq!(client, "bucket 100 1/20000000ns 100 3600000000000");
    let organization = config.limits.by_name["organization"].limit.policy().fingerprint();
    assert_eq!(organization, "bucket 1000 1/2000000ns 1000 3600000000000");
}

#[test]
fn limits_in_a_file_replace_the_default_limits() {
    let replaced = config("[limits.api]\nrate = \"5/s\"\n").unwrap();
    assert_eq!((limit_names(&replaced), replaced.limits.source), (vec!["api"], Source::File));
    let emptied = config("[limits]\n").unwrap();
    assert!(limit_names(&emptied).is_empty());
    let kept = config("[listen]\nhttp = \"127.0.0.1:9000\"\n").unwrap();
    assert_eq!(limit_names(&kept), ["client", "organization"]);
    assert_eq!(kept.limits.source, Source::Default);
}

#[test]
fn flags_override_environment_override_file_override_defaults() {
    let text = r#"
        [listen]
        http = "127.0.0.1:1001"
        admin = "127.0.0.1:1002"
        grpc = "localhost:1003"
        [store]
        max_memory = 2097152
    "#;
    let environment = variables(&[
        ("TIDEGATE_LISTEN_HTTP", "127.0.0.1:2001"),
        ("TIDEGATE_LISTEN_ADMIN", "127.0.0.1:2002"),
        ("TIDEGATE_LISTEN_ALLOWED_HOSTS", "tidegate.internal, Gate.Example.org:8443, ::1"),
        ("TIDEGATE_STORE_EXPECTED_NODES", "3"),
        ("TIDEGATE_STORE_ON_FAILURE", "closed"),
        ("HOME", "/nonexistent"),
    ]);
    let config = Loader::default()
        .environment(environment)
        .flag(Key::ListenHttp, "127.0.0.1:0")
        .text("tidegate.toml", text)
        .unwrap();
    let shown = |setting: &tidegate_config::Setting<std::net::SocketAddr>| {
        format!("{} ({})", setting.value, setting.source)
    };
    assert_eq!(shown(&config.listen.http), "127.0.0.1:0 (flag)");
    assert_eq!(shown(&config.listen.admin), "127.0.0.1:2002 (environment)");
    assert_eq!(shown(&config.listen.grpc), "127.0.0.1:1003 (file)");
    assert_eq!(shown(&config.listen.resp), "127.0.0.1:6380 (default)");
    assert_eq!(config.store.max_memory.value, ByteSize::from_bytes(2 << 20));
    assert_eq!(config.store.expected_nodes.value.get(), 3);
    assert_eq!(config.store.on_failure.source, Source::Environment);
    let hosts: Vec<_> = config.listen.allowed_hosts.value.iter().collect();
    assert_eq!((hosts[0].host(), hosts[0].port()), ("tidegate.internal", None));
    assert_eq!((hosts[1].host(), hosts[1].port()), ("gate.example.org", Some(8443)));
    assert_eq!((hosts[2].host(), hosts[2].port()), ("[::1]", None));
}

#[test]
fn redis_url_hides_its_credentials() {
    let text = "[store]\nurl = \"rediss://gate:secret@cache:7000/3\"\n";
    let loaded = config(text).unwrap();
    let StoreUrl::Redis(url) = &loaded.store.url.value else { panic!("{loaded:?}") };
    assert_eq!(url.with_credentials(), "rediss://gate:secret@cache:7000/3");
    assert!(!format!("{loaded:?}").contains("secret"));
    assert!(!format!("{loaded:?}").contains("gate:"));
    let flag = Loader::default().flag(Key::StoreUrl, "redis://:secret@cache").text("x", text);
    let flag = flag.unwrap();
    assert_eq!(flag.store.url.source, Source::Flag);
    assert!(matches!(&flag.store.url.value, StoreUrl::Redis(url) if !url.tls()));
}

#[test]
fn file_is_searched_in_working_directory_then_config_home() {
    let (here, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let loader = || {
        let home = home.path().to_str().unwrap();
        Loader::default()
            .working_directory(here.path())
            .environment(variables(&[("XDG_CONFIG_HOME", home)]))
    };
    assert_eq!(loader().load().unwrap().file, None);
    let system = home.path().join("tidegate").join("tidegate.toml");
    fs::create_dir(system.parent().unwrap()).unwrap();
    fs::write(&system, "[limits.system]\nallowance = 5\n").unwrap();
    let config = loader().load().unwrap();
    assert_eq!((limit_names(&config), config.file.as_ref()), (vec!["system"], Some(&system)));
    let local = here.path().join("tidegate.toml");
    fs::write(&local, "[limits.local]\nallowance = 5\n").unwrap();
    assert_eq!(limit_names(&loader().load().unwrap()), ["local"]);
    assert_eq!(limit_names(&loader().file(&system).load().unwrap()), ["system"]);
}

#[test]
fn named_file_must_exist() {
    let error = Loader::default().file("/nonexistent/tidegate.toml").load().unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    let text = error.to_string();
    assert!(text.starts_with("/nonexistent/tidegate.toml: No such file"), "{text}");
}

#[test]
fn misspelled_variable_gets_a_suggestion() {
    let environment = variables(&[
        ("TIDEGATE_STORE_URI", "memory:"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_LOG", "debug"),
        ("TIDEGATE_STORE_URL", "memory:"),
    ]);
    let config = Loader::default().environment(environment).text("tidegate.toml", "").unwrap();
    let hints: Vec<_> = config.unknown_variables.iter().map(ToString::to_string).collect();
    assert_eq!(
        hints,
        ["TIDEGATE_STORE_URI is set but is not a known variable; did you mean \
                        TIDEGATE_STORE_URL?"]
    );
}
