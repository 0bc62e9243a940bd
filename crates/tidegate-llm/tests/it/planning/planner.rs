//! Precedence of the sources of constraints, and defaults.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_llm::plan::{
    Constraint, ConstraintSource, Inference, Plan, PlanRequest, Planner, RawConstraint, TierTable,
    TokenEstimate,
};
use tidegate_providers::Dimension;

fn requests(plan: &Plan) -> u32 {
    plan.constraint.as_ref().unwrap().requests_per_minute().unwrap().get()
}

fn planned(planner: &Planner, request: &PlanRequest) -> (u32, ConstraintSource) {
    let plan = planner.plan(request).unwrap();
    (requests(&plan), plan.source)
}

fn per_minute(requests: u32) -> Constraint {
    Constraint::per_minute(NonZeroU32::new(requests).unwrap())
}

fn limits(requests: i64) -> RawConstraint {
    RawConstraint { requests_per_minute: Some(requests), ..RawConstraint::default() }
}

fn ask() -> PlanRequest {
    PlanRequest::new()
}

/// Two tiers of a provider, one of them with a row for all models.
fn table() -> TierTable {
    let text = r#"{ "tiers": [
        { "provider": "Gemini", "tier": "FREE", "model": "gemini-2.0-flash",
          "constraint": { "requests_per_minute": 15 }, "source": "made up, 2026-11-16" },
        { "provider": "gemini", "tier": "tier_2", "model": "Gemini-2.0-Flash",
          "constraint": { "requests_per_minute": 2000, "tokens_per_minute": 4000000 } },
        { "provider": "gemini", "tier": "tier_2", "constraint": { "requests_per_minute": 150 } }
    ] }"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn default_plan_has_no_constraint() {
    let plan = Plan::default();
    assert_eq!((plan.constraint.as_ref(), plan.to_string()), (None, "no constraint".to_owned()));
}

#[test]
fn sources_apply_in_order_of_precedence() {
    let planner = Planner::default();
    planner.replace_tiers(table());
    let request = ask().model("gemini-2.0-flash").tier("tier_2");
    assert_eq!(planned(&planner, &request), (2_000, ConstraintSource::Capability), "built in");
    let planner = planner.capability("gemini", |_: &str, _: &str| None);
    assert_eq!(planned(&planner, &request), (2_000, ConstraintSource::Tier));
    let planner = planner.capability("gemini", |_: &str, _: &str| Some(per_minute(77)));
    assert_eq!(planned(&planner, &request), (77, ConstraintSource::Capability));
    assert_eq!(
        planned(&planner, &request.rate_limits(limits(500))),
        (500, ConstraintSource::Override)
    );
    assert_eq!(planned(&planner, &ask().model("gpt-4o")), (60, ConstraintSource::Default));
    let names = [
        ConstraintSource::Override,
        ConstraintSource::Capability,
        ConstraintSource::Tier,
        ConstraintSource::Default,
    ];
    let names = names.map(|source| source.to_string());
    assert_eq!(names, ["override", "capability", "tier", "default"]);
}

#[test]
fn capability_that_returns_none_is_skipped() {
    let knows =
        |model: &str, tier: &str| (model == "known" && tier == "scale").then(|| per_minute(9));
    let planner = Planner::default().capability("Acme", knows);
    let at = |model, tier| planned(&planner, &ask().provider("acme").model(model).tier(tier));
    assert_eq!(at("known", "Scale"), (9, ConstraintSource::Capability));
    assert_eq!(at("known", "free"), (60, ConstraintSource::Default));
    assert_eq!(at("unknown", "scale"), (60, ConstraintSource::Default));
}

#[test]
fn overrides_apply_to_every_provider_and_field() {
    let planner = Planner::default();
    let all: RawConstraint = serde_json::from_str(
        r#"{"requests_per_minute":500,"tokens_per_minute":2000000,"min_interval_ms":100,"burst_factor":3.0}"#,
    )
    .unwrap();
    for model in ["gemini-2.0-flash", "gpt-4o", "claude-sonnet", "mistral-large"] {
        let nothing = ask().model(model).rate_limits(RawConstraint::default());
        assert_eq!(planned(&planner, &nothing), (60, ConstraintSource::Override), "{model}");
        let plan = planner.plan(&ask().model(model).rate_limits(all.clone())).unwrap();
        let constraint = plan.constraint.unwrap();
        assert_eq!(constraint.requests_per_minute().unwrap().get(), 500);
        assert_eq!(constraint.tokens_per_minute().unwrap().get(), 2_000_000);
        assert_eq!(constraint.min_interval(), Duration::from_millis(100));
        assert_eq!(constraint.burst(), 25);
    }
    let error = planner.plan(&ask().rate_limits(limits(0))).unwrap_err();
    assert_eq!(error.to_string(), "requests_per_minute = 0: must be > 0");
}

