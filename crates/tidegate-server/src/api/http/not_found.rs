//! The text of a 404: what the caller probably meant, and what is available.

use tidegate_config::{Config, ProviderConfig, nearest};
use tidegate_providers::Dialect;
use tidegate_providers::request::PathPurpose;

/// All paths of the HTTP API.
const PATHS: &[&str] = &[
    "/v1/take",
    "/v1/peek",
    "/v1/reserve",
    "/v1/settle",
    "/v1/hold",
    "/v1/reset",
    "/v1/batch",
    "/v1/acquire",
    "/v1/release",
    "/v1/renew",
    "/v1/admit",
    "/v1/pending",
    "/healthz",
];

/// Longest path, in bytes, for which a correction is suggested.
const MAX_PATH_LEN: usize = 128;

/// Returns the text for a path that does not exist.
pub(super) fn detail(path: &str, plan: &Config) -> String {
    let hint = suggestion(path, plan).map(|path| format!("; did you mean {path}?"));
    format!(
        "there is nothing at this path{}; gateway paths: {}; decision API paths: {}",
        hint.unwrap_or_default(),
        gateway(plan),
        PATHS.join(", ")
    )
}

/// Returns the text for a provider's path without anything after it, if the provider has no root
/// resource.
pub(super) fn provider_root(path: &str, plan: &Config) -> Option<String> {
    let name = path.strip_prefix('/')?;
    let name = name.strip_suffix('/').unwrap_or(name);
    let provider = plan.providers.get(name)?;
    // Clients of these dialects probe the root.
    let has_root = matches!(provider.dialect(), Dialect::Ollama | Dialect::Compatible);
    let sdk = provider.sdk_path();
    (!has_root).then(|| {
        format!(
            "calls to {name} go below this path; SDKs use {sdk} of this address as their base URL, \
             and the path of a call follows /{name}"
        )
    })
}

fn gateway(plan: &Config) -> String {
    let path = |name: &str| format!("/{name}/...");
    let names: Vec<_> = reachable(plan).map(|(name, _)| path(name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn reachable(plan: &Config) -> impl Iterator<Item = (&str, &ProviderConfig)> {
    let providers = plan.providers.iter().map(|(name, provider)| (name.as_str(), provider));
    providers.filter(|(_, provider)| provider.has_gateway_path())
}

/// Returns the path that the caller probably meant.
fn suggestion(path: &str, plan: &Config) -> Option<String> {
    let is_plain = path.len() <= MAX_PATH_LEN && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || path.len() < 2 {
        return None;
    }
    if let Some(name) = without_provider(path, plan) {
        return Some(format!("/{name}{path}"));
    }
    if let Some(verb) = path.strip_prefix("/v1/") {
        let known = PATHS.iter().filter_map(|path| path.strip_prefix("/v1/"));
        return nearest(verb, known).map(|verb| format!("/v1/{verb}"));
    }
    let (first, rest) = path.get(1..)?.split_once('/').unwrap_or((path.get(1..)?, ""));
    let name = nearest(first, reachable(plan).map(|(name, _)| name))?;
    let rest = if rest.is_empty() { String::new() } else { format!("/{rest}") };
    Some(format!("/{name}{rest}"))
}

/// Returns the provider for a path without one: the first whose own API has that path.
fn without_provider<'p>(path: &str, plan: &'p Config) -> Option<&'p str> {
    const LISTS: [&str; 4] = ["/v1/models", "/v1beta/models", "/api/tags", "/v1/files"];
    let dialects: &[Dialect] = match path {
        "/v1/models" | "/v1/files" => &[Dialect::OpenAi],
        "/v1beta/models" => &[Dialect::Gemini],
        "/api/tags" => &[Dialect::Ollama],
        _ => &[Dialect::OpenAi, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama],
    };
    // Only roots of provider APIs: elsewhere the first segment is a mistyped provider name.
    let is_api = ["/v1/", "/v1beta/", "/api/", "/chat/", "/openai/v1/"];
    if !is_api.iter().any(|root| path.starts_with(root)) {
        return None;
    }
    let provider_with = |dialect: Dialect| {
        reachable(plan).find(|(_, it)| it.dialect() == dialect).map(|(name, _)| name)
    };
    dialects.iter().find_map(|dialect| {
        let purpose = PathPurpose::lookup(*dialect, path);
        let is_own = purpose.is_some_and(|purpose| purpose.dialect == *dialect);
        (is_own || LISTS.contains(&path)).then(|| provider_with(*dialect)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use tidegate_config::Loader;

    use super::*;

    fn plan() -> Config {
        Loader::default().text("none", "").unwrap()
    }

    #[test]
    fn a_path_without_its_provider_is_completed() {
        for (path, expected) in [
            ("/v1/chat/completions", Some("/openai/v1/chat/completions")),
            ("/v1/embeddings", Some("/openai/v1/embeddings")),
            ("/v1/models", Some("/openai/v1/models")),
            ("/v1/messages", Some("/anthropic/v1/messages")),
            ("/v1beta/models/g:generateContent", Some("/gemini/v1beta/models/g:generateContent")),
            ("/api/chat", Some("/ollama/api/chat")),
            ("/opnai/v1/chat/completions", Some("/openai/v1/chat/completions")),
            ("/OpenAI/v1/models", Some("/openai/v1/models")),
            ("/anthropc", Some("/anthropic")),
            ("/v1/tak", Some("/v1/take")),
            ("/v1/weather", None),
            ("/weather", None),
            ("/", None),
        ] {
            assert_eq!(suggestion(path, &plan()).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn all_paths_are_listed() {
        let text = detail("/nothing/of/this", &plan());
        for path in ["/openai/...", "/anthropic/...", "/v1/take", "/v1/admit", "/healthz"] {
            assert!(text.contains(path), "{text}");
        }
        assert!(!text.contains("did you mean"), "{text}");
    }

    #[test]
    fn the_root_of_a_provider_gives_its_base_url() {
        let text = provider_root("/openai", &plan()).unwrap();
        assert!(text.contains("use /openai/v1 of this address"), "{text}");
        assert_eq!(provider_root("/openai/", &plan()).unwrap(), text);
        for path in ["/ollama", "/ollama/", "/openai/v1", "/nobody", "/"] {
            assert_eq!(provider_root(path, &plan()), None, "{path}");
        }
    }
}
