//! A call with the retries of a provider's SDK.
//!
//! It does what the official Python client of OpenAI does unless it is configured otherwise: two
//! retries after 408, 409, 429, 5xx and failed connections; it obeys `x-should-retry`, waits for
//! `retry-after-ms` or `retry-after` up to two minutes, and else for half a second, doubled with
//! each retry, less up to a quarter at random.

use std::time::Duration;

use http::StatusCode;
use tidegate_sim::Random;
use tokio::time::sleep;

use super::agents::Tally;
use super::network::{Answer, Endpoint, SendError};

const RETRIES: u32 = 2;
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(8);
/// A longer wait is not waited for: the call fails.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The call did not succeed, and no retry is left.
#[derive(Debug)]
pub(super) struct CallFailed;

/// Calls until there is a response, or no retry is left.
pub(super) async fn call(
    endpoint: &Endpoint,
    path: &str,
    body: &str,
    random: &mut Random,
    tally: &Tally,
) -> Result<(), CallFailed> {
    for retry in 0..=RETRIES {
        let answer = endpoint.post(path, body.to_owned()).await;
        if let Ok(Answer { status, .. }) = &answer {
            if status.is_success() {
                return Ok(());
            }
            tally.count_status(*status);
        }
        if retry == RETRIES || !is_retryable(&answer) {
            break;
        }
        let asked = answer.ok().and_then(|answer| answer.retry_after);
        match asked.filter(|wait| !wait.is_zero()) {
            Some(wait) if wait > LONGEST_WAIT => break,
            Some(wait) => sleep(wait).await,
            None => sleep(backoff(retry, random)).await,
        }
    }
    Err(CallFailed)
}

fn is_retryable(answer: &Result<Answer, SendError>) -> bool {
    let Ok(answer) = answer else { return true };
    let statuses =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS];
    let by_status = statuses.contains(&answer.status) || answer.status.is_server_error();
    answer.should_retry.unwrap_or(by_status)
}

fn backoff(retry: u32, random: &mut Random) -> Duration {
    let delay = (FIRST_DELAY * 2_u32.pow(retry)).min(MAX_DELAY);
    let percent = u32::try_from(random.between(75, 100)).unwrap_or(100);
    delay * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_vary_by_a_quarter() {
        let mut random = Random::new(1, 1);
        for (retry, most) in [(0, 500), (1, 1_000), (10, 8_000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let delay = backoff(retry, &mut random);
                assert!((most * 3 / 4..=most).contains(&delay), "{retry}: {delay:?}");
            }
        }
    }

    #[test]
    fn the_header_decides_before_the_status() {
        let answer = |status, should_retry| {
            let status = StatusCode::from_u16(status).unwrap();
            is_retryable(&Ok(Answer { status, retry_after: None, should_retry }))
        };
        assert!(answer(429, None) && answer(503, None) && answer(400, Some(true)));
        assert!(!answer(400, None) && !answer(429, Some(false)));
    }
}
