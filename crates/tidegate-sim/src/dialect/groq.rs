//! Groq: OpenAI's names with other meanings. Its `-requests` headers are about the day, its
//! `-tokens` headers about the minute, and `retry-after` comes on 429 alone.

use http::StatusCode;

use super::compatible::{Compatible, StreamUsage, error};
use super::openai::{Wording, gauges, refuse_in, server_error};
use super::{Failure, Fields, Refused, Scene};
use crate::calendar::go_duration;

pub(super) static GROQ: Compatible = Compatible {
    prefixes: &["/openai/v1"],
    embeddings: false,
    forbidden: &[],
    announce,
    refuse,
    breaking: |_| server_error(),
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn announce(scene: &Scene<'_>, fields: &mut Fields) {
    fields.set("x-request-id", format_args!("req_sim_{}", scene.number));
    gauges(scene.standing.day, scene.standing.tokens, fields, go_duration);
}

fn refuse(failure: &Failure, scene: &Scene<'_>) -> Refused {
    let wording = Wording {
        whose: |model| format!("model `{model}` in organization `org_sim`"),
        sends_millis: false,
    };
    let mut refused = match failure {
        // Only the words differ from a rate limit, and that there is nothing to wait for.
        Failure::OutOfCredit => Refused::new(
            StatusCode::TOO_MANY_REQUESTS,
            error(
                "The monthly quota of organization `org_sim` is used up.",
                "requests",
                Some("rate_limit_exceeded"),
            ),
        ),
        other => refuse_in(&wording, other, scene),
    };
    announce(scene, &mut refused.fields);
    refused
}
