//! Scheduled, random and injected faults.

use std::io::ErrorKind;
use std::time::Duration;

use tidegate_sim::{CallEnding, Dialect, Fault, Faults, Hint, Limits, RefusalCause, Simulator};
use tokio::time::{Instant, advance};

use crate::client::{Call, account, simulator, with};

const SECOND: Duration = Duration::from_secs(1);

async fn statuses(simulator: &Simulator, calls: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..calls {
        statuses.push(Call::new(Dialect::OpenAi).output(1).send(simulator).await.status);
    }
    statuses
}

#[tokio::test(start_paused = true)]
async fn planned_faults_occur_on_schedule() {
    let faults = Faults::new().on_calls(2..=3, Fault::ServerError).between(
        SECOND * 60,
        SECOND * 120,
        Fault::Overloaded,
    );
    let simulator = with(account(Dialect::OpenAi, Limits::new()).faults(faults));
    assert_eq!(statuses(&simulator, 4).await, [200, 500, 500, 200]);
    advance(SECOND * 60).await;
    assert_eq!(statuses(&simulator, 2).await, [503, 503]);
    advance(SECOND * 60).await;
    assert_eq!(statuses(&simulator, 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn random_faults_are_reproducible_by_seed() {
    let run = async |seed| {
        let faults = Faults::new().by_chance(1, 4, Fault::ServerError);
        let account = account(Dialect::OpenAi, Limits::new()).faults(faults);
        let simulator = Simulator::builder().account(account).seed(seed).build().unwrap();
        statuses(&simulator, 200).await
    };
    let first = run(1).await;
    let failed = first.iter().filter(|status| **status == 500).count();
    assert!((30..70).contains(&failed), "{failed}");
    assert_eq!(first, run(1).await);
    assert_ne!(first, run(2).await);
}

#[tokio::test(start_paused = true)]
async fn injected_faults_precede_planned_ones_and_can_be_cleared() {
    let faults = Faults::new().on_calls(1..=u64::MAX, Fault::ServerError);
    let simulator = with(account(Dialect::OpenAi, Limits::new()).faults(faults));
    simulator.inject("main", Fault::Unavailable, 2).unwrap();
    simulator.inject("main", Fault::RateLimited { retry_after: None }, 100).unwrap();
    assert_eq!(statuses(&simulator, 3).await, [503, 503, 429]);
    simulator.clear_faults("main").unwrap();
    assert_eq!(statuses(&simulator, 1).await, [500]);
}

#[tokio::test(start_paused = true)]
async fn lock_out_rejects_all_calls_and_reports_the_time_left() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    simulator.lock_out("main", SECOND * 60, Hint::Sent).unwrap();
    advance(SECOND * 20).await;
    let refused = Call::new(Dialect::OpenAi).send(&simulator).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("40")));
    let entry = simulator.ledger().entries().pop().unwrap();
    assert_eq!((entry.refusal, entry.ending), (Some(RefusalCause::LockedOut), CallEnding::Refused));
    advance(SECOND * 40).await;
    assert_eq!(statuses(&simulator, 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn lock_out_can_be_triggered_by_a_call() {
    let fault = Fault::LockOut { length: SECOND * 30, hint: Hint::Withheld };
    let faults = Faults::new().on_call(2, fault);
    let simulator = with(account(Dialect::Anthropic, Limits::new()).faults(faults));
    let call = Call::new(Dialect::Anthropic);
    assert_eq!(call.send(&simulator).await.status, 200);
    for _ in 0..3 {
        let refused = call.send(&simulator).await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, None));
        advance(SECOND * 10).await;
    }
    assert_eq!(call.send(&simulator).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn slow_start_delays_the_first_token() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    simulator.inject("main", Fault::SlowStart(SECOND * 45), 1).unwrap();
    let began = Instant::now();
    let response = Call::new(Dialect::OpenAi).field("stream", true).send(&simulator).await;
    assert!(response.is_complete);
    assert_eq!(began.elapsed(), SECOND * 45);
}

#[tokio::test(start_paused = true)]
async fn reset_sends_no_response() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    simulator.inject("main", Fault::Reset, 1).unwrap();
    let call = Call::new(Dialect::OpenAi);
    let error = call.send_on(simulator.connect().unwrap()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    let kind = source.downcast_ref::<std::io::Error>().unwrap().kind();
    assert_eq!(kind, ErrorKind::ConnectionReset);
    let entry = simulator.ledger().entries().pop().unwrap();
    assert_eq!((entry.status, entry.ending), (None, CallEnding::Failed));
    assert_eq!(statuses(&simulator, 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn connections_are_refused_for_the_given_time() {
    let simulator = simulator(Dialect::OpenAi, Limits::new());
    let open = simulator.connect().unwrap();
    simulator.refuse_connections(SECOND * 5);
    assert_eq!(simulator.connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    tokio::task::yield_now().await;
    assert!(Call::new(Dialect::OpenAi).send_on(open).await.is_err(), "open ones are reset");
    advance(SECOND * 5).await;
    assert_eq!(statuses(&simulator, 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn unsupported_faults_are_rejected() {
    let simulator = simulator(Dialect::Ollama, Limits::new());
    let error = simulator.inject("other", Fault::Reset, 1).unwrap_err();
    assert_eq!(error.to_string(), "no account has the label \"other\"");
    assert!(simulator.inject("main", Fault::DayQuota, 1).is_err());
    assert!(simulator.lock_out("main", SECOND, Hint::Sent).is_err());
    assert!(simulator.inject("main", Fault::Reset, 1).is_ok());
}
