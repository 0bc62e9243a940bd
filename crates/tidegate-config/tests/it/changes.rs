//! Changes at run time: patches, their result, and how changes are shown.

use std::fs;

use tidegate_config::{
    EffectiveSetting, Key, Loader, MAX_CHANGES, MAX_KEY_CHARS, MAX_SETTINGS, Overrides, Patch,
    Source, diff, known_keys,
};

use crate::config;

fn check_errors(patch: &Patch) -> Vec<String> {
    let error = patch.check().unwrap_err().to_string();
    error.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn merge_patch_sets_and_unsets() {
    let before: Overrides = [
        ("limits.client.rate", "\"5/s\""),
        ("limits.client.max_debt", "7"),
        ("limits.client-x.rate", "\"6/s\""),
        ("admission.mode", "\"shadow\""),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    let body = br#"{ "limits": { "client": { "rate": "9/s", "max_debt": null }, "a.b": { "allowance": 5 } },
        "admission": null, "providers": {} }"#;
    let patch = Patch::from_json(body).unwrap();
    patch.check().unwrap();
    let after = patch.apply(&before);
    assert_eq!(
        after.iter().collect::<Vec<_>>(),
        [
            ("limits.\"a.b\".allowance", "5"),
            ("limits.client-x.rate", "\"6/s\""),
            ("limits.client.rate", "\"9/s\""),
        ]
    );
    let differences: Vec<_> = patch.difference(&before);
    let differences: Vec<_> =
        differences.iter().map(|(key, it)| (key.as_str(), it.as_deref())).collect();
    assert_eq!(
        differences,
        [
            ("admission.mode", None),
            ("limits.client.max_debt", None),
            ("limits.\"a.b\".allowance", Some("5")),
            ("limits.client.rate", Some("\"9/s\"")),
        ]
    );
    let changes: Vec<_> = patch.changes().map(|(key, _)| key).collect();
    assert_eq!(
        changes,
        ["admission", "limits.\"a.b\".allowance", "limits.client.max_debt", "limits.client.rate"]
    );
}

#[test]
fn invalid_merge_patch_is_rejected() {
    for (body, expected) in [
        (&b"[]"[..], "must be a table of keys and values"),
        (b"5", "must be a table of keys and values"),
        (b"{", "is not JSON"),
        (
            br#"{"limits":{"a":{"rate":"1/s","rate":"2/s"}}}"#,
            "limits.a.rate = \"2/s\": is given twice",
        ),
    ] {
        let error = Patch::from_json(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let many: Vec<_> = (0..=MAX_CHANGES).map(|n| format!("\"l{n}\":{{\"allowance\":1}}")).collect();
    let many = format!("{{\"limits\":{{{}}}}}", many.join(","));
    let error = Patch::from_json(many.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, "change: must change at most 4096 keys at once");
}

#[test]
fn listeners_stores_databases_and_tokens_are_rejected_from_the_database() {
    let text = |key: &str| key.replace('*', "openai");
    let mut fixed = Vec::new();
    for key in known_keys() {
        let path = text(key.path());
        let stored = [(path.clone(), "\"x\"".to_owned())];
        let layers = Loader::default().text_layers("none", "");
        let result = layers.with_overrides(stored.into_iter().collect()).validate();
        let errors = result.err().map_or(String::new(), |error| error.to_string());
        let never = format!("database: {path}: cannot be set in the database: ");
        assert_eq!(errors.contains(&never), !key.is_operational(), "{errors}");
        if !key.is_operational() {
            let patch = Patch::default().set(&path, "x");
            assert!(check_errors(&patch)[0].starts_with(&format!("change: {path}: cannot be set")));
            fixed.push(path);
        }
    }
    for section in ["listen.", "store.", "database.", "admin.", "state_dir"] {
        assert!(fixed.iter().any(|path| path.starts_with(section)), "{section}");
    }
    for key in ["base_url", "api_key_env", "dialect"] {
        assert!(fixed.contains(&format!("providers.openai.{key}")), "{key}");
    }
    assert!(fixed.iter().all(|path| !path.starts_with("limits.")));
}

#[test]
fn all_errors_of_a_change_are_reported_by_key() {
    let patch = Patch::default()
        .set("providers.openai.max_concurrent_requests", "101")
        .set("providers.openai.max_retries", "-1")
        .set("limits.client.rate", "fast")
        .set("limits.client.rtae", "5/s")
        .set("limit.client.rate", "5/s")
        .set("limits", "5")
        .set("a..b", "5")
        .set("providers.openai.models", &format!("[\"{}\"]", "x".repeat(20_000)))
        .unset("limits.gone.rate");
    assert_eq!(
        check_errors(&patch),
        [
            "change: \"a..b\": is not a key path such as limits.client.rate",
            "change: limit.client.rate = \"5/s\": is not a known key; did you mean `limits`?",
            "change: limits = \"5\": is not a key path such as limits.client.rate",
            "change: limits.client.rate = \"fast\": a rate is written as a number and a unit, \
             such as 50/s, 7/min, 1.5/s, 10000/day or 5/10s",
            "change: limits.client.rtae = \"5/s\": is not a known key; did you mean `rate`?",
            "change: providers.openai.max_concurrent_requests = 101: must be a whole number \
             between 1 and 100",
            "change: providers.openai.max_retries = -1: must be a whole number between 0 and 20",
            "change: providers.openai.models: must have at most 16384 characters",
        ]
    );
}

#[test]
fn invalid_stored_settings_are_reported_with_other_errors() {
    let stored = [
        ("limits.client.rate", "\"fast\""),
        ("limits.client.rtae", "5"),
        ("not a path.", "5"),
        ("admission.mode", "{"),
    ];
    let stored = stored.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let layers = Loader::default().text_layers("tidegate.toml", "[store]\noverflow = 5\n");
    let error =
        layers.with_overrides(stored.into_iter().collect()).validate().unwrap_err().to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 5, "{error}");
    assert!(lines[0].starts_with("tidegate.toml:2:12: store.overflow = 5"), "{error}");
    assert!(lines[1..].iter().all(|line| line.starts_with("database: ")), "{error}");
}

#[test]
fn invalid_value_is_reported_even_if_shadowed() {
    let text = "[limits.client]\nrate = \"fast\"\ncapacity = 5\n[admission]\nmode = \"dark\"\n";
    let layers = Loader::default().text_layers("tidegate.toml", text);
    let patch = Patch::default().set("limits.client.rate", "5/s").set("admission.mode", "shadow");
    let error = layers.with_overrides(patch.apply(layers.overrides())).validate().unwrap_err();
    let lines: Vec<_> = error.violations().iter().map(ToString::to_string).collect();
    assert!(lines[0].starts_with("tidegate.toml:2:8: limits.client.rate = \"fast\""), "{error}");
    assert!(lines[1].starts_with("tidegate.toml:5:8: admission.mode = \"dark\""), "{error}");
}

#[test]
fn reread_uses_the_same_lookup() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path().join("tidegate.toml");
    let layers = Loader::default().working_directory(here.path()).layers().unwrap();
    assert_eq!(layers.file(), None);
    fs::write(&path, "[limits.api]\nrate = \"5/s\"\n").unwrap();
    let layers = layers.reload_file().unwrap();
    assert_eq!(layers.file(), Some(path.as_path()));
    assert!(layers.validate().unwrap().limits.by_name.contains_key("api"));
    fs::write(&path, "[limits.api]\nrate = fast\n").unwrap();
    assert!(layers.reload_file().unwrap().validate().is_err());
    assert!(layers.validate().is_ok(), "existing layers do not change");
    let patch_with_key_length = Loader::default().file(&path).layers().unwrap();
    fs::remove_file(&path).unwrap();
    assert!(patch_with_key_length.reload_file().is_err(), "a named file must exist");
    assert_eq!(layers.reload_file().unwrap().file(), None);
}

fn effective_value<'e>(effective: &'e [EffectiveSetting], key: &str) -> &'e str {
    effective.iter().find(|it| it.key == key).map_or("", |it| it.value.as_str())
}

