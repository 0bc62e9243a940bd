//! Proxies, names of models at fallbacks, and what counts only when a configuration is checked.

use tidegate_config::{Layers, Loader, Source};

use crate::{complaints, plan, variables};

fn layers(text: &str, pairs: &[(&str, &str)]) -> Layers {
    Loader::default().environment(variables(pairs)).text_layers("tidegate.toml", text)
}

fn shown(layers: &Layers, key: &str) -> (String, Source, Option<String>) {
    let one = layers.effective().into_iter().find(|one| one.key == key).unwrap();
    (one.value, one.source, one.place)
}

#[test]
fn proxies_come_from_the_variables_that_other_programs_know() {
    for (pairs, https, http) in [
        (&[][..], None, None),
        (&[("HTTPS_PROXY", "a:1")][..], Some("http://a:1"), None),
        (&[("https_proxy", "a:1"), ("HTTPS_PROXY", "b:1")][..], Some("http://b:1"), None),
        (&[("https_proxy", "a:1"), ("HTTPS_PROXY", "")][..], Some("http://a:1"), None),
        (&[("ALL_PROXY", "a:1")][..], Some("http://a:1"), Some("http://a:1")),
        (
            &[("all_proxy", "a:1"), ("http_proxy", "b:1")][..],
            Some("http://a:1"),
            Some("http://b:1"),
        ),
        (&[("TIDEGATE_PROXY_HTTPS", "none"), ("HTTPS_PROXY", "a:1")][..], None, None),
    ] {
        let plan = layers("", pairs).plan().unwrap();
        let found = |url| plan.proxy.on_the_way_to(url).map(ToString::to_string);
        assert_eq!(found("https://x.test").as_deref(), https, "{pairs:?}");
        assert_eq!(found("http://x.test").as_deref(), http, "{pairs:?}");
    }
}

#[test]
fn the_environment_wins_over_the_file_and_credentials_are_not_shown() {
    let text = "[proxy]\nhttps = \"http://of.file:1\"\nno_proxy = [\"a.test\"]\n";
    let pairs = [("HTTPS_PROXY", "http://me:hunter2@b:1"), ("NO_PROXY", "b.test c.test,d.test")];
    let layers = layers(text, &pairs);
    let (value, source, place) = shown(&layers, "proxy.https");
    assert_eq!((value.as_str(), source), ("\"http://b:1\"", Source::Environment));
    assert_eq!(place.as_deref(), Some("HTTPS_PROXY"));
    let plan = layers.plan().unwrap();
    assert!(!format!("{plan:?} {:?}", layers.effective()).contains("hunter2"));
    for (url, is_proxied) in
        [("https://a.test", true), ("https://b.test", false), ("https://x.d.test", false)]
    {
        assert_eq!(plan.proxy.on_the_way_to(url).is_some(), is_proxied, "{url}");
    }
}

#[test]
fn a_proxy_of_the_file_is_refused_without_its_password() {
    let text = "[proxy]\nhttps = \"ftp://me:hunter2@b\"\nno_proxy = [\"a b c/\"]\n";
    let told = complaints(text);
    assert!(told[0].starts_with("tidegate.toml:2:9: proxy.https: must be the address"), "{told:?}");
    assert!(told[1].starts_with("tidegate.toml:3:12: proxy.no_proxy = "), "{told:?}");
    assert!(!told.concat().contains("hunter2"), "{told:?}");
}

#[test]
fn models_at_fallbacks_are_read_and_their_mistakes_told() {
    let text = "[providers.openai]\nfallback = [\"groq\"]\n[providers.groq]\n\
                [providers.openai.fallback_models.groq]\n\"gpt-4.1\" = \"llama\"\n";
    let plan = plan(text).unwrap();
    assert_eq!(plan.providers["openai"].fallback_models["groq"]["gpt-4.1"], "llama");
    let key = "providers.openai.fallback_models.groq.\"gpt-4.1\"";
    assert_eq!(shown(&layers(text, &[]), key).0, "\"llama\"");
    let told = complaints("[providers.openai.fallback_models]\ngrok = { a = \"b\" }\nollama = 1\n");
    assert!(told[0].contains("\"grok\" is not a configured provider"), "{told:?}");
    assert!(told[1].contains("fallback_models.ollama"), "{told:?}");
    let told = complaints("[providers.openai.fallback_models.ollama]\na = 1\n");
    assert!(told[0].contains("must be the name of a model"), "{told:?}");
}

#[test]
fn a_configuration_that_runs_may_still_fail_its_check() {
    let text = "[providers.openai]\napi_key_env = \"KEY\"\nfallback = [\"anthropic\"]\n";
    assert!(layers(text, &[]).plan().is_ok());
    let told = layers(text, &[]).check().unwrap_err().to_string();
    assert!(told.contains("tidegate.toml:2:15: providers.openai.api_key_env: KEY is not set"));
    assert!(told.contains("tidegate.toml:3:12: providers.openai.fallback = "), "{told}");
    assert!(layers("[providers.openai]\napi_key_env = \"KEY\"\n", &[("KEY", "k")]).check().is_ok());
}

#[test]
fn base_urls_for_sdks_follow_dialect_and_address() {
    let text = "[providers.groq]\n\
                [providers.a]\nbase_url = \"http://h/openai/v1\"\n\
                [providers.b]\nbase_url = \"http://h/llm\"\n\
                [providers.c]\nbase_url = \"https://c.openai.azure.com\"\ndialect = \"azure\"\n\
                [providers.deepseek]\n";
    let plan = plan(text).unwrap();
    for (name, path) in [
        ("groq", "/groq/openai/v1"),
        ("a", "/a/v1"),
        ("b", "/b/v1"),
        ("c", "/c"),
        ("deepseek", "/deepseek"),
        ("gemini", "/gemini"),
    ] {
        assert_eq!(plan.providers[name].sdk_path(), path);
    }
    assert!(plan.providers["groq"].is_configured() && !plan.providers["gemini"].is_configured());
}
