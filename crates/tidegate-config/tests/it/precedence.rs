//! Each layer overrides those below it.

use std::num::NonZeroU32;

use tidegate_config::{EffectiveSetting, Layers, Loader, Overrides, Patch, Source};

use crate::{variables, warnings};

/// Returns four stacks of layers: defaults, then with a file, a variable and a stored value added.
fn layered(key: &str, file: &str, variable: (&str, &str), stored: &str) -> [Layers; 4] {
    let none = Loader::default().text_layers("tidegate.toml", "");
    let file = || Loader::default().text_layers("tidegate.toml", file);
    let environment = |text: &str| {
        let loader = Loader::default().environment(variables(&[variable]));
        loader.text_layers("tidegate.toml", text)
    };
    let text = file();
    let text = text.effective().iter().map(|it| it.key.clone()).collect::<Vec<_>>();
    assert!(text.iter().any(|known| known == key), "{key} is shown");
    let database = Patch::default().set(key, stored).apply(&Overrides::new());
    [none, file(), environment(FILE), environment(FILE).with_overrides(database)]
}

/// A file that sets the keys of the tests below.
const FILE: &str = r#"
[limits.client]
rate = "40/s"
capacity = 80
[admission]
backpressure_threshold = 40
[providers.openai]
max_concurrent_requests = 40
"#;

fn find<'e>(effective: &'e [EffectiveSetting], key: &str) -> &'e EffectiveSetting {
    effective.iter().find(|it| it.key == key).unwrap()
}

#[test]
fn each_layer_overrides_those_below_it() {
    for (key, variable, stored, expected) in [
        (
            "limits.client.rate",
            ("TIDEGATE_LIMITS_CLIENT_RATE", "30/s"),
            "20/s",
            ["\"50/s\"", "\"40/s\"", "\"30/s\"", "\"20/s\""],
        ),
        (
            "admission.backpressure_threshold",
            ("TIDEGATE_ADMISSION_BACKPRESSURE_THRESHOLD", "30"),
            "20",
            ["100", "40", "30", "20"],
        ),
        (
            "providers.openai.max_concurrent_requests",
            ("TIDEGATE_PROVIDERS_OPENAI_MAX_CONCURRENT_REQUESTS", "30"),
            "20",
            ["8", "40", "30", "20"],
        ),
    ] {
        let sources = [Source::Default, Source::File, Source::Environment, Source::Database];
        let layers = layered(key, FILE, variable, stored);
        for ((layers, source), value) in layers.iter().zip(sources).zip(expected) {
            layers.validate().unwrap();
            let effective = layers.effective();
            let found = find(&effective, key);
            assert_eq!((found.value.as_str(), found.source), (value, source), "{key}");
        }
        // Shadowed values are listed, the lowest layer first.
        let top = layers[3].effective();
        let shadowed: Vec<_> = find(&top, key).shadowed.iter().map(|(source, _)| *source).collect();
        assert!(shadowed.ends_with(&[Source::File, Source::Environment]), "{shadowed:?}");
    }
}

#[test]
fn plan_has_the_value_of_the_highest_layer() {
    let layers = layered(
        "providers.openai.max_concurrent_requests",
        FILE,
        ("OPENAI_MAX_CONCURRENT", "30"),
        "20",
    );
    let numbers = layers.each_ref().map(|layers| {
        let concurrency =
            layers.validate().unwrap().providers["openai"].max_concurrent_requests.clone();
        (concurrency.value.get(), concurrency.source)
    });
    assert_eq!(
        numbers,
        [
            (8, Source::Default),
            (40, Source::File),
            (30, Source::Environment),
            (20, Source::Database)
        ]
    );
}

/// R364: a development mode that changes limits makes a laptop behave differently from production.
#[test]
fn development_mode_is_ignored() {
    let stored = Patch::default().set("providers.openai.max_retries", "3").apply(&Overrides::new());
    for mode in ["true", "false", "1", ""] {
        let environment = variables(&[("DEVELOPMENT_MODE", mode), ("OPENAI_MAX_RETRIES", "5")]);
        let layers = Loader::default().environment(environment).text_layers("none", "");
        assert_eq!(layers.validate().unwrap().providers["openai"].max_retries.value, 5);
        let layers = layers.with_overrides(stored.clone());
        assert_eq!(layers.validate().unwrap().providers["openai"].max_retries.value, 3);
    }
}

#[test]
fn values_shadowed_by_the_database_cause_warnings() {
    let layers = Loader::default()
        .environment(variables(&[("TIDEGATE_ADMISSION_MODE", "shadow")]))
        .text_layers(
            "tidegate.toml",
            "[limits.client]\nrate = \"50/s\"\n[admission]\nmode = \"enforce\"\n",
        );
    assert!(
        warnings(&layers).is_empty(),
        "overriding the file by the environment causes no warning"
    );
    let patch = Patch::default().set("limits.client.rate", "10/s").set("admission.mode", "enforce");
    let layers = layers.with_overrides(patch.apply(layers.overrides()));
    assert_eq!(
        warnings(&layers),
        [
            "admission.mode: \"enforce\" of the file is shadowed by \"enforce\" of the \
             database; to remove it, run `tidegate config unset admission.mode`",
            "admission.mode: \"shadow\" of the environment is shadowed by \"enforce\" of the \
             database; to remove it, run `tidegate config unset admission.mode`",
            "limits.client.rate: \"50/s\" of the file is shadowed by \"10/s\" of the database; \
             to remove it, run `tidegate config unset limits.client.rate`",
        ]
    );
    let unset = Patch::default().unset("limits").unset("admission.mode");
    let layers = layers.with_overrides(unset.apply(layers.overrides()));
    assert!(layers.overrides().is_empty() && warnings(&layers).is_empty());
}