#[test]
fn effective_settings_hide_secrets() {
    let hash = format!("sha256:ab12{}", "dead".repeat(15));
    let text = format!(
        "[store]\nurl = \"redis://gate:hunter2@cache/3\"\n[database]\nurl = \
         \"postgres://gate:hunter2@db/limits?sslmode=require\"\n[admin]\nwrite_tokens = \
         [\"{hash}\"]\n"
    );
    let loader = Loader::default().flag(Key::StoreUrl, "redis://gate:hunter2@cache/3");
    let layers = loader.text_layers("tidegate.toml", &text);
    let effective = layers.effective();
    assert_eq!(effective_value(&effective, "store.url"), "\"redis://cache:6379/3\"");
    assert_eq!(effective_value(&effective, "database.url"), "\"postgres://db:5432/limits\"");
    assert_eq!(effective_value(&effective, "admin.write_tokens"), "[\"sha256:ab12…\"]");
    let all =
        format!("{}{:?}{layers:?}", serde_json::to_string(&effective).unwrap(), layers.validate());
    assert!(!all.contains("hunter2") && !all.contains("dead"), "{all}");
    let broken = Loader::default().text_layers("x", "[store]\nurl = \"redis://hunter2@cache\"\n");
    assert_eq!(effective_value(&broken.effective(), "store.url"), "\"...\"");
    let token = config("[admin]\nread_tokens = [\"hunter2\"]\n").unwrap_err().to_string();
    assert!(token.contains("tidegate key") && !token.contains("hunter2"), "{token}");
}

