//! OpenRouter: nothing about limits until one is hit, numbers for codes, and streams that fail in a
//! chunk of their own.

use http::StatusCode;
use serde_json::{Value, json};

use super::compatible::{Compatible, StreamUsage};
use super::{Failure, Fields, Refused, Reply, Scene};
use crate::calendar::{SECOND, whole_seconds};
use crate::limits::quota::{Dimension, Gauge};
use crate::reporting::Reporting;

pub(super) static OPENROUTER: Compatible = Compatible {
    prefixes: &["/api/v1"],
    embeddings: false,
    forbidden: &[],
    announce: |_, _| {},
    refuse,
    breaking,
    stream_usage: StreamUsage::OnRequest,
    keep_alive: None,
};

fn breaking(reply: &Reply) -> Value {
    json!({
        "id": format!("gen-sim-{}", reply.number),
        "object": "chat.completion.chunk",
        "created": reply.created,
        "model": reply.model,
        "error": { "code": 502, "message": "The provider disconnected." },
        "choices": [{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }],
    })
}

fn refuse(failure: &Failure, scene: &Scene<'_>) -> Refused {
    let limits = limits(failure, scene);
    let (status, message) = match failure {
        Failure::Limited(blocked) if blocked.dimension == Dimension::Day => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-day")
        }
        Failure::DayQuota { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-day")
        }
        Failure::Limited(_) | Failure::Busy { .. } | Failure::Throttled { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "Rate limit exceeded: requests-per-min")
        }
        Failure::OutOfCredit => (StatusCode::PAYMENT_REQUIRED, "There is no credit left."),
        Failure::ServerError => {
            (StatusCode::INTERNAL_SERVER_ERROR, "The server had an error while it answered.")
        }
        Failure::Unavailable | Failure::Overloaded => {
            (StatusCode::SERVICE_UNAVAILABLE, "No provider is available.")
        }
        Failure::BadKey => (StatusCode::UNAUTHORIZED, "There is no such key."),
        Failure::NoModel(_) => (StatusCode::BAD_REQUEST, "There is no such model."),
        Failure::NoPath => (StatusCode::NOT_FOUND, "There is nothing at this URL."),
        Failure::BadRequest(why) => (StatusCode::BAD_REQUEST, *why),
    };
    let mut metadata = json!({ "provider_name": "sim" });
    if status == StatusCode::TOO_MANY_REQUESTS {
        metadata["provider_code"] = json!(429);
    }
    let mut fields = Fields::default();
    if let Some(gauge) = limits {
        let reset = scene.now.millisecond_after(gauge.reset).to_string();
        fields.set("x-ratelimit-limit", gauge.limit);
        fields.set("x-ratelimit-remaining", gauge.remaining);
        fields.set("x-ratelimit-reset", &reset);
        metadata["headers"] = json!({
            "X-RateLimit-Limit": gauge.limit.to_string(),
            "X-RateLimit-Remaining": gauge.remaining.to_string(),
            "X-RateLimit-Reset": reset,
        });
    }
    if let Some(wait) = scene.wait(failure) {
        fields.set("retry-after", whole_seconds(wait));
    }
    let body = json!({
        "error": { "code": status.as_u16(), "message": message, "metadata": metadata },
    });
    Refused { status, fields, body }
}

/// The limit that an error tells of; its reset is when the next call gets through.
fn limits(failure: &Failure, scene: &Scene<'_>) -> Option<Gauge> {
    let wait = scene.wait(failure)?;
    let (gauge, is_of_a_day) = match failure {
        Failure::Limited(blocked) => {
            (scene.standing.of(blocked.dimension)?, blocked.dimension == Dimension::Day)
        }
        Failure::DayQuota { limit, .. } => {
            (scene.reporting.gauge(Gauge { limit: *limit, remaining: 0, reset: wait }), true)
        }
        _ => (scene.reporting.gauge(Gauge { remaining: 0, ..scene.standing.requests? }), false),
    };
    let reset = match scene.reporting {
        Reporting::OfASecond if !is_of_a_day => SECOND,
        _ => wait,
    };
    Some(Gauge { reset, ..gauge })
}
