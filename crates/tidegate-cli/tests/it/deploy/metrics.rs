//! The dashboard and the alerts use metrics and labels that the program has, and Prometheus reads
//! them.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tidegate_sim::{Account, Dialect, Limits};
use tidegate_testkit::launch::run_promtool;

use super::expressions::names;
use super::{root, text};
use crate::outbound::fixtures::{KEY, Provider};
use crate::program::{Serving, serve};

/// Names that Prometheus adds.
const ADDED_METRICS: [&str; 1] = ["up"];
const ADDED_LABELS: [&str; 2] = ["instance", "job"];

/// Returns the expressions of the dashboard, with its variables replaced.
fn dashboard_expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expression = |target: &Value| {
        let expression = target["expr"].as_str().unwrap();
        expression.replace("$__rate_interval", "5m").replace("$instance", ".*")
    };
    targets.map(expression).collect()
}

/// Returns the expressions of the alerts. One that is folded over lines is joined.
fn alert_expressions() -> Vec<String> {
    let alerts = text("deploy/prometheus/alerts.yml");
    let mut expressions: Vec<String> = Vec::new();
    let mut is_folded = false;
    for line in alerts.lines().map(str::trim) {
        if let Some(expression) = line.strip_prefix("expr: ") {
            is_folded = expression == ">-";
            expressions.push(if is_folded { String::new() } else { expression.to_owned() });
        } else if is_folded && (line.starts_with("for:") || line.starts_with("labels:")) {
            is_folded = false;
        } else if let (true, Some(last)) = (is_folded, expressions.last_mut()) {
            last.push_str(line);
            last.push(' ');
        }
    }
    expressions
}

/// Returns the series names in a scrape of the program, after calls to a provider: one that it
/// answers, and one whose key it rejects.
fn scraped_names() -> BTreeSet<String> {
    let here = tempfile::tempdir().unwrap();
    let account = Account::new(Dialect::OpenAi, "account", KEY).model("m", Limits::new());
    let provider = Provider::start(account);
    let config = format!("[providers.openai]\nbase_url = \"{}\"\n", provider.url);
    fs::write(here.path().join("tidegate.toml"), config).unwrap();
    let serving = Serving::start(&mut serve(here.path(), &["--database", "none"]));
    for (key, expected) in [(KEY, 200), ("sk-rejected", 401)] {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build();
        let url = format!("{}/openai/v1/chat/completions", serving.url);
        let request = ureq::Agent::from(agent).post(url);
        let request = request.header("authorization", format!("Bearer {key}"));
        let request = request.header("content-type", "application/json");
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
        assert_eq!(request.send(body).unwrap().status(), expected);
    }
    let (status, scraped) = serving.ask("/metrics");
    assert_eq!(status, 200);
    let types = scraped.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let series = types.flat_map(|line| {
        let (name, kind) = line.split_once(' ').unwrap();
        let endings: &[&str] =
            if kind == "histogram" { &["_bucket", "_count", "_sum"] } else { &[""] };
        endings.iter().map(move |ending| format!("{name}{ending}"))
    });
    series.collect()
}

/// The labels of a metric are those of the list of stable names, which another test compares with
/// the program.
#[test]
fn every_metric_and_label_in_use_exists() {
    let scraped = scraped_names();
    let stable = include_str!("../stable_names.txt");
    let (dashboard, alerts) = (dashboard_expressions(), alert_expressions());
    assert!(dashboard.len() >= 20 && alerts.len() >= 10, "{dashboard:?} {alerts:?}");
    for expression in dashboard.iter().chain(&alerts) {
        let used = names(expression);
        assert!(!used.metrics.is_empty(), "{expression}");
        for metric in &used.metrics {
            let is_known = scraped.contains(metric) || ADDED_METRICS.contains(&metric.as_str());
            assert!(is_known, "{metric} in {expression}: not among {scraped:?}");
        }
        for (label, value) in &used.labels {
            if ADDED_LABELS.contains(&label.as_str()) {
                continue;
            }
            let exists = used.metrics.iter().any(|metric| {
                let any = format!("metric {metric} {label}=");
                stable
                    .lines()
                    .filter_map(|line| line.strip_prefix(&any))
                    .any(|known| known == "*" || value.as_ref().is_none_or(|value| value == known))
            });
            assert!(exists, "label {label}={value:?} in {expression}");
        }
    }
}

#[test]
fn prometheus_accepts_configuration_and_alerts() {
    let folder = root("deploy/prometheus");
    for args in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        run_promtool(&folder, &args).unwrap_or_else(|problems| panic!("{args:?}: {problems}"));
    }
}

/// As recording rules, so that promtool reads them.
#[test]
fn prometheus_accepts_the_dashboard() {
    let rules = dashboard_expressions()
        .into_iter()
        .enumerate()
        .map(|(index, expression)| format!("- {{record: 'panel{index}', expr: '{expression}'}}\n"));
    let rules: String = rules.map(|rule| format!("      {rule}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let text = format!("groups:\n  - name: dashboard\n    rules:\n{rules}");
    fs::write(folder.path().join("rules.yml"), text).unwrap();
    run_promtool(folder.path(), &["check", "rules", "rules.yml"]).unwrap();
}

/// Every alert has a test in which it fires.
#[test]
fn every_alert_is_tested() {
    let alerts = text("deploy/prometheus/alerts.yml");
    let tests = text("deploy/prometheus/alerts.test.yml");
    let names: Vec<_> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names.len(), alert_expressions().len());
    for name in names {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name}");
    }
}