#[test]
fn default_for_gemini_is_lower_than_for_others() {
    let planner = Planner::default();
    for (model, expected) in
        [("gemini-99-ultra", 10), ("Gemini-Clone", 10), ("gpt-4o", 60), ("mistral-large", 60)]
    {
        assert_eq!(
            planned(&planner, &ask().model(model)),
            (expected, ConstraintSource::Default),
            "{model}"
        );
    }
    planner.replace_tiers(TierTable::default());
    assert_eq!(
        planned(&planner, &ask()),
        (10, ConstraintSource::Default),
        "the default model is Gemini's"
    );
    assert_eq!(planned(&planner, &ask().provider("openai")), (60, ConstraintSource::Default));
}

/// R118: a tier that is not in the table is an error, not the free tier.
#[test]
fn tiers_are_case_insensitive_and_unknown_ones_are_rejected() {
    let planner = Planner::default();
    planner.replace_tiers(table());
    let at = |model, tier| planned(&planner, &ask().model(model).tier(tier));
    assert_eq!(at("gemini-2.0-flash", "Tier_2"), (2_000, ConstraintSource::Capability));
    assert_eq!(
        at("gemini-2.0-pro", "tier_2"),
        (150, ConstraintSource::Capability),
        "the row for all models"
    );
    assert_eq!(
        at("gemini-2.0-pro", "free"),
        (10, ConstraintSource::Default),
        "no row for this model in the free tier"
    );
    let gold = ask().model("gemini-2.0-flash").tier("Gold");
    // With limits of its own too: a mistyped tier is another key, and so a second bucket.
    for request in [gold.clone(), gold.rate_limits(limits(7))] {
        assert_eq!(
            planner.plan(&request).unwrap_err().to_string(),
            "tier = \"gold\": is not a tier of gemini; known tiers are free, tier_2"
        );
    }
    let elsewhere = ask().provider("acme").model("any").tier("gold");
    assert_eq!(planned(&planner, &elsewhere), (60, ConstraintSource::Default), "no table of acme");
    assert_eq!(
        planned(&planner, &ask()),
        (15, ConstraintSource::Capability),
        "neither model nor tier is named"
    );
}

/// As in a file: `free` is a tier of Gemini only. A request that names none has the default.
#[test]
fn free_is_no_tier_of_providers_without_one() {
    let planner = Planner::default();
    for (model, known) in [
        ("gpt-4o", "openai; known tiers are tier_1, tier_2, tier_3, tier_4, tier_5"),
        ("claude-opus-5", "anthropic; known tiers are build, scale, start"),
    ] {
        let error = planner.plan(&ask().model(model).tier("free")).unwrap_err();
        assert_eq!(error.to_string(), format!("tier = \"free\": is not a tier of {known}"));
        assert_eq!(planned(&planner, &ask().model(model)), (60, ConstraintSource::Default));
    }
    let free = ask().model("gemini-2.5-pro").tier("FREE");
    assert_eq!(planned(&planner, &free), (5, ConstraintSource::Capability));
}

/// A tier that the capability knows need not be in the table.
#[test]
fn tier_of_a_capability_is_known() {
    let contract = |_: &str, tier: &str| (tier == "contract").then(|| per_minute(9_000));
    let planner = Planner::default().capability("openai", contract);
    let request = ask().model("gpt-4o").tier("Contract");
    assert_eq!(planned(&planner, &request), (9_000, ConstraintSource::Capability));
    let limited = request.rate_limits(limits(7));
    assert_eq!(planned(&planner, &limited), (7, ConstraintSource::Override));
    assert!(planner.plan(&ask().model("gpt-4o").tier("contrcat")).is_err());
}