#[test]
fn effective_settings_are_in_file_order_with_positions() {
    let layers = Loader::default().text_layers(
        "tidegate.toml",
        "[limits.b]\nrate = \"1/s\"\n[limits.a]\nallowance = 5\non_failure = \"open\"\n",
    );
    let effective = layers.effective();
    let keys: Vec<_> = effective.iter().map(|it| it.key.as_str()).collect();
    assert!(keys.starts_with(&["state_dir", "listen.http", "listen.admin"]), "{keys:?}");
    let limits: Vec<_> = keys.iter().filter(|key| key.starts_with("limits.")).copied().collect();
    assert_eq!(limits, ["limits.a.allowance", "limits.a.on_failure", "limits.b.rate"]);
    let rate = effective.iter().find(|it| it.key == "limits.b.rate").unwrap();
    assert_eq!(rate.place.as_deref(), Some("tidegate.toml:2:8"));
    let json = serde_json::json!({ "key": "limits.b.rate", "value": "1/s", "source": "file" });
    assert_eq!(serde_json::to_value(rate).unwrap(), json, "the admin API does not show file paths");
}

#[test]
fn effective_setting_serializes_shadowed_and_configured_values() {
    let layers =
        Loader::default().text_layers("x", "[limits.client]\nrate = \"40/s\"\n").with_overrides(
            [("limits.client.rate", "\"20/s\""), ("providers.openai.max_retries", "\"many\"")]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        );
    let json = |key: &str| {
        let effective = layers.effective();
        serde_json::to_string(effective.iter().find(|it| it.key == key).unwrap()).unwrap()
    };
    assert_eq!(
        json("limits.client.rate"),
        r#"{"key":"limits.client.rate","value":"20/s","source":"database","shadowed":[{"source":"file","value":"40/s"}]}"#
    );
    assert_eq!(
        json("providers.openai.max_retries"),
        r#"{"key":"providers.openai.max_retries","value":8,"source":"database","configured":"many"}"#
    );
}

#[test]
fn diff_is_by_key_and_restart_settings_are_listed() {
    let before = Loader::default()
        .text_layers("x", "[limits.a]\nrate = \"1/s\"\n[limits.b]\nallowance = 1\n");
    let after = Loader::default().text_layers(
        "x",
        "[limits.a]\nrate = \
                                                    \"2/s\"\n[limits.c]\nallowance = \
                                                    1\n[listen]\nhttp = \
                                                    \"127.0.0.1:1\"\n[store]\nurl = \
                                                    \"redis://h\"\n[admin]\nallow_unauthenticated \
                                                    = true\n",
    );
    let changed = diff(&before.effective(), &after.effective());
    let changed: Vec<_> =
        changed.iter().map(|it| (it.key.as_str(), it.old.as_deref(), it.new.as_deref())).collect();
    assert_eq!(
        changed,
        [
            ("listen.http", Some("\"127.0.0.1:8080\""), Some("\"127.0.0.1:1\"")),
            ("store.url", Some("\"memory:\""), Some("\"redis://h:6379/0\"")),
            ("admin.allow_unauthenticated", Some("false"), Some("true")),
            ("limits.a.rate", Some("\"1/s\""), Some("\"2/s\"")),
            ("limits.c.allowance", None, Some("1")),
            ("limits.b.allowance", Some("1"), None),
        ]
    );
    let (before, after) = (before.validate().unwrap(), after.validate().unwrap());
    assert_eq!(before.needs_restart(&after), ["listen.http", "store.url"]);
    assert!(before.needs_restart(&before).is_empty());
}

