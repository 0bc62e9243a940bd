//! The HTTP API of the Worker and of its objects, without HTTP: a path and a body in, a status and a
//! body out.
//!
//! | Path | Body |
//! | --- | --- |
//! | `/consume` | `{"key","cost","capacity","tokensPerSecond"}`, one bucket |
//! | `/take`, `/peek`, `/reserve`, `/settle`, `/release`, `/renew`, `/hold`, `/reset` | one operation, in milliseconds |
//! | `/operations` | a [`Batch`](crate::message::Batch), in nanoseconds |
//!
//! [`respond`] executes a request on one shard. [`coordinate`](fn@coordinate) executes one operation
//! on all shards that have a key of it.

mod render;
mod request;

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::Value;
use tidegate_core::Now;

use crate::coordinate::{self, CoordinatorStep};
use crate::json::{Fields, FromJson, parse};
use crate::message::{ErrorMessage, FORMAT, Replies};
use crate::route::MAX_SHARDS;
use crate::shard::{Shard, Storage};
use request::Request;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A response: an HTTP status and a body, JSON if the status is 200, else a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

impl Response {
    fn ok(body: &impl Serialize) -> Self {
        Self { status: 200, body: to_json(body) }
    }

    fn error(status: u16, reason: &str) -> Self {
        Self { status, body: alloc::format!("Error: {reason}") }
    }

    fn not_found() -> Self {
        Self { status: 404, body: "Not found".into() }
    }
}

/// Executes the POST request on one shard.
pub fn respond<S: Storage>(shard: &mut Shard<S>, path: &str, body: &[u8], now: Now) -> Response {
    match Request::parse(path, body) {
        Ok(request) => request.render(&shard.run(&request.batch, now)),
        Err(response) => response,
    }
}

/// What the Worker has to do next for a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum NextStep {
    /// Send these to `/operations` of their shards, concurrently, and call again with the replies.
    Send { calls: Vec<ShardCall> },
    /// Return this to the caller.
    Done { status: u16, body: String },
}

/// A request to one shard.
#[derive(Debug, Serialize)]
struct ShardCall {
    shard: u32,
    body: String,
}

/// A request and all replies of shards so far. Bodies are texts, because numbers in them would not
/// survive in JavaScript.
#[derive(Debug)]
struct Progress {
    shards: u32,
    path: String,
    body: String,
    replies: Vec<Vec<ShardReply>>,
}

/// The response of one shard; status 0 if there was none.
#[derive(Debug)]
struct ShardReply {
    status: u16,
    body: String,
}

/// Returns what to do next for a request, as JSON: `{"calls":[{"shard","body"}]}` or
/// `{"status","body"}`. The argument is JSON, too:
/// `{"shards","path","body","replies":[[{"status","body"}]]}`.
#[must_use]
pub fn coordinate(progress: &[u8]) -> String {
    let next = match parse::<Progress>(progress) {
        Ok(progress) => next_step(&progress),
        Err(reason) => Response::error(500, &reason).into(),
    };
    to_json(&next)
}

impl From<Response> for NextStep {
    fn from(Response { status, body }: Response) -> Self {
        Self::Done { status, body }
    }
}

fn next_step(progress: &Progress) -> NextStep {
    if progress.shards == 0 || progress.shards > MAX_SHARDS {
        let reason = alloc::format!("the number of shards must be from 1 to {MAX_SHARDS}");
        return Response::error(400, &reason).into();
    }
    let request = match Request::parse(&progress.path, progress.body.as_bytes()) {
        Ok(request) => request,
        Err(response) => return response.into(),
    };
    if request.batch.operations.len() > 1 {
        // Each would add its round trips to those before it.
        let reason = "a batch for several shards has one operation; send one request for each";
        return Response::error(400, reason).into();
    }
    let read = |reply: &ShardReply| match reply.status {
        200 => Replies::parse(reply.body.as_bytes()).map_err(ErrorMessage::Unavailable),
        0 => Err(ErrorMessage::Unavailable(alloc::format!("no response: {}", reply.body))),
        status => {
            let reason = alloc::format!("status {status}: {}", reply.body);
            let is_shards_fault = status >= 500;
            Err(if is_shards_fault {
                ErrorMessage::Unavailable(reason)
            } else {
                ErrorMessage::Rejected(reason)
            })
        }
    };
    let rounds: Vec<Vec<_>> =
        progress.replies.iter().map(|round| round.iter().map(read).collect()).collect();
    match coordinate::advance(&request.batch, progress.shards, &rounds) {
        CoordinatorStep::Send(calls) => NextStep::Send {
            calls: calls
                .iter()
                .map(|call| ShardCall { shard: call.shard, body: to_json(&call.batch) })
                .collect(),
        },
        CoordinatorStep::Done(replies) => {
            let times = rounds.iter().flatten().flatten().map(|replies| replies.now_ns);
            let now_ns = times.max().unwrap_or(0);
            request.render(&Replies { format: FORMAT, now_ns, replies }).into()
        }
    }
}

impl FromJson for Progress {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        Ok(Self {
            shards: fields.required("shards")?,
            path: fields.required("path")?,
            body: fields.required("body")?,
            replies: fields.optional("replies")?.unwrap_or_default(),
        })
    }
}

impl FromJson for ShardReply {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        Ok(Self { status: fields.required("status")?, body: fields.required("body")? })
    }
}

fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}
