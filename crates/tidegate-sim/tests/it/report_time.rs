//! Whether responses report limits as of admission or as of sending.

use std::time::Duration;

use tidegate_sim::{Delay, Dialect, Limits, ReportTime};
use tokio::time::{advance, sleep};

use crate::client::{Call, ReceivedResponse, account, with};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the response to a call that takes ten seconds, while another one is admitted after four.
async fn overtaken_response(
    dialect: Dialect,
    limits: Limits,
    time: ReportTime,
    call: &Call,
) -> ReceivedResponse {
    let account = account(dialect, limits).first_token(Delay::fixed(SECOND * 10));
    let simulator = with(account.report_time(time));
    let later = async {
        sleep(SECOND * 4).await;
        call.send(&simulator).await
    };
    tokio::join!(call.send(&simulator), later).0
}

#[tokio::test(start_paused = true)]
async fn limits_are_reported_as_of_admission_or_response() {
    let limits = || Limits::new().requests_per_minute(6).tokens_per_minute(6_000);
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 2_398).output(5);
    for call in [call.clone(), call.field("stream", true)] {
        let admission =
            overtaken_response(Dialect::OpenAi, limits(), ReportTime::Admission, &call).await;
        assert_eq!(
            admission.limit_headers()[2..6],
            [
                "x-ratelimit-remaining-requests: 5",
                "x-ratelimit-remaining-tokens: 3600",
                "x-ratelimit-reset-requests: 10s",
                "x-ratelimit-reset-tokens: 24s",
            ]
        );
        assert_eq!(admission.header("date"), Some("Thu, 01 Jan 2026 00:00:10 GMT"));
        // Two calls took 4,800 tokens, and 1,000 were refilled.
        let response =
            overtaken_response(Dialect::OpenAi, limits(), ReportTime::Response, &call).await;
        assert_eq!(
            response.limit_headers()[2..6],
            [
                "x-ratelimit-remaining-requests: 5",
                "x-ratelimit-remaining-tokens: 2200",
                "x-ratelimit-reset-requests: 10s",
                "x-ratelimit-reset-tokens: 38s",
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn report_at_admission_excludes_settlement() {
    let limits = || Limits::new().output_tokens_per_minute(600);
    let call = Call::new(Dialect::Anthropic).field("max_tokens", 300).output(5);
    for (time, left, reset) in [
        (ReportTime::Admission, "300", "2026-01-01T00:00:30Z"),
        // The other call reserved 300, this one used 5, and 100 were refilled.
        (ReportTime::Response, "395", "2026-01-01T00:00:31Z"),
    ] {
        let response = overtaken_response(Dialect::Anthropic, limits(), time, &call).await;
        let header = |name: &str| {
            response.header(&format!("anthropic-ratelimit-output-tokens-{name}")).unwrap()
        };
        assert_eq!((header("remaining"), header("reset")), (left, reset), "{time:?}");
    }
    for (time, cost) in [(ReportTime::Admission, "2"), (ReportTime::Response, "7")] {
        let call = Call::new(Dialect::Mistral).output(5);
        let limits = Limits::new().tokens_per_minute(6_000);
        let response = overtaken_response(Dialect::Mistral, limits, time, &call).await;
        assert_eq!(response.header("x-ratelimit-tokens-query-cost"), Some(cost), "{time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejections_report_current_limits() {
    let account = account(Dialect::OpenAi, Limits::new().tokens_per_minute(600))
        .report_time(ReportTime::Admission);
    let simulator = with(account);
    let call = Call::new(Dialect::OpenAi).field("max_tokens", 598);
    assert_eq!(call.send(&simulator).await.header("x-ratelimit-remaining-tokens"), Some("0"));
    advance(SECOND * 6).await;
    let refused = call.send(&simulator).await;
    assert_eq!(refused.header("x-ratelimit-remaining-tokens"), Some("60"));
}
