//! Provider inference and keys.

use tidegate::KeyBuf;
use tidegate_llm::pipeline::{Planned, by_endpoint, by_model, by_user};
use tidegate_llm::plan::{Inference, Plan, PlanRequest};
use tidegate_providers::Endpoint;

#[test]
fn provider_is_inferred_from_the_model_name() {
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
        // The order of the table decides, not the order in the name.
        ("claude-like-gpt-like-gemini", "gemini"),
    ] {
        assert_eq!(inference.provider(model).as_str(), provider, "{model:?}");
    }
    assert_eq!(Inference::none().provider("gpt-4o").as_str(), "unknown");
}

#[test]
fn custom_rules_take_precedence() {
    let inference =
        Inference::default().contains("GPT-oss", "ollama").first_word("Mistral", "mistral");
    for (model, provider) in
        [("gpt-oss:20b", "ollama"), ("gpt-4o", "openai"), ("MISTRAL-large", "mistral")]
    {
        assert_eq!(inference.provider(model).as_str(), provider, "{model}");
    }
}

fn planned(request: &PlanRequest) -> Planned<()> {
    Planned::new((), Plan::default()).with_request(request)
}

fn key(parts: &[String]) -> KeyBuf {
    KeyBuf::from_parts(parts.iter().map(String::as_str))
}

#[test]
fn default_key_is_provider_model_and_tier() {
    let parts = |inference: &Inference, request: &PlanRequest| {
        by_model(&inference.provider_of(request), &planned(request))
    };
    let table = Inference::default();
    let request = PlanRequest::new().model("gemini-2.0-flash").tier("tier_2");
    let by_default = parts(&table, &request);
    assert_eq!(by_default, ["gemini", "gemini-2.0-flash", "tier_2"]);
    assert_eq!(key(&by_default).as_key().name(), "gemini:gemini-2.0-flash:tier_2");
    let shouted = PlanRequest::new().model("Gemini-2.0-FLASH").tier("TIER_2");
    assert_eq!(key(&parts(&table, &shouted)), key(&by_default));
    let bare = PlanRequest::new().provider("OpenAI");
    assert_eq!(parts(&table, &bare), ["openai", "gemini-2.0-flash", "unknown"]);
    let mistral = PlanRequest::new().model("mistral");
    assert_eq!(parts(&table, &mistral), ["unknown", "mistral", "unknown"]);
    let own = Inference::default().contains("mistral", "mistral");
    assert_eq!(parts(&own, &mistral), ["mistral", "mistral", "unknown"]);
}

#[test]
fn by_user_gives_each_user_a_key() {
    let parts = |request: &PlanRequest| by_user(&"openai".into(), &planned(request));
    assert_eq!(parts(&PlanRequest::new().user("ann")), ["user", "ann"]);
    assert_eq!(parts(&PlanRequest::new()), ["user", "default"]);
    let forged = parts(&PlanRequest::new().user("ann:x"));
    assert_eq!(key(&forged).as_key().name(), "user:ann%3Ax", "separators are escaped");
}

#[test]
fn by_endpoint_gives_each_endpoint_a_key() {
    let request = PlanRequest::new().provider("openai");
    let provider = Inference::default().provider_of(&request);
    let embeddings = request.clone().endpoint(Endpoint::new("Embeddings"));
    assert_eq!(by_endpoint(&provider, &planned(&embeddings)), ["openai", "embeddings"]);
    assert_eq!(by_endpoint(&provider, &planned(&request)), ["openai", "chat"]);
}

/// The provider is a metric label, so it must never be taken from a key.
#[test]
fn inferred_provider_does_not_depend_on_the_key() {
    let request = PlanRequest::new().user("ann").model("gpt-4o");
    assert_eq!(Inference::default().provider_of(&request).as_str(), "openai");
    let named = request.clone().provider("Azure");
    assert_eq!(Inference::default().provider_of(&named).as_str(), "azure");
    let own = Inference::default().contains("gpt", "mine");
    let provider = own.provider_of(&request);
    assert_eq!(provider.as_str(), "mine");
    assert_eq!(by_model(&provider, &planned(&request))[0], "mine");
    assert_eq!(by_endpoint(&provider, &planned(&request))[0], "mine");
}