/// The store is built once, so a new number of shards must not be reported as applied.
#[test]
fn number_of_shards_waits_for_a_restart() {
    let read = |text: &str| Loader::default().text_layers("x", text).validate().unwrap();
    let (before, after) = (read(""), read("[store]\nshards = 64\n"));
    assert_eq!(before.needs_restart(&after), ["store.shards"]);
}

/// The database accepts every change that a patch accepts: both count characters.
#[test]
fn change_has_the_bounds_of_the_database() {
    let patch_with_key_length = |length: usize| {
        let name = "\u{fc}".repeat(length - "limits..rate".len());
        Patch::default().set(&format!("limits.{name}.rate"), "1/s")
    };
    assert!(patch_with_key_length(MAX_KEY_CHARS).check().is_ok());
    assert_eq!(check_errors(&patch_with_key_length(MAX_KEY_CHARS + 1)).len(), 1);
    let all = (0..MAX_CHANGES).fold(Patch::default(), |patch, number| {
        patch.set(&format!("limits.l{number}.rate"), "1/s")
    });
    assert!(all.check().is_ok());
    assert!(all.clone().unset("limits.one_more").check().is_err());
    // A whole section can be unset, whatever its size.
    let stored = all.apply(&Overrides::new());
    assert_eq!(stored.iter().count(), MAX_SETTINGS);
    assert_eq!(Patch::default().unset("limits").difference(&stored).len(), MAX_CHANGES);
}

