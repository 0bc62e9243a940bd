//! Rules of the user, which take precedence over the tables.

use serde_json::{Value, json};
use tidegate_providers::classify::{ClassificationRules, table_rows};
use tidegate_providers::{Class, Dialect};

use super::{DIALECTS, failed_with_rules, rate_limited, seconds};

fn class(rules: &ClassificationRules, status: u16, body: &Value) -> Class {
    failed_with_rules(rules, Dialect::Compatible, status, &[("retry-after", "7")], body).class
}

#[test]
fn first_matching_rule_decides() {
    let rules = ClassificationRules::new()
        .status(418, Class::Transient)
        .only_for("Someone")
        .status(418, Class::CredentialRejected)
        .status(401, Class::Transient)
        .only_for("somebody-else");
    assert_eq!(class(&rules, 418, &Value::Null), Class::Transient);
    assert_eq!(class(&rules, 401, &Value::Null), Class::CredentialRejected);
    assert_eq!(class(&ClassificationRules::new(), 418, &Value::Null), Class::BadRequest);
}

#[test]
fn all_conditions_of_a_rule_must_match() {
    let rules = ClassificationRules::new()
        .status_and_kind(503, "model_loading", Class::SlowDown)
        .kind("rate_limit_error", Class::ExhaustedQuota { after: None });
    let loading = json!({ "error": { "code": "model_loading" } });
    assert_eq!(class(&rules, 503, &loading), Class::SlowDown);
    assert_eq!(class(&rules, 500, &loading), Class::Transient);
    assert_eq!(class(&rules, 503, &Value::Null), Class::Overloaded);
    let rate_limited = json!({ "error": { "type": "rate_limit_error" } });
    assert_eq!(class(&rules, 429, &rate_limited), Class::ExhaustedQuota { after: None });
}

#[test]
fn rate_limit_by_rule_takes_the_reported_delay() {
    let by_rule = rate_limited(None, None);
    let rules = ClassificationRules::new().status(420, by_rule);
    assert_eq!(class(&rules, 420, &Value::Null), rate_limited(seconds(7), None));
    let fixed = rate_limited(seconds(60), None);
    let rules = ClassificationRules::new().status(420, fixed);
    assert_eq!(class(&rules, 420, &Value::Null), fixed);
}

#[test]
fn unknown_statuses_are_classified_by_their_hundreds() {
    let rules = ClassificationRules::new();
    for (status, expected) in [
        (301, Class::BadRequest),
        (402, Class::ExhaustedQuota { after: None }),
        (408, Class::Transient),
        (409, Class::Transient),
        (418, Class::BadRequest),
        (425, Class::Transient),
        (451, Class::BadRequest),
        (505, Class::Transient),
        (520, Class::Transient),
        (599, Class::Transient),
    ] {
        assert_eq!(class(&rules, status, &Value::Null), expected, "{status}");
    }
}

#[test]
fn table_of_every_provider_can_be_printed() {
    for dialect in DIALECTS {
        let lines: Vec<String> = table_rows(dialect).collect();
        assert!(lines.contains(&"500: transient".to_owned()), "{dialect:?}");
        // A row overridden by an earlier one never applies and is not listed.
        let mut errors: Vec<_> =
            lines.iter().map(|line| line.split_once(": ").unwrap().0).collect();
        errors.sort_unstable();
        errors.dedup();
        assert_eq!(errors.len(), lines.len(), "{dialect:?} {lines:?}");
    }
    let openrouter: Vec<String> = table_rows(Dialect::OpenRouter).collect();
    assert!(openrouter.contains(&"403: bad_request".to_owned()));
    let gemini: Vec<String> = table_rows(Dialect::Gemini).collect();
    assert_eq!(gemini.first().unwrap(), "any (zero quota): long_quota");
}