/// R114: `tier: tier_2` means something for Gemini, by every name that its API has for a model.
#[test]
fn planner_asks_gemini() {
    let planner = Planner::default();
    let at = |model, tier| planned(&planner, &ask().provider("gemini").model(model).tier(tier));
    for name in ["gemini-2.5-flash", "models/gemini-2.5-flash", "Gemini-2.5-Flash"] {
        assert_eq!(at(name, "tier_2"), (2_000, ConstraintSource::Capability), "{name}");
    }
    assert_eq!(at("gemini-2.5-flash", "tier_3"), (10_000, ConstraintSource::Capability));
    assert_eq!(at("gemini-99-ultra", "tier_3"), (10, ConstraintSource::Default));
    planner.replace_tiers(table());
    assert_eq!(at("gemini-2.0-flash", "tier_2"), (2_000, ConstraintSource::Capability), "replaced");
}

#[test]
fn replaced_tier_table_applies_to_clones() {
    let planner = Planner::default();
    let clone = planner.clone();
    let request = ask().model("gemini-2.0-flash");
    let tier_2 = request.clone().tier("tier_2");
    let of_gemini = ConstraintSource::Capability;
    assert_eq!(planned(&clone, &tier_2), (10_000, of_gemini), "the shipped table");
    planner.replace_tiers(table());
    assert_eq!(planned(&clone, &tier_2), (2_000, of_gemini));
    assert_eq!(planned(&clone, &request), (15, of_gemini));
    planner.replace_tiers(TierTable::default());
    assert_eq!(planned(&clone, &request), (10, ConstraintSource::Default));
}

/// R114, R119: a tier means something for each provider of the shipped table.
#[test]
fn shipped_table_has_the_limits_of_a_tier() {
    let planner = Planner::default();
    let of = |model: &str, tier: &str| {
        let plan = planner.plan(&ask().model(model).tier(tier)).unwrap();
        let is_gemini = model.starts_with("gemini");
        let source = if is_gemini { ConstraintSource::Capability } else { ConstraintSource::Tier };
        assert_eq!(plan.source, source, "{model} {tier}");
        let constraint = plan.constraint.unwrap();
        let numbers = [
            constraint.requests_per_minute(),
            constraint.tokens_per_minute(),
            constraint.input_tokens_per_minute(),
            constraint.output_tokens_per_minute(),
            constraint.requests_per_day(),
        ];
        numbers.map(|number| number.map_or(0, NonZeroU32::get))
    };
    assert_eq!(of("gemini-2.5-flash", "TIER_2"), [2_000, 0, 3_000_000, 0, 100_000]);
    assert_eq!(of("gpt-4o", "tier_1"), [500, 30_000, 0, 0, 0]);
    assert_eq!(of("gpt-4o-2024-08-06", "tier_1"), of("gpt-4o", "tier_1"));
    assert_eq!(of("gpt-4o-mini", "tier_1"), [500, 200_000, 0, 0, 10_000]);
    assert_eq!(of("claude-sonnet-4-6", "start"), [1_000, 0, 2_000_000, 400_000, 0]);
    let haiku = of("claude-haiku-4-5-20251001", "scale");
    assert_eq!(haiku, [10_000, 0, 10_000_000, 2_000_000, 0]);
    let former = planner.plan(&ask().model("claude-opus-5").tier("tier_2")).unwrap_err();
    assert_eq!(
        former.to_string(),
        "tier = \"tier_2\": is not a tier of anthropic; known tiers are build, scale, start"
    );
}

