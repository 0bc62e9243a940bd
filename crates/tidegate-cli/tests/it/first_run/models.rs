//! Fallback providers with other model names.

use serde_json::json;

use super::{chat, provider, serve_text};
use crate::outbound::fixtures::KEY;
use crate::program::Serving;

/// Setting: providers.*.fallback_models.*.*
#[test]
fn fallback_is_called_with_its_own_model_name() {
    // Neither provider has the models of the other. An unknown model causes no fallback, so the
    // first provider has to fail in another way: its address is unreachable.
    let second = provider("llama-3.3-70b");
    let text = format!(
        "[providers.openai]\nbase_url = \"http://127.0.0.1:1\"\nmax_retries = 0\n\
         fallback = [\"backup\"]\n\
         [providers.openai.fallback_models.backup]\n\
         \"gpt-4o\" = \"llama-3.3-70b\"\n\
         [providers.backup]\nbase_url = \"{}\"\napi_key_env = \"BACKUP_KEY\"\n",
        second.url
    );
    let here = tempfile::tempdir().unwrap();
    let mut command = serve_text(here.path(), &text);
    let serving = Serving::start(command.env("BACKUP_KEY", KEY));
    let answer = chat(&serving, "openai", "gpt-4o");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.provider.as_deref(), Some("backup"));
    assert_eq!(answer.model.as_deref(), Some("llama-3.3-70b"));
    assert_eq!(answer.body["model"], "llama-3.3-70b");
    let ledger = second.simulator.ledger();
    let asked = |model: &str| ledger.count(|entry| entry.model.as_deref() == Some(model));
    assert_eq!((asked("llama-3.3-70b"), asked("gpt-4o")), (1, 0));
    let (value, source) = serving.setting("providers.openai.fallback_models.backup.gpt-4o");
    assert_eq!((value, source.as_str()), ("llama-3.3-70b".into(), "file"));
    // A model without a mapping keeps its name, which the fallback does not have.
    let answer = chat(&serving, "openai", "gpt-4o-mini");
    assert_ne!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.model, None, "{answer:?}");
}

#[test]
fn star_matches_every_other_model_and_can_change_at_run_time() {
    let second = provider("llama");
    let text = format!(
        "[providers.openai]\nbase_url = \"http://127.0.0.1:1\"\nmax_retries = 0\n\
         fallback = [\"backup\"]\n\
         [providers.backup]\nbase_url = \"{}\"\napi_key_env = \"BACKUP_KEY\"\n",
        second.url
    );
    let here = tempfile::tempdir().unwrap();
    let mut command = serve_text(here.path(), &text);
    let serving = Serving::start(command.env("BACKUP_KEY", KEY));
    assert_ne!(chat(&serving, "openai", "gpt-4.1").status, 200);
    let models = json!({ "backup": { "*": "llama" } });
    let patch = json!({ "providers": { "openai": { "fallback_models": models } } });
    let (status, body) = serving.patch(&patch);
    assert_eq!(status, 200, "{body}");
    let answer = chat(&serving, "openai", "gpt-4.1");
    assert_eq!((answer.status, answer.model.as_deref()), (200, Some("llama")), "{answer:?}");
}
