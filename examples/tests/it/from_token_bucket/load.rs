//! The stack of a model.

use tidegate_llm::models::{LoadError, Model, Models, ModelsBuilder};
use tidegate_llm::settings::RateLimitSettings;

/// The registry of the program. Give the builder an HTTP client and the keys of your providers.
pub fn registry(builder: ModelsBuilder) -> Models {
    let module = RateLimitSettings::new().requests_per_minute(60).burst(60).enabled(false);
    builder.rate_limit(module).build()
}

/// `Retry(Fallback(RateLimit(adapter)))`.
pub fn load(models: &Models) -> Result<Model, LoadError> {
    models
        .load_model("anthropic", "claude-sonnet")
        .rate_limit(RateLimitSettings::new().requests_per_minute(120))
        .fallback_to(["openai/gpt-4o"])
        .retry(true)
        .build()
}
