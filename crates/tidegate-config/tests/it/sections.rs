//! State directory, database, tokens, unused keys and the JSON Schema.

use tidegate_config::{Config, DEFAULT_FILE, DatabaseUrl, Key, Loader, Source, known_keys, schema};

use crate::{config, error_lines, variables, warnings};

fn state_dir(pairs: &[(&str, &str)]) -> String {
    let config = Loader::default().environment(variables(pairs)).text("none", "").unwrap();
    config.state_dir.value.display().to_string()
}

#[test]
fn state_dir_follows_the_environment() {
    assert_eq!(state_dir(&[]), "/var/lib/tidegate");
    assert_eq!(state_dir(&[("HOME", "/users/u")]), "/users/u/.local/state/tidegate");
    let both = [("HOME", "/users/u"), ("XDG_STATE_HOME", "/state")];
    assert_eq!(state_dir(&both), "/state/tidegate");
    let relative = [("HOME", "/users/u"), ("XDG_STATE_HOME", "state")];
    assert_eq!(state_dir(&relative), "/users/u/.local/state/tidegate");
    assert_eq!(state_dir(&[("HOME", "/users/u"), ("TIDEGATE_STATE_DIR", "/s")]), "/s");
    let flag = Loader::default().flag(Key::StateDir, "/f").text("x", "state_dir = \"/t\"\n");
    let flag = flag.unwrap().state_dir;
    assert_eq!((flag.value.display().to_string(), flag.source), ("/f".to_owned(), Source::Flag));
}

#[test]
fn database_url_hides_its_password() {
    let loaded = config("").unwrap();
    assert_eq!(loaded.database.url.value, DatabaseUrl::Sqlite(None));
    assert!(!loaded.database.auto_migrate.value);
    let flags = Loader::default()
        .flag(Key::DatabaseUrl, "postgres://u:hunter2@db/x")
        .flag(Key::DatabaseAutoMigrate, "true")
        .flag(Key::AdminAllowUnauthenticated, "true");
    let loaded = flags.text("x", "[database]\nurl = \"none\"\n").unwrap();
    let DatabaseUrl::Postgres(url) = &loaded.database.url.value else { panic!("{loaded:?}") };
    assert_eq!(url.with_credentials(), "postgres://u:hunter2@db/x");
    assert!(loaded.database.auto_migrate.value && loaded.admin.allow_unauthenticated.value);
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let lines = error_lines("[database]\nurl = \"postgres://u:hunter2@db:x\"\nauto_migrate = 1\n");
    assert_eq!(
        lines,
        [
            "tidegate.toml:2:7: database.url: must have a port from 1 to 65535, or none for the \
             default, 5432",
            "tidegate.toml:3:16: database.auto_migrate = 1: must be true or false",
        ]
    );
}

#[test]
fn tokens_are_hashes() {
    let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let both = format!("{}, {}", hash("a"), hash("B"));
    let environment = variables(&[("TIDEGATE_ADMIN_READ_TOKENS", &both)]);
    let config = Loader::default().environment(environment).text("x", "").unwrap();
    let tokens = &config.admin.read_tokens.value;
    assert_eq!((tokens[0].bytes(), tokens[1].bytes()), (&[0xaa; 32], &[0xbb; 32]));
    for wrong in ["sha256:abc".to_owned(), "a".repeat(64), hash("g"), hash("a") + "a"] {
        let lines = error_lines(&format!("[admin]\nwrite_tokens = [\"{wrong}\"]\n"));
        assert!(lines[0].starts_with(
            "tidegate.toml:2:16: admin.write_tokens: must be token \
                                      hashes"
        ));
    }
}

#[test]
fn default_plan_equals_an_empty_file() {
    let mut empty = config("").unwrap();
    empty.file = None;
    assert_eq!(format!("{empty:?}"), format!("{:?}", Config::default()));
}

/// To update it, run `cargo run -p tidegate-cli -- config schema >
/// crates/tidegate-config/tidegate.schema.json`.
#[test]
fn committed_schema_is_up_to_date() {
    let committed = include_str!("../../tidegate.schema.json");
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert!(
        read(committed) == read(&schema()),
        "the keys have changed: write the output of `tidegate config schema` to \
         crates/tidegate-config/tidegate.schema.json"
    );
}