#[test]
fn error_can_be_rendered_without_its_key() {
    let render = |body: &[u8]| {
        let error = Patch::from_json(body).and_then(|patch| patch.check()).unwrap_err();
        (error.to_string(), error.violations()[0].without_key())
    };
    let (with_key, without_key) = render(b"null");
    assert_eq!(with_key, "change: null: must be a table of keys and values");
    assert_eq!(without_key, "must be a table of keys and values (change: null)");
    let (with_key, without_key) = render(br#"{"admission":{"enabled":7}}"#);
    assert_eq!(with_key, "change: admission.enabled = 7: must be true or false");
    assert_eq!(without_key, "must be true or false (change: 7)");
}

#[test]
fn section_filter_matches_whole_names() {
    let text = "[limits.client]\nrate = \"1/s\"\n[limits.clients]\nrate = \"1/s\"\n";
    let effective = Loader::default().text_layers("tidegate.toml", text).effective();
    let count = |part: &str| effective.iter().filter(|one| one.is_in(part)).count();
    assert_eq!((count("limits.client"), count("limits.client.")), (1, 1));
    assert_eq!((count("limits.client.rate"), count("limits.clie")), (1, 0));
    assert_eq!((count("limits"), count("client")), (2, 0));
    assert_eq!(count(""), effective.len());
}

/// Arbitrary text ends up in logs, and may be an API key in the wrong place.
#[test]
fn diff_truncates_long_text_and_hides_keys() {
    let layers = Loader::default().text_layers("tidegate.toml", "");
    let (key, long) = ("sk-proj-hunter2hunter2hunter2", "m".repeat(1_000));
    let patch = Patch::default()
        .set("providers.openai.tier", key)
        .set("providers.openai.models", &format!("[\"gpt-4o\",\"{key}\",\"{long}\"]"));
    let after = layers.with_overrides(patch.apply(&Overrides::new()));
    let changed = diff(&layers.effective(), &after.effective());
    let new: Vec<_> = changed.iter().map(|it| (it.key.as_str(), it.new.as_deref())).collect();
    let models = format!("[\"gpt-4o\",\"...\",\"{}…\"]", "m".repeat(64));
    assert!(new.contains(&("providers.openai.tier", Some("\"...\""))), "{new:?}");
    assert!(new.contains(&("providers.openai.models", Some(&models))), "{new:?}");
    let settings = format!("{:?}", after.effective());
    assert!(!settings.contains("hunter2"), "{settings}");
}

/// 64 and 77 are both capped at 32, but the configured values differ.
#[test]
fn change_to_a_capped_value_is_still_a_change() {
    const KEY: &str = "providers.openai.max_concurrent_requests";
    let layers = Loader::default().text_layers("none", "");
    let configured =
        |text| layers.with_overrides(Patch::default().set(KEY, text).apply(&Overrides::new()));
    let (first, second) = (configured("64"), configured("77"));
    let changed = diff(&first.effective(), &second.effective());
    let [one] = &changed[..] else { panic!("{changed:?}") };
    let fields =
        (one.key.as_str(), one.old.as_deref(), one.new.as_deref(), one.configured.as_deref());
    assert_eq!(fields, (KEY, Some("32"), Some("32"), Some("77")));
    assert!(diff(&second.effective(), &configured("77").effective()).is_empty());
    // The same value from another layer is a change too: it survives a change of the file.
    let changed = diff(&layers.effective(), &configured("8").effective());
    let [one] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!((one.old.as_deref(), one.new.as_deref()), (Some("8"), Some("8")));
    assert_eq!((one.configured.as_deref(), one.source), (None, Some(Source::Database)));
}

#[test]
fn change_of_a_shadowed_value_reports_the_configured_value() {
    let file = |rate: &str| {
        let text = format!("[limits.client]\nrate = \"{rate}\"\n");
        let layers = Loader::default().text_layers("tidegate.toml", &text);
        let patch = Patch::default().set("limits.client.rate", "5/s");
        layers.with_overrides(patch.apply(&Overrides::new())).effective()
    };
    let changed = diff(&file("40/s"), &file("41/s"));
    let [one] = &changed[..] else { panic!("{changed:?}") };
    let fields = (one.old.as_deref(), one.new.as_deref(), one.configured.as_deref());
    assert_eq!(fields, (Some("\"5/s\""), Some("\"5/s\""), Some("\"41/s\"")));
}

/// Without a database, no setting has the source `database`.
#[test]
fn runtime_overrides_have_their_own_source_and_a_warning() {
    let layers =
        Loader::default().text_layers("tidegate.toml", "[limits.client]\nrate = \"40/s\"\n");
    let patch = Patch::default().set("limits.client.rate", "5/s");
    let layers = layers.with_runtime_overrides(patch.apply(layers.overrides()));
    let effective = layers.effective();
    let rate = effective.iter().find(|it| it.key == "limits.client.rate").unwrap();
    assert_eq!((rate.source, rate.source.to_string()), (Source::Runtime, "runtime".to_owned()));
    assert_eq!(rate.place.as_deref(), Some("runtime"));
    let warnings: Vec<_> =
        layers.validate().unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "limits.client.rate: \"40/s\" of the file is shadowed by \"5/s\", which was set at run \
             time; to remove it, unset limits.client.rate in the admin API",
            "changes made at run time will be lost on restart, because there is no database \
             (database.url is \"none\"); settings changed so far: 1",
        ]
    );
    let kept = layers.with_overrides(layers.overrides().clone());
    assert!(kept.effective().iter().all(|it| it.source != Source::Runtime));
}

#[test]
fn overrides_diff_includes_unknown_keys() {
    let stored = |value: &str| -> Overrides {
        [("limits.client.newer_key".to_owned(), value.to_owned())].into_iter().collect()
    };
    let changed = stored("5").diff(&stored("\"sk-proj-hunter2hunter2hunter2\""), Source::Database);
    let [one] = &changed[..] else { panic!("{changed:?}") };
    assert_eq!((one.old.as_deref(), one.new.as_deref()), (Some("5"), Some("\"...\"")));
    let removed = stored("5").diff(&Overrides::new(), Source::Database);
    assert_eq!((removed[0].new.as_deref(), removed[0].source), (None, None));
    assert!(stored("5").diff(&stored("5"), Source::Database).is_empty());
}
