//! Proxies, model names at fallback providers, and strict checks.

use tidegate_config::{Layers, Loader, Source};

use crate::{config, error_lines, variables};

fn layers(text: &str, pairs: &[(&str, &str)]) -> Layers {
    Loader::default().environment(variables(pairs)).text_layers("tidegate.toml", text)
}

fn effective_setting(layers: &Layers, key: &str) -> (String, Source, Option<String>) {
    let one = layers.effective().into_iter().find(|one| one.key == key).unwrap();
    (one.value, one.source, one.place)
}

#[test]
fn proxies_are_read_from_the_usual_variables() {
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
        let config = layers("", pairs).validate().unwrap();
        let found = |url| config.proxy.proxy_for(url).map(ToString::to_string);
        assert_eq!(found("https://x.test").as_deref(), https, "{pairs:?}");
        assert_eq!(found("http://x.test").as_deref(), http, "{pairs:?}");
    }
}

#[test]
fn proxy_variable_overrides_the_file_and_hides_credentials() {
    let text = "[proxy]\nhttps = \"http://of.file:1\"\nno_proxy = [\"a.test\"]\n";
    let pairs = [("HTTPS_PROXY", "http://me:hunter2@b:1"), ("NO_PROXY", "b.test c.test,d.test")];
    let layers = layers(text, &pairs);
    let (value, source, place) = effective_setting(&layers, "proxy.https");
    assert_eq!((value.as_str(), source), ("\"http://b:1\"", Source::Environment));
    assert_eq!(place.as_deref(), Some("HTTPS_PROXY"));
    let config = layers.validate().unwrap();
    assert!(!format!("{config:?} {:?}", layers.effective()).contains("hunter2"));
    for (url, is_proxied) in
        [("https://a.test", true), ("https://b.test", false), ("https://x.d.test", false)]
    {
        assert_eq!(config.proxy.proxy_for(url).is_some(), is_proxied, "{url}");
    }
}

#[test]
fn proxy_error_hides_the_password() {
    let text = "[proxy]\nhttps = \"ftp://me:hunter2@b\"\nno_proxy = [\"a b c/\"]\n";
    let lines = error_lines(text);
    assert!(
        lines[0].starts_with("tidegate.toml:2:9: proxy.https: must be the address"),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("tidegate.toml:3:12: proxy.no_proxy = "), "{lines:?}");
    assert!(!lines.concat().contains("hunter2"), "{lines:?}");
}

#[test]
fn fallback_models_are_read_and_checked() {
    let text = "[providers.openai]\nfallback = [\"groq\"]\n[providers.groq]\n\
                [providers.openai.fallback_models.groq]\n\"gpt-4.1\" = \"llama\"\n";
    let config = config(text).unwrap();
    assert_eq!(config.providers["openai"].fallback_models["groq"]["gpt-4.1"], "llama");
    let key = "providers.openai.fallback_models.groq.\"gpt-4.1\"";
    assert_eq!(effective_setting(&layers(text, &[]), key).0, "\"llama\"");
    let lines =
        error_lines("[providers.openai.fallback_models]\ngrok = { a = \"b\" }\nollama = 1\n");
    assert!(lines[0].contains("\"grok\" is not a configured provider"), "{lines:?}");
    assert!(lines[1].contains("fallback_models.ollama"), "{lines:?}");
    let lines = error_lines("[providers.openai.fallback_models.ollama]\na = 1\n");
    assert!(lines[0].contains("must be a model name"), "{lines:?}");
}

#[test]
fn check_rejects_what_serve_only_warns_about() {
    let text = "[providers.openai]\napi_key_env = \"KEY\"\nfallback = [\"anthropic\"]\n";
    assert!(layers(text, &[]).validate().is_ok());
    let lines = layers(text, &[]).validate_strictly().unwrap_err().to_string();
    assert!(lines.contains("tidegate.toml:2:15: providers.openai.api_key_env: KEY is not set"));
    assert!(lines.contains("tidegate.toml:3:12: providers.openai.fallback = "), "{lines}");
    assert!(
        layers("[providers.openai]\napi_key_env = \"KEY\"\n", &[("KEY", "k")])
            .validate_strictly()
            .is_ok()
    );
}

#[test]
fn sdk_path_follows_dialect_and_base_url() {
    let text = "[providers.groq]\n\
                [providers.a]\nbase_url = \"http://h/openai/v1\"\n\
                [providers.b]\nbase_url = \"http://h/llm\"\n\
                [providers.c]\nbase_url = \"https://c.openai.azure.com\"\ndialect = \"azure\"\n\
                [providers.deepseek]\n";
    let config = config(text).unwrap();
    for (name, path) in [
        ("groq", "/groq/openai/v1"),
        ("a", "/a/v1"),
        ("b", "/b/v1"),
        ("c", "/c"),
        ("deepseek", "/deepseek"),
        ("gemini", "/gemini"),
    ] {
        assert_eq!(config.providers[name].sdk_path(), path);
    }
    assert!(
        config.providers["groq"].is_configured() && !config.providers["gemini"].is_configured()
    );
}
