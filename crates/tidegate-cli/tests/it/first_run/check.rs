//! `tidegate check`: errors that `serve` tolerates.

use std::fs;

use super::serve_text;
use crate::program::{Ended, Serving, end, tidegate};

/// Runs `check` on a file with this environment.
fn check(text: &str, environment: &[(&str, &str)]) -> Ended {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("t.toml"), text).unwrap();
    let mut command = tidegate(here.path(), &["check", "t.toml"]);
    end(command.envs(environment.iter().copied()))
}

const KEYS: &str = "[providers.openai]\napi_key_env = \"OPENAI_API_KEY\"\n";

#[test]
fn unset_api_key_variable_fails_the_check() {
    for environment in [&[][..], &[("OPENAI_API_KEY", "  ")]] {
        let ended = check(KEYS, environment);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        let expected = "t.toml:2:15: providers.openai.api_key_env: OPENAI_API_KEY is not set in \
                        this environment: set it to the key, or remove api_key_env to let the \
                        caller's own key pass through\n\
                        configuration rejected: 1 error\n";
        assert_eq!(ended.stderr, expected);
    }
    let ended = check(KEYS, &[("OPENAI_API_KEY", "sk-test")]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
}

/// `serve` starts with a warning.
#[test]
fn serve_only_warns_about_an_unset_api_key_variable() {
    let here = tempfile::tempdir().unwrap();
    let serving = Serving::start(&mut serve_text(here.path(), KEYS));
    let told = serving.stop("TERM").stderr;
    let warning = "openai: OPENAI_API_KEY is not set; calls go out with the caller's own key";
    assert!(told.contains(warning), "{told}");
}

#[test]
fn unusable_fallbacks_are_errors() {
    let text = "[providers.openai]\n\
                fallback = [\"anthropic\", \"groq\", \"azure\"]\n\
                [providers.groq]\n\
                [providers.azure]\n\
                base_url = \"https://me.openai.azure.com\"\n\
                api_key_env = \"AZURE_KEY\"\n\
                [providers.openai.fallback_models.ollama]\n\
                \"gpt-4o\" = \"llama3\"\n";
    let ended = check(text, &[("AZURE_KEY", "k")]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for told in [
        "t.toml:2:12: providers.openai.fallback = ",
        "must not name \"anthropic\": calls never fall back to it because it speaks another API\n",
        "must not name \"groq\": calls never fall back to it because it has no key of its own, and a \
         caller's key is not shown to another provider\n",
        "must not name \"azure\": calls never fall back to it because its paths name deployments of its own",
        "providers.openai.fallback_models.ollama: is not in the `fallback` list of this provider",
        "4 errors",
    ] {
        assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
    }
    let good = "[providers.openai]\nfallback = [\"groq\"]\n\
                [providers.groq]\napi_key_env = \"GROQ_KEY\"\n";
    let ended = check(good, &[("GROQ_KEY", "k")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = check(good, &[]);
    assert_eq!(ended.stderr.lines().count(), 2, "only the key is missing: {ended:?}");
}

#[test]
fn unknown_and_self_fallbacks_are_rejected() {
    for (name, told) in [
        ("opnai", "\"opnai\" is not a configured provider; did you mean `openai`?"),
        ("anthropic", "must not name the provider itself"),
    ] {
        let ended = check(&format!("[providers.anthropic]\nfallback = [\"{name}\"]\n"), &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(told), "{ended:?}");
    }
}

#[test]
fn api_key_that_is_not_a_valid_header_value_is_an_error() {
    let ended = check(KEYS, &[("OPENAI_API_KEY", "sk\u{7}test")]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.starts_with("providers: provider `openai`: "), "{ended:?}");
    assert!(!ended.stderr.contains("test"), "{ended:?}");
}

#[test]
fn environment_is_checked_too() {
    let ended = check("", &[("TIDEGATE_STORE_MAX_MEMORY", "much")]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.starts_with("TIDEGATE_STORE_MAX_MEMORY: store.max_memory"), "{ended:?}");
}

#[test]
fn fallback_model_names_must_fit_the_api() {
    let text = |dialect: &str, model: &str| {
        format!(
            "[providers.a]\ndialect = \"{dialect}\"\nbase_url = \"http://a.test\"\n\
             fallback = [\"b\"]\nfallback_models.b = {{ \"m\" = \"{model}\" }}\n\
             [providers.b]\ndialect = \"{dialect}\"\nbase_url = \"http://b.test\"\n\
             api_key_env = \"B_KEY\"\n"
        )
    };
    for (dialect, model, code) in [
        ("compatible", "org/model:free", 0),
        ("compatible", "", 2),
        ("gemini", "gemini-2.5-flash", 0),
        ("gemini", "../secret", 2),
        ("azure", "my-gpt", 0),
        ("azure", "a/b", 2),
    ] {
        let ended = check(&text(dialect, model), &[("B_KEY", "k")]);
        assert_eq!(ended.code, Some(code), "{dialect} {model:?}: {ended:?}");
    }
}
