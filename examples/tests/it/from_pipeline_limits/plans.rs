//! Plans.

use std::collections::HashMap;
use std::num::NonZeroU32;

use tidegate_llm::plan::{Constraint, PlanRequest, Planner, RawConstraint};

/// `rate_limits={"requests_per_minute": 500, "tokens_per_minute": 2000000}`.
pub fn overridden() -> PlanRequest {
    PlanRequest::new().model("gemini-2.0-flash").rate_limits(RawConstraint {
        requests_per_minute: Some(500),
        tokens_per_minute: Some(2_000_000),
        ..RawConstraint::default()
    })
}

/// The section of a provider, from any format that serde reads.
pub fn configured(json: &str) -> Result<Option<PlanRequest>, serde_json::Error> {
    let mut providers: HashMap<String, PlanRequest> = serde_json::from_str(json)?;
    Ok(providers.remove("gemini").map(|request| request.provider("gemini")))
}

/// A capability of your own. `None` means that no limits are known.
pub fn planner() -> Planner {
    let capability = |model: &str, tier: &str| {
        let requests = match tier {
            "scale" if model.starts_with("house-") => 5_000,
            _ => return None,
        };
        NonZeroU32::new(requests).map(Constraint::per_minute)
    };
    Planner::default().capability("house", capability)
}
