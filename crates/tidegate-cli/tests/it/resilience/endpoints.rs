//! R396: endpoints have well-known names, or are workloads that define their calls.

use std::fs;
use std::thread;

use tidegate_testkit::launch::wait_until;

use super::upstream::{CALL, Gateway, Upstream};
use crate::program::run;

const CHAT: &str = "/openai/v1/chat/completions";
const ENDPOINT: &str = "x-tidegate-endpoint";

const LIMITS: &str = "
[providers.openai.endpoints.extraction]
paths = []
max_concurrent_requests = 2
[providers.openai.endpoints.embeddings]
max_concurrent_requests = 3
[providers.openai.endpoints.vision]
paths = [\"/v1/vision/*\"]
max_concurrent_requests = 1
[providers.openai.endpoints.translation]
paths = [\"/v1/translations\"]
requests_per_minute = 1
";

fn start(upstream: &Upstream) -> Gateway {
    Gateway::start(&format!("[providers.openai]\nbase_url = \"{}\"\n{LIMITS}", upstream.url))
}

/// Name, path, headers and concurrency of a workload.
type Workload<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], usize);

/// Setting: providers.*.endpoints.*.paths
#[test]
fn each_workload_has_its_own_concurrency() {
    const CALLERS: usize = 5;
    let upstream = Upstream::start();
    let gateway = start(&upstream);
    upstream.hold(true);
    let workloads: [Workload<'_>; 3] = [
        ("extraction", CHAT, &[(CALL, "extraction"), (ENDPOINT, "Extraction")], 2),
        ("embeddings", "/openai/v1/embeddings", &[(CALL, "embeddings")], 3),
        ("vision", "/openai/vision/describe", &[(CALL, "vision")], 1),
    ];
    thread::scope(|scope| {
        for (_, path, headers, _) in workloads {
            for _ in 0..CALLERS {
                let caller = &gateway.caller;
                scope.spawn(move || assert_eq!(caller.call(path, "m", headers).status, 200));
            }
        }
        let waiting = workloads.iter().map(|workload| CALLERS - workload.3).sum::<usize>();
        let line = format!("tidegate_llm_queue_length{{provider=\"openai\"}} {waiting}");
        wait_until("the others wait", || gateway.shows(&line).then_some(()));
        for (name, _, _, places) in workloads {
            wait_until(name, || {
                (upstream.seen().under_way.get(name) == Some(&places)).then_some(())
            });
        }
        upstream.hold(false);
    });
    for (name, ..) in workloads {
        assert_eq!(upstream.attempts(name), CALLERS, "{name}");
    }
}

#[test]
fn endpoint_rate_applies_only_to_its_paths() {
    let upstream = Upstream::start();
    let gateway = start(&upstream);
    let path = "/openai/v1/translations";
    let hasty = [("x-tidegate-max-wait-ms", "0")];
    assert_eq!(gateway.call(path, "m", &hasty).status, 200);
    assert_eq!(gateway.call(path, "m", &hasty).status, 429);
    assert_eq!(gateway.call("/openai/translations/", "m", &hasty).status, 429, "the same path");
    assert_eq!(gateway.call(CHAT, "m", &hasty).status, 200);
    let named = [hasty[0], (ENDPOINT, "translation")];
    assert_eq!(gateway.call(CHAT, "m", &named).status, 429);
}

#[test]
fn undeclared_endpoint_is_rejected() {
    let upstream = Upstream::start();
    let gateway = start(&upstream);
    let reply = gateway.call(CHAT, "m", &[(ENDPOINT, "extracton")]);
    assert_eq!(reply.status, 400, "{reply:?}");
    let message = reply.body["error"]["message"].as_str().unwrap();
    let known = "declared endpoints: embeddings, extraction, translation, vision";
    assert!(message.contains(known), "{message}");
    assert_eq!(upstream.seen().times.len(), 0);
}

#[test]
fn endpoint_without_matching_calls_is_rejected() {
    let here = tempfile::tempdir().unwrap();
    let check_errors = |text: &str| {
        let text = format!("[providers.openai.endpoints.{text}");
        fs::write(here.path().join("bad.toml"), text).unwrap();
        let ended = run(here.path(), &["check", "bad.toml"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.stderr
    };
    let slip = check_errors("embedings]\nmax_concurrent_requests = 4\n");
    assert!(
        slip.contains("providers.openai.endpoints.embedings: is not a known endpoint"),
        "{slip}"
    );
    assert!(slip.contains("did you mean `embeddings`?"), "{slip}");
    assert!(slip.contains("known endpoints are chat, embeddings, token_counting"), "{slip}");
    let own = check_errors("extraction]\nmax_concurrent_requests = 4\n");
    assert!(own.contains("paths = [\"/v1/chat/completions\"]"), "{own}");
    let odd = check_errors("extraction]\npaths = [\"chat\"]\n");
    assert!(odd.contains("must be the path of a provider's API"), "{odd}");
    let twice =
        check_errors("a]\npaths = [\"/v1/x\"]\n[providers.openai.endpoints.b]\npaths = [\"/x\"]\n");
    assert!(twice.contains("which belongs to endpoint `a`"), "{twice}");
}
