//! Providers by the names of models, and keys of those who share a limit.

use std::sync::Arc;

use tidegate_llm::plan::{Inference, KeyContext, KeyExtractor, by_endpoint, by_model, by_user};
use tidegate_providers::Endpoint;

#[test]
fn a_provider_is_known_by_the_names_of_its_models() {
    let inference = Inference::default();
    for (model, provider) in [
        ("gemini-2.0-flash", "gemini"),
        ("models/GEMINI-pro", "gemini"),
        ("GPT-4o", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("Claude-3", "anthropic"),
        ("o1", "openai"),
        ("O3-mini", "openai"),
        ("o4-mini-2025-04-16", "openai"),
        ("o10", "unknown"),
        ("o1x-mini", "unknown"),
        ("proto1", "unknown"),
        ("mistral", "unknown"),
        ("", "unknown"),
        // As in the order of the table, whatever comes first in the name.
        ("claude-like-gpt-like-gemini", "gemini"),
    ] {
        assert_eq!(inference.provider(model).as_str(), provider, "{model:?}");
    }
    assert_eq!(Inference::none().provider("gpt-4o").as_str(), "unknown");
}

#[test]
fn a_rule_of_ones_own_is_asked_first() {
    let inference =
        Inference::default().contains("GPT-oss", "ollama").first_word("Mistral", "mistral");
    for (model, provider) in
        [("gpt-oss:20b", "ollama"), ("gpt-4o", "openai"), ("MISTRAL-large", "mistral")]
    {
        assert_eq!(inference.provider(model).as_str(), provider, "{model}");
    }
}

#[test]
fn by_default_provider_model_and_tier_share_a_limit() {
    let context = KeyContext {
        model: Some("gemini-2.0-flash"),
        tier: Some("tier_2"),
        ..KeyContext::default()
    };
    let by_model = by_model(Inference::default());
    assert_eq!(by_model.parts(&context), ["gemini", "gemini-2.0-flash", "tier_2"]);
    assert_eq!(by_model.key(&context).as_key().name(), "gemini:gemini-2.0-flash:tier_2");
    let shouted = KeyContext { model: Some("Gemini-2.0-FLASH"), tier: Some("TIER_2"), ..context };
    assert_eq!(by_model.key(&shouted), by_model.key(&context));
    let bare = KeyContext { provider: Some("OpenAI"), ..KeyContext::default() };
    assert_eq!(by_model.parts(&bare), ["openai", "gemini-2.0-flash", "unknown"]);
    let mistral = KeyContext { model: Some("mistral"), ..KeyContext::default() };
    assert_eq!(by_model.parts(&mistral), ["unknown", "mistral", "unknown"]);
    let own = tidegate_llm::plan::by_model(Inference::default().contains("mistral", "mistral"));
    assert_eq!(own.parts(&mistral), ["mistral", "mistral", "unknown"]);
}

#[test]
fn users_can_have_a_limit_each() {
    let ann = KeyContext { user: Some("ann"), ..KeyContext::default() };
    assert_eq!(by_user().parts(&ann), ["user", "ann"]);
    assert_eq!(by_user().parts(&KeyContext::default()), ["user", "default"]);
    let forged = KeyContext { user: Some("ann:x"), ..KeyContext::default() };
    assert_eq!(by_user().key(&forged).as_key().name(), "user:ann%3Ax", "no part becomes two");
}

#[test]
fn endpoints_can_have_a_limit_each() {
    let embeddings = Endpoint::new("Embeddings");
    let context = KeyContext {
        provider: Some("openai"),
        endpoint: Some(&embeddings),
        ..KeyContext::default()
    };
    assert_eq!(by_endpoint(Inference::default()).parts(&context), ["openai", "embeddings"]);
    let chat = KeyContext { endpoint: None, ..context };
    assert_eq!(by_endpoint(Inference::default()).parts(&chat), ["openai", "chat"]);
}

#[test]
fn any_function_is_an_extractor() {
    let extractor: Arc<dyn KeyExtractor> =
        Arc::new(|context: &KeyContext<'_>| vec!["tier".to_owned(), format!("{:?}", context.tier)]);
    let parts = extractor.parts(&KeyContext { tier: Some("x"), ..KeyContext::default() });
    assert_eq!(parts, ["tier", "Some(\"x\")"]);
}

/// The provider is a label of metrics: it is never what a key happens to begin with.
#[test]
fn the_provider_of_a_call_is_a_provider_whatever_its_key_is() {
    let context = KeyContext { user: Some("ann"), model: Some("gpt-4o"), ..KeyContext::default() };
    assert_eq!(by_user().provider(&context).as_str(), "openai");
    let named = KeyContext { provider: Some("Azure"), ..context };
    assert_eq!(by_user().provider(&named).as_str(), "azure");
    let own = Inference::default().contains("gpt", "mine");
    assert_eq!(by_model(own.clone()).provider(&context).as_str(), "mine");
    assert_eq!(by_endpoint(own).provider(&context).as_str(), "mine");
}
