//! The programs in `docs/from-pipeline-limits.md`: they do what the page says, and it shows them
//! verbatim.
#![allow(missing_docs, unreachable_pub, reason = "the programs are written as users would")]

mod pipeline;
mod plans;

use std::fs;
use std::time::Duration;

use tidegate_llm::mock::Mock;
use tidegate_llm::plan::{ConstraintSource, PlanRequest, Planner, RawConstraint};
use tokio::time::Instant;

use crate::page::{assert_shows, shown_block};

const PAGE: &str = include_str!("../../../docs/from-pipeline-limits.md");

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn the_page_shows_the_programs() {
    assert_shows(
        "docs/from-pipeline-limits.md",
        PAGE,
        &[
            ("from_pipeline_limits/pipeline.rs", include_str!("from_pipeline_limits/pipeline.rs")),
            ("from_pipeline_limits/plans.rs", include_str!("from_pipeline_limits/plans.rs")),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn users_wait_for_their_own_limits() {
    let limits = RawConstraint { requests_per_minute: Some(60), ..RawConstraint::default() };
    let request = PlanRequest::new().rate_limits(limits);
    for (users, seconds) in [(vec!["ann", "bob", "cy"], 0), (vec!["ann", "ann", "bob", "ann"], 2)] {
        let commands = users.iter().map(|user| {
            let session = pipeline::Session { user_id: Some(*user) };
            (session, "A river?".to_owned())
        });
        let start = Instant::now();
        let mock = Mock::new("gemini");
        let texts = pipeline::run(mock.clone(), &request, commands.collect()).await.unwrap();
        assert_eq!((texts.len(), mock.call_count()), (users.len(), users.len() as u64));
        assert_eq!(start.elapsed(), SECOND * seconds, "{users:?}");
    }
}

#[test]
fn plans_have_the_limits_and_sources_that_the_page_says() {
    let planner = plans::planner();
    let plan = |request: &PlanRequest| planner.plan(request).unwrap();
    assert_eq!(
        plan(&plans::overridden()).to_string(),
        "requests_per_minute=500 tokens_per_minute=2000000 burst=1 (override)"
    );
    let house = PlanRequest::new().provider("house").model("house-large").tier("scale");
    assert_eq!(plan(&house).to_string(), "requests_per_minute=5000 burst=1 (capability)");
    let other = PlanRequest::new().provider("house").model("house-large");
    assert_eq!(plan(&other).to_string(), "requests_per_minute=60 burst=1 (default)");
    let gemini = PlanRequest::new().tier("tier_2");
    assert_eq!(plan(&gemini).source, ConstraintSource::Capability);
    assert_eq!(plan(&gemini).constraint.unwrap().requests_per_minute().unwrap().get(), 10_000);
    assert!(planner.plan(&PlanRequest::new().tier("gold")).is_err());
    assert!(plans::configured(r#"{"gemini": {"teir": "tier_2"}}"#).is_err());
    let request = r#"{"gemini": {"tier": "tier_2", "rate_limits": {"min_interval_ms": 100}}}"#;
    let request = plans::configured(request).unwrap().unwrap();
    assert_eq!(
        plan(&request).to_string(),
        "requests_per_minute=60 min_interval_ms=100 burst=1 (override)"
    );
}

/// The file of the page, as it stands, for models without a pipeline.
#[test]
fn the_file_of_the_page_sets_the_limits() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("config.yaml");
    fs::write(&file, shown_block(PAGE, "yaml")).unwrap();
    let layers = tidegate_config::Loader::default().file(&file).layers().unwrap();
    let models = layers.models().unwrap().backend("gemini", Mock::new("gemini")).build();
    let model = models.load_model("gemini", None).build().unwrap();
    assert_eq!(model.to_string(), "RateLimit(gemini/gemini-2.0-flash)");
    let limits = model.account().unwrap().limits();
    let (limits, _) = limits.account_limit().unwrap();
    assert_eq!(
        limits.to_string(),
        "requests_per_minute=1000 tokens_per_minute=4000000 min_interval_ms=100 burst=16"
    );
    assert_eq!(
        Planner::default().plan(&PlanRequest::new()).unwrap().source.to_string(),
        "capability"
    );
}