#[test]
fn schema_covers_every_key() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], false);
    for key in known_keys() {
        let mut at = &schema;
        for part in key.path().split('.') {
            at = if part == "*" { &at["additionalProperties"] } else { &at["properties"][part] };
        }
        assert_eq!(at["description"], key.description(), "{}", key.path());
        assert_eq!(at["x-unused"].as_str(), key.unused_reason(), "{}", key.path());
        assert_eq!(at["x-library"].as_str(), key.library_reason(), "{}", key.path());
    }
    let mode = &schema["properties"]["admission"]["properties"]["mode"];
    assert_eq!(mode["enum"], serde_json::json!(["enforce", "shadow"]));
    assert_eq!(mode["default"], "enforce");
}

/// Setting a key that the program does not use causes a warning in any layer; defaults do not.
#[test]
fn unused_key_is_accepted_with_a_warning() {
    let text = "[listen]\nresp = \"127.0.0.1:6380\"\n[modules.rate_limit]\nenabled = true\n\
                [providers.openai]\nmodel = \"gpt-4o\"\n";
    let unused = "is accepted but not used by this version";
    let library = "is used by the library only";
    let modules =
        "the gateway limits calls by provider: set requests_per_minute under [providers.NAME]";
    let models = "callers name the model in each request";
    assert_eq!(
        warnings(&Loader::default().text_layers("tidegate.toml", text)),
        [
            format!("tidegate.toml:2:8: listen.resp {unused}: there is no RESP listener"),
            format!("tidegate.toml:4:11: modules.rate_limit.enabled {library}: {modules}"),
            format!("tidegate.toml:6:9: providers.openai.model {library}: {models}"),
        ]
    );
    let elsewhere = Loader::default()
        .flag(Key::ListenResp, "127.0.0.1:0")
        .environment(variables(&[("TIDEGATE_PROVIDERS_OPENAI_MODEL", "gpt-4o")]))
        .text_layers("tidegate.toml", "");
    let stored = ("modules.rate_limit.burst_capacity".to_owned(), "5".to_owned());
    assert_eq!(
        warnings(&elsewhere.with_overrides([stored].into_iter().collect())),
        [
            format!("--resp: listen.resp {unused}: there is no RESP listener"),
            format!("TIDEGATE_PROVIDERS_OPENAI_MODEL: providers.openai.model {library}: {models}"),
            format!("database: modules.rate_limit.burst_capacity {library}: {modules}"),
        ]
    );
    assert!(config("").unwrap().warnings.is_empty());
    let copied = config(DEFAULT_FILE).unwrap().warnings;
    let marked =
        known_keys().filter(|key| key.unused_reason().is_some() || key.library_reason().is_some());
    assert_eq!(copied.len(), marked.filter(|key| !key.path().contains('*')).count());
}

#[test]
fn snapshot_requires_the_in_process_store() {
    assert_eq!(config("").unwrap().store.snapshot.value, None);
    assert_eq!(config("[store]\nsnapshot = \"none\"\n").unwrap().store.snapshot.value, None);
    let file = config("[store]\nsnapshot = \"/var/lib/tidegate/buckets\"\n").unwrap();
    assert_eq!(file.store.snapshot.value.unwrap().to_str(), Some("/var/lib/tidegate/buckets"));
    for (text, expected) in [
        (
            "[store]\nurl = \"redis://cache\"\nsnapshot = \"buckets\"\n",
            "tidegate.toml:3:12: store.snapshot = \"buckets\": requires the in-process store \
             (store.url = \"memory:\"); a shared store keeps its buckets across restarts by itself",
        ),
        (
            "[store]\nsnapshot = \"\"\n",
            "tidegate.toml:2:12: store.snapshot = \"\": must be the path of a file, or \"none\"",
        ),
        (
            "[store]\nsnapshot = true\n",
            "tidegate.toml:2:12: store.snapshot = true: must be the path of a file, or \"none\"",
        ),
    ] {
        assert_eq!(error_lines(text), [expected]);
    }
}
