//! `promtool` finds invalid metrics.

use tidegate_testkit::launch::check_metrics;

#[test]
fn valid_metrics_pass_and_others_are_reported() {
    let good = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 1\n";
    assert_eq!(check_metrics(good), Vec::<String>::new());
    let bare = check_metrics("# TYPE calls_total counter\ncalls_total 1\n");
    assert!(bare.iter().any(|line| line.contains("no help text")), "{bare:?}");
    assert!(!check_metrics("calls{ 1\n").is_empty());
}
