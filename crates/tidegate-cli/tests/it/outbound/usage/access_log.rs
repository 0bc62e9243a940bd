//! The access log: off by default, one line per call, and no secrets.

use serde_json::json;
use tidegate_sim::{Limits, Output};
use tidegate_testkit::launch::wait_until;

use super::super::fixtures::{Gateway, KEY, Provider, Sdk};
use super::client::{Options, send};

const ON: &str = "[gateway]\naccess_log = true";
const TARGET: &str = "tidegate::access";

/// Setting: gateway.access_log
#[test]
fn each_call_has_one_line_while_the_access_log_is_on() {
    let account = Sdk::OPENAI.account().any_model(Limits::new()).output(Output::fixed(20));
    let provider = Provider::start(account);
    let mut gateway = Gateway::start(Sdk::OPENAI, &provider.url, "");
    let mut calls = 0.0;
    let mut ask = |gateway: &Gateway, model: &str, is_streamed: bool| {
        let messages = json!([{ "role": "user", "content": "secret words of a prompt" }]);
        let body = json!({ "model": model, "messages": messages, "stream": is_streamed });
        let options = Options { is_streamed, ..Options::default() };
        assert_eq!(send(gateway, "/chat/completions", &body, options).0, 200);
        calls += 1.0;
        wait_until("the call is counted", || {
            (gateway.metric("tidegate_llm_requests_total", &[]) == calls).then_some(())
        });
    };
    ask(&gateway, "before", false);
    gateway.reload(&provider.url, ON);
    ask(&gateway, "tidal-1", false);
    ask(&gateway, "tidal-1\nforged=\"yes\"", true);
    ask(&gateway, &"m".repeat(250), true);
    gateway.reload(&provider.url, "");
    ask(&gateway, "after", false);
    let log = gateway.stop().stderr;
    let lines: Vec<_> = log.lines().filter(|line| line.contains(TARGET)).collect();
    let [whole, forged, long] = lines.as_slice() else { panic!("{} lines: {log}", lines.len()) };
    for part in [
        "call finished",
        "provider=openai",
        r#"tenant="team-a""#,
        r#"model="tidal-1""#,
        r#"endpoint="chat""#,
        r#"outcome="answered""#,
        "status=200",
        "attempts=1",
        "wait_ms=",
        "duration_ms=",
        "request_id=",
        "reserved_input=",
        "reserved_output=",
        "output_tokens=20",
        r#"output_source="reported""#,
    ] {
        assert!(whole.contains(part), "{part} in {whole}");
    }
    assert!(forged.contains(r#"model="tidal-1\nforged=\"yes\"""#), "{forged}");
    assert!(forged.contains(r#"output_source="estimated""#), "{forged}");
    assert!(long.len() < 1_500 && long.contains("mmm…"), "{long}");
    assert!(!log.contains("secret words") && !log.contains(KEY), "{log}");
}
