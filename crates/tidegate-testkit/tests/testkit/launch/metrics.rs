//! The real reader of metrics finds what is wrong.

use tidegate_testkit::launch::check_metrics;

#[test]
fn metrics_as_they_should_be_are_passed_over_and_others_told() {
    let good = "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total 1\n";
    assert_eq!(check_metrics(good), Vec::<String>::new());
    let bare = check_metrics("# TYPE calls_total counter\ncalls_total 1\n");
    assert!(bare.iter().any(|line| line.contains("no help text")), "{bare:?}");
    assert!(!check_metrics("calls{ 1\n").is_empty());
}
