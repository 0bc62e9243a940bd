//! Together: limits by the second, told by the second, and a rate limit that calls itself a limit of
//! credit.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{plain, server_error};
use super::{Failure, Fields, Refused, Scene};
use crate::calendar::whole_seconds;

pub(super) static TOGETHER: Compatible = Compatible {
    prefixes: &["/v1"],
    embeddings: true,
    forbidden: &[],
    announce,
    refuse,
    breaking: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn announce(scene: &Scene<'_>, fields: &mut Fields) {
    if let Some(gauge) = scene.standing.slice {
        fields.set("x-ratelimit-limit", gauge.limit);
        fields.set("x-ratelimit-remaining", gauge.remaining);
        fields.set("x-ratelimit-reset", whole_seconds(gauge.reset));
    }
    if let Some(gauge) = scene.standing.second_tokens {
        fields.set("x-tokenlimit-limit", gauge.limit);
        fields.set("x-tokenlimit-remaining", gauge.remaining);
    }
}

fn refuse(failure: &Failure, scene: &Scene<'_>) -> Refused {
    let mut refused = match failure {
        Failure::Limited(_)
        | Failure::Busy { .. }
        | Failure::Throttled { .. }
        | Failure::DayQuota { .. } => {
            let message = format!("You have reached the rate limit of the model {}.", scene.model);
            let body = error(&message, "credit_limit", None);
            let mut refused = Refused::new(StatusCode::TOO_MANY_REQUESTS, body);
            if let Some(wait) = scene.wait(failure) {
                refused.fields.set("retry-after", whole_seconds(wait));
            }
            refused
        }
        other => plain(other),
    };
    announce(scene, &mut refused.fields);
    refused
}
