//! Paths: hints at start, and responses to unknown paths.

use serde_json::Value;

use super::{provider, serve_text};
use crate::program::Serving;

fn detail((status, body): (u16, String)) -> String {
    assert_eq!(status, 404, "{body}");
    let problem: Value = serde_json::from_str(&body).unwrap();
    problem["detail"].as_str().unwrap().to_owned()
}

#[test]
fn unknown_path_lists_known_paths() {
    let here = tempfile::tempdir().unwrap();
    let text = "[providers.my-llm]\nbase_url = \"http://127.0.0.1:1\"\n";
    let serving = Serving::start(&mut serve_text(here.path(), text));
    let told = detail(serving.post("/nothing", "{}"));
    for path in ["/my-llm/...", "/openai/...", "/anthropic/...", "/v1/take", "/v1/admit"] {
        assert!(told.contains(path), "{told}");
    }
    for (path, meant) in [
        ("/v1/chat/completions", "did you mean /openai/v1/chat/completions?"),
        ("/v1/messages", "did you mean /anthropic/v1/messages?"),
        ("/openia/v1/chat/completions", "did you mean /openai/v1/chat/completions?"),
        ("/my_llm/v1/models", "did you mean /my-llm/v1/models?"),
        ("/v1/takes", "did you mean /v1/take?"),
    ] {
        let told = detail(serving.post(path, "{}"));
        assert!(told.contains(meant), "{path}: {told}");
    }
}

#[test]
fn provider_path_alone_names_the_base_url() {
    let here = tempfile::tempdir().unwrap();
    let server = provider("m");
    let text = format!("[providers.openai]\nbase_url = \"{}\"\n", server.url);
    let serving = Serving::start(&mut serve_text(here.path(), &text));
    for path in ["/openai", "/openai/"] {
        let told = detail(serving.post(path, "{}"));
        assert!(told.contains("SDKs use /openai/v1 of this address"), "{told}");
    }
    assert_eq!(server.simulator.ledger().seen(), 0, "the provider was not called");
}

#[test]
fn base_urls_are_printed_to_stderr_at_start() {
    let here = tempfile::tempdir().unwrap();
    let text = "[providers.groq]\n[providers.mine]\nbase_url = \"http://127.0.0.1:1/v2\"\n";
    let serving = Serving::start(&mut serve_text(here.path(), text));
    let url = serving.url.clone();
    let ended = serving.stop("TERM");
    assert_eq!(ended.stdout, "", "{ended:?}");
    let head = format!("base URL for SDKs of LLM providers: {url} and one of ");
    let paths = ended.stderr.lines().find_map(|line| line.strip_prefix(&head));
    let mut paths: Vec<_> = paths.unwrap_or_default().split(", ").collect();
    paths.sort_unstable();
    let expected =
        ["/anthropic", "/gemini", "/groq/openai/v1", "/mine/v2", "/ollama", "/openai/v1"];
    assert_eq!(paths, expected, "{ended:?}");
}
