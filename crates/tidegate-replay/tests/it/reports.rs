//! Reports of small logs.

use std::time::Duration;

use serde_json::Value;
use tidegate_replay::{
    DenyBelow, LogOptions, LogReader, Replay, SimulationReport, Spool, ladder, search,
};

/// Ten requests of one key at once, whose name is markup, and five of another in five seconds.
fn log() -> String {
    let markup = r#"<script>alert("x")</script>&'"#.replace('"', "\"\"");
    let burst = (0..10).map(|_| format!("1700000000,\"{markup}\"\n"));
    let steady = (0..5).map(|second| format!("{},bob\n", 1_700_000_000 + second));
    burst.chain(steady).chain(["not a line\n".to_owned()]).collect()
}

fn report() -> SimulationReport {
    let policies = vec!["<b>:capacity=4,rate=1/s".parse().unwrap()];
    let mut replay = Replay::new(policies, Duration::ZERO);
    let mut spool = Spool::new().unwrap();
    let mut reader = LogReader::new(LogOptions::default());
    reader.read("x.csv", log().as_bytes(), &mut (&mut replay, &mut spool)).unwrap();
    let (keys, summary) = reader.finish().unwrap();
    let mut report = SimulationReport::new(&replay, &keys, &summary, Duration::ZERO);
    let goal: DenyBelow = "10%".parse().unwrap();
    report.add_search(goal, &search(&mut spool, 2, &ladder(10), goal, &mut ()).unwrap());
    report
}

#[test]
fn json_has_the_numbers_and_a_format() {
    let json: Value = serde_json::to_value(report()).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!((&json["log"]["requests"], &json["log"]["invalid_lines"]), (&15.into(), &1.into()));
    let policy = &json["policies"][0];
    assert_eq!((&policy["admitted"], &policy["denied"]), (&9.into(), &6.into()));
    assert_eq!((&policy["denied_percent"], &policy["keys_denied"]), (&40.0.into(), &1.into()));
    assert_eq!(policy["retry"]["max_ms"], 1_000);
    assert_eq!(json["timeline"]["policies"][0]["admitted"], serde_json::json!([5, 1, 1, 1, 1]));
    // One of fifteen may be denied.
    let frontier = json["search"]["frontier"].as_array().unwrap();
    assert!(frontier.iter().all(|it| it["capacity"] == 9 && it["denied"] == 1), "{frontier:?}");
    assert_eq!(json["search"]["best"], 0);
}

#[test]
fn html_escapes_what_comes_from_outside() {
    let html = report().to_html();
    assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
    assert!(html.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;&#39;"), "{html}");
    assert!(html.contains("&lt;b&gt;"), "{html}");
    for loaded in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(loaded), "{loaded}");
    }
    for tag in ["svg", "table", "g", "tr", "h2", "p", "title", "text"] {
        let opened =
            html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert!(opened > 0, "{tag}");
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn the_table_has_every_part() {
    let table = report().to_table();
    for part in [
        "15 requests of 2 keys, cost 15, 2023-11-14T22:13:20.000Z to 2023-11-14T22:13:24.000Z (4 s)",
        "1 of 16 lines cannot be read",
        "policy  capacity  rate  admitted  denied     share",
        "keys with most requests",
        "keys most denied by <b>",
        "smallest capacity that denies less than 10% of the requests",
        "--policy 'capacity=9,rate=1/min'",
    ] {
        assert!(table.contains(part), "{part:?} is not in\n{table}");
    }
}
