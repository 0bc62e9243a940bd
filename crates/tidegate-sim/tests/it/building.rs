//! Invalid configurations are rejected.

use std::time::{Duration, SystemTime};

use tidegate_sim::{
    Account, BuildError, Dialect, Fault, Faults, Limits, Simulator, SimulatorBuilder,
};

use crate::client::{Call, account};

fn build(accounts: impl IntoIterator<Item = Account>) -> Result<Simulator, BuildError> {
    accounts.into_iter().fold(Simulator::builder(), SimulatorBuilder::account).build()
}

fn labelled(label: &str, key: &str) -> Account {
    Account::new(Dialect::OpenAi, label, key).any_model(Limits::new())
}

#[test]
fn accounts_must_have_unique_labels_and_keys() {
    let twice = build([labelled("a", "key-1"), labelled("a", "key-2")]).unwrap_err();
    assert_eq!(twice, BuildError::DuplicateAccount { label: "a".into() });
    let shared = build([labelled("a", "key-1"), labelled("b", "key-2").key("key-1")]).unwrap_err();
    assert_eq!(shared, BuildError::DuplicateAccount { label: "b".into() });
    assert!(!shared.to_string().contains("key-1"));
    let local = |label: &str| Account::new(Dialect::Ollama, label, label).any_model(Limits::new());
    assert!(build([local("a"), local("b")]).is_err());
    assert!(build([labelled("a", "key-1"), labelled("b", "key-2"), local("c")]).is_ok());
}

#[test]
fn invalid_limits_faults_and_models_are_rejected() {
    let limits = Limits::new().requests_per_minute(0);
    assert!(matches!(
        build([account(Dialect::OpenAi, limits)]),
        Err(BuildError::ZeroLimit { limit: "requests per minute" })
    ));
    let limits = Limits::new().tokens_per_minute(1);
    let error = build([account(Dialect::Gemini, limits)]).unwrap_err();
    assert_eq!(error.to_string(), "Gemini has no limit of tokens per minute");
    let limits = Limits::new().requests_per_minute(1).slice_tokens(Duration::from_secs(1));
    let error = build([account(Dialect::OpenAi, limits)]).unwrap_err();
    assert_eq!(error, BuildError::TokenSliceWithoutLimit);
    let faults = Faults::new().on_call(1, Fault::DayQuota);
    assert!(build([account(Dialect::Ollama, Limits::new()).faults(faults)]).is_err());
    let twice = account(Dialect::OpenAi, Limits::new()).model("m", Limits::new());
    assert!(matches!(build([twice]), Err(BuildError::DuplicateModel { .. })));
    let none = Account::new(Dialect::OpenAi, "a", "key");
    assert!(matches!(build([none]), Err(BuildError::NoModel { .. })));
}

#[tokio::test(start_paused = true)]
async fn wall_clock_starts_at_the_given_time() {
    let starts_at = |time| {
        Simulator::builder()
            .account(account(Dialect::OpenAi, Limits::new()))
            .starts_at(time)
            .build()
    };
    let epoch = SystemTime::UNIX_EPOCH;
    let simulator = starts_at(epoch + Duration::from_secs(784_111_777)).unwrap();
    let response = Call::new(Dialect::OpenAi).send(&simulator).await;
    assert_eq!(response.header("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(starts_at(epoch - Duration::from_secs(1)).unwrap_err(), BuildError::WallClock);
    let late = epoch + Duration::from_secs(600 * 31_556_952);
    assert_eq!(starts_at(late).unwrap_err(), BuildError::WallClock);
}