#[test]
fn tier_table_round_trips_and_rejects_duplicate_rows() {
    let table = table();
    let text = serde_json::to_string(&table).unwrap();
    assert_eq!(serde_json::from_str::<TierTable>(&text).unwrap(), table);
    let row = r#"{ "provider": "Gemini", "tier": "FREE", "constraint": {} }"#;
    let twice = format!(r#"{{ "tiers": [{row}, {row}] }}"#);
    let error = serde_json::from_str::<TierTable>(&twice).unwrap_err().to_string();
    let text = "two rows for provider gemini, tier free and all models: keep one of them";
    assert_eq!(error, text);
}

#[test]
fn explicit_provider_takes_precedence_over_inference() {
    let known = |_: &str, _: &str| Some(per_minute(5));
    let planner = Planner::default().capability("ollama", known);
    let request = ask().model("gemini-clone");
    assert_eq!(planned(&planner, &request), (10, ConstraintSource::Default));
    assert_eq!(
        planned(&planner, &request.clone().provider("Ollama")),
        (5, ConstraintSource::Capability)
    );
    let planner = planner.inference(Inference::default().contains("clone", "ollama"));
    assert_eq!(
        planned(&planner, &request),
        (5, ConstraintSource::Capability),
        "the table can be changed"
    );
}

/// The section of a provider in a file. The test uses JSON, which is valid YAML.
#[test]
fn file_and_program_configuration_are_equivalent() {
    let text = r#"{ "gemini": { "model": "gemini-2.0-flash", "tier": "tier_2", "rate_limits": {
        "requests_per_minute": 1000, "tokens_per_minute": 4000000, "min_interval_ms": 100 } } }"#;
    let file: HashMap<String, PlanRequest> = serde_json::from_str(text).unwrap();
    let program = ask().model("gemini-2.0-flash").tier("tier_2").rate_limits(RawConstraint {
        tokens_per_minute: Some(4_000_000),
        min_interval_ms: Some(100),
        ..limits(1_000)
    });
    assert_eq!(file["gemini"], program);
    let plan = Planner::default().plan(&file["gemini"]).unwrap();
    assert_eq!(requests(&plan), 1_000);
    assert_eq!(plan.constraint.unwrap().min_interval(), Duration::from_millis(100));
    let mistyped = r#"{ "rate_limit": {} }"#;
    assert!(serde_json::from_str::<PlanRequest>(mistyped).is_err());
}

#[test]
fn plan_shows_its_constraint() {
    let limits = RawConstraint { tokens_per_minute: Some(1_000), ..limits(60) };
    let plan = Planner::default().plan(&ask().rate_limits(limits)).unwrap();
    let shown = "requests_per_minute=60 tokens_per_minute=1000 burst=1 (override)";
    assert_eq!(plan.to_string(), shown);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["constraint"]["tokens_per_minute"], 1_000);
    assert_eq!(json["source"], "override");
}

fn estimate(input_tokens: Option<u64>) -> TokenEstimate {
    TokenEstimate { min_tokens: 50, expected_tokens: 70, max_tokens: 100, input_tokens }
}

/// Returns the reserved input tokens, output tokens and total under these limits.
fn reserved(limited: &RawConstraint, input_tokens: Option<u64>) -> [u64; 3] {
    let plan = Plan::constrained(Constraint::try_new(limited).unwrap(), ConstraintSource::Override);
    let plan = plan.with_estimate(estimate(input_tokens));
    let [input, output] = [Dimension::InputTokens, Dimension::OutputTokens];
    assert_eq!(plan.reserved(Dimension::Requests), 0, "tokens only");
    [plan.reserved(input), plan.reserved(output), plan.reserved_tokens()]
}

#[test]
fn input_and_output_are_reserved_separately_if_limited_separately() {
    let input = RawConstraint { input_tokens_per_minute: Some(1_000), ..limits(60) };
    let both = RawConstraint { output_tokens_per_minute: Some(1_000), ..input.clone() };
    assert_eq!(reserved(&both, Some(30)), [30, 70, 100]);
    assert_eq!(reserved(&both, Some(900)), [100, 0, 100], "more input than tokens");
    assert_eq!(reserved(&both, None), [100, 100, 100], "either may be the whole estimate");
    assert_eq!(reserved(&input, Some(30)), [30, 0, 30]);
    let total = RawConstraint { tokens_per_minute: Some(1_000), ..limits(60) };
    assert_eq!(reserved(&total, Some(30)), [0, 0, 100]);
}

#[test]
fn tokens_are_reserved_only_if_limited() {
    let estimate = estimate(None);
    let limited = RawConstraint { tokens_per_minute: Some(1_000), ..limits(60) };
    let limited =
        Plan::constrained(Constraint::try_new(&limited).unwrap(), ConstraintSource::Override);
    assert_eq!(limited.clone().with_estimate(estimate).reserved_tokens(), 100);
    assert_eq!(limited.reserved_tokens(), 0, "no estimate");
    let unlimited = Plan::constrained(per_minute(60), ConstraintSource::Default);
    assert_eq!(unlimited.with_estimate(estimate).reserved_tokens(), 0);
    assert_eq!(Plan::default().with_estimate(estimate).reserved_tokens(), 0);
}
