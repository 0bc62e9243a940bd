//! Providers that stop in the middle of a call: timeouts end the call and free its slot.

use std::time::Duration;

use tidegate_sim::{Fault, Limits, Output};

use super::fixtures::{Gateway, Provider, Sdk};
use super::traffic::{CallOptions, CallResult, Caller};

/// Two slots, and a maximum wait shorter than a stalled call.
const SETTINGS: &str = "max_concurrent_requests = 2\nmax_wait = \"1s\"\n\
                        first_byte_timeout = \"2s\"\nidle_timeout = \"2s\"";

/// Both timeouts.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time within which the failure must be reported.
pub(super) const BOUND: Duration = Duration::from_secs(4);

const STREAMED: CallOptions =
    CallOptions { is_streamed: true, max_tokens: None, max_wait_ms: None, tenant: None };

/// Results of consecutive calls with a fault, and of one without.
struct Stalls {
    stalled: Vec<CallResult>,
    normal: CallResult,
    log: String,
}

impl Stalls {
    fn run(calls: usize, fault: Fault, options: CallOptions) -> Self {
        let account = Sdk::OPENAI.account().any_model(Limits::new()).output(Output::fixed(20));
        let provider = Provider::start(account);
        let gateway = Gateway::start(Sdk::OPENAI, &provider.url, SETTINGS);
        let caller = Caller::new(&gateway);
        provider.simulator.inject(Sdk::OPENAI.name, fault, u64::MAX).unwrap();
        let stalled = (0..calls).map(|_| caller.call(options)).collect();
        provider.simulator.clear_faults(Sdk::OPENAI.name).unwrap();
        let normal = caller.call(options);
        Self { stalled, normal, log: gateway.stop().stderr }
    }

    /// Checks that each stalled call takes as long as the timeout, and the normal call no time.
    fn assert_freed(&self) {
        let Self { stalled, normal, log } = self;
        for reply in stalled {
            assert!((TIMEOUT..BOUND).contains(&reply.took), "{stalled:?}\n{log}");
        }
        assert_eq!((normal.status, &normal.broken), (Some(200), &None), "{normal:?}\n{log}");
        assert!(normal.took < Duration::from_secs(1), "{normal:?}\n{log}");
    }
}

/// Makes a call that is never answered.
pub(super) fn no_head() -> (CallResult, String) {
    let stalls = Stalls::run(1, Fault::Silent, CallOptions::default());
    (stalls.stalled.into_iter().next().unwrap(), stalls.log)
}

/// Makes a call whose stream stops after a few events.
pub(super) fn stalled_stream() -> (CallResult, String) {
    let stalls = Stalls::run(1, Fault::Stall { after: 5 }, STREAMED);
    (stalls.stalled.into_iter().next().unwrap(), stalls.log)
}

/// Setting: providers.*.first_byte_timeout
#[test]
fn unanswered_calls_end_with_the_first_byte_timeout() {
    let stalls = Stalls::run(4, Fault::Silent, CallOptions::default());
    for reply in &stalls.stalled {
        assert_eq!(reply.status, Some(504), "{reply:?}\n{}", stalls.log);
        assert!(reply.message().contains("first-byte timeout"), "{reply:?}");
    }
    stalls.assert_freed();
}

/// Setting: providers.*.idle_timeout
#[test]
fn stalled_streams_end_with_the_idle_timeout() {
    let stalls = Stalls::run(4, Fault::Stall { after: 5 }, STREAMED);
    for reply in &stalls.stalled {
        assert_eq!(reply.status, Some(200), "{reply:?}\n{}", stalls.log);
        assert!(reply.broken.is_some(), "{reply:?}\n{}", stalls.log);
        assert!(reply.body.contains("data:") && !reply.body.contains("[DONE]"), "{reply:?}");
        assert!(reply.head_after < Duration::from_secs(2), "{reply:?}\n{}", stalls.log);
    }
    stalls.assert_freed();
}
