//! Loading models: their modules and what they share. Needs neither real time nor a network (R78).

mod bucket;
mod deadlines;
mod direct;
mod loading;
mod sharing;
mod stack;
mod waiting;

use std::time::Duration;

use tidegate_llm::Call;
use tidegate_llm::mock::Mock;
use tidegate_llm::models::{Model, Models, ModelsBuilder};
use tidegate_llm::settings::RateLimitSettings;
use tidegate_providers::Chat;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A registry of mock providers that respond at once.
fn registry(providers: &[&str]) -> ModelsBuilder {
    tidegate_providers::tokens::prepare();
    let add = |builder: ModelsBuilder, name: &&str| builder.backend(*name, Mock::new(*name));
    providers.iter().fold(Models::builder(), add)
}

pub(crate) fn limits(requests_per_minute: u32, burst: u32) -> RateLimitSettings {
    RateLimitSettings::new().requests_per_minute(requests_per_minute).burst(burst)
}

fn per_minute(requests: u32) -> RateLimitSettings {
    RateLimitSettings::new().requests_per_minute(requests)
}

fn hello() -> Call {
    Call::new(Chat::user("hello"))
}

/// Makes a call and returns its duration: the wait, since the mock responds at once.
async fn wait(model: &Model) -> Duration {
    let began = Instant::now();
    model.invoke(hello()).await.unwrap();
    began.elapsed()
}

/// Returns the number of calls that can be made at once.
async fn at_once(model: &Model) -> usize {
    let mut count = 0;
    while wait(model).await.is_zero() {
        count += 1;
        assert!(count < 1_000, "there is no limit");
    }
    count
}