#[test]
fn tokens_per_second_replaces_rate_of_a_lower_layer() {
    let layers = Loader::default()
        .text_layers("tidegate.toml", "[limits.client]\nrate = \"50/s\"\ncapacity = 7\n");
    let patch = Patch::default().set("limits.client.tokens_per_second", "2.5");
    let layers = layers.with_overrides(patch.apply(layers.overrides()));
    let config = layers.validate().unwrap();
    let policy = config.limits.by_name["client"].limit.policy().fingerprint();
    assert_eq!(policy, "bucket 7 1/400000000ns 7 3600000000000");
    assert_eq!(config.limits.source, Source::Database);
    let effective = layers.effective();
    assert!(effective.iter().all(|it| it.key != "limits.client.rate"));
    let rate = find(&effective, "limits.client.tokens_per_second");
    assert_eq!(rate.shadowed, [(Source::File, r#"{"rate":"50/s"}"#.to_owned())]);
    assert_eq!(
        warnings(&layers),
        ["limits.client.rate: \"50/s\" of the file is shadowed by \
          limits.client.tokens_per_second = 2.5 of the database; to remove it, run `tidegate \
          config unset limits.client.tokens_per_second`"]
    );
}

#[test]
fn policy_of_another_kind_replaces_the_lower_layer() {
    let text = "[limits.client]\nrate = \"50/s\"\ncapacity = 7\non_failure = \"closed\"\n";
    let layers = Loader::default().text_layers("tidegate.toml", text);
    let quota = Patch::default().set("limits.client.quota", "10");
    let half = layers.with_overrides(quota.apply(layers.overrides()));
    assert_eq!(
        half.validate().unwrap_err().to_string(),
        "database: limits.client.every: is required",
        "the missing key is reported at the layer that changed the kind"
    );
    let whole = quota.set("limits.client.every", "day");
    let layers = layers.with_overrides(whole.apply(layers.overrides()));
    let config = layers.validate().unwrap();
    let client = &config.limits.by_name["client"];
    assert_eq!(client.limit.policy().fingerprint(), "quota 10 10");
    assert_eq!(client.limit.failure_rule(), Some(tidegate::FailureRule::Closed), "it is kept");
    // A rate set later replaces the quota in the database.
    let back = Patch::default().set("limits.client.rate", "5/s").apply(layers.overrides());
    assert_eq!(back.iter().collect::<Vec<_>>(), [("limits.client.rate", "\"5/s\"")]);
    layers.with_overrides(back).validate().unwrap();
}

#[test]
fn token_total_and_parts_replace_each_other() {
    let text = "[providers.openai]\ntokens_per_minute = 90_000\n";
    let layers = Loader::default().text_layers("tidegate.toml", text);
    let patch = Patch::default().set("providers.openai.output_tokens_per_minute", "4000");
    let config = layers.with_overrides(patch.apply(layers.overrides())).validate().unwrap();
    let constraint = config.providers["openai"].constraint().unwrap();
    assert_eq!(constraint.tokens_per_minute(), None);
    assert_eq!(constraint.output_tokens_per_minute(), NonZeroU32::new(4_000));
}

#[test]
fn only_a_file_replaces_the_default_limits() {
    let named = |layers: &Layers| {
        layers.validate().unwrap().limits.by_name.keys().cloned().collect::<Vec<_>>()
    };
    let none = Loader::default().text_layers("none", "");
    assert_eq!(named(&none), ["client", "organization"]);
    let stored = Patch::default().set("limits.api.rate", "5/s").apply(none.overrides());
    assert_eq!(named(&none.with_overrides(stored.clone())), ["api", "client", "organization"]);
    let file = Loader::default().text_layers("file", "[limits.own]\nrate = \"5/s\"\n");
    assert_eq!(named(&file), ["own"]);
    assert_eq!(named(&file.with_overrides(stored)), ["api", "own"]);
    let environment = variables(&[("TIDEGATE_LIMITS_API_ALLOWANCE", "5")]);
    let layers = Loader::default().environment(environment).text_layers("none", "");
    assert_eq!(named(&layers), ["api", "client", "organization"]);
}

#[test]
fn stored_null_counts_as_unset() {
    let stored = [
        ("providers.ollama.max_concurrent_requests".to_owned(), "null".to_owned()),
        ("limits.client.rate".to_owned(), "null".to_owned()),
    ];
    let layers =
        Loader::default().text_layers("none", "").with_overrides(stored.into_iter().collect());
    let config = layers.validate().unwrap();
    assert_eq!(config.providers["ollama"].max_concurrent_requests.value, NonZeroU32::MIN);
    assert_eq!(config.limits.by_name.len(), 2);
}
