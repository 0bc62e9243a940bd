//! The HTTP API of the Worker and of its objects, without HTTP: a path and a body in, a status and a
//! body out.
//!
//! | Path | Body |
//! | --- | --- |
//! | `/consume` | `{"key","cost","capacity","tokensPerSecond"}`, one bucket |
//! | `/take`, `/peek`, `/reserve`, `/settle`, `/release`, `/renew`, `/hold`, `/reset` | one operation, in milliseconds |
//! | `/operations` | a [`Batch`], in nanoseconds |
//!
//! [`respond`] executes a request on one shard. [`coordinate`](fn@coordinate) executes it on all
//! shards that have a key of it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde_json::Value;
use tidegate_core::{Now, decide};

use crate::coordinate::{self, Step};
use crate::json::{Fields, FromJson, parse};
use crate::message::{
    Batch, ChargeMessage, CorrectionMessage, ErrorMessage, FORMAT, LimitMessage, OperationMessage,
    OutcomeMessage, PolicyMessage, ReceiptMessage, Replies, Reply, RetryMessage, TargetMessage,
};
use crate::route::MAX_SHARDS;
use crate::shard::{Shard, Storage};

/// Largest integer that a JSON number of JavaScript holds exactly.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;
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
    let read = |reply: &ShardReply| match reply.status {
        200 => Replies::parse(reply.body.as_bytes()),
        0 => Err(alloc::format!("no response: {}", reply.body)),
        status => Err(alloc::format!("status {status}: {}", reply.body)),
    };
    let rounds: Vec<Vec<_>> =
        progress.replies.iter().map(|round| round.iter().map(read).collect()).collect();
    match coordinate::advance(&request.batch, progress.shards, &rounds) {
        Step::Send(calls) => NextStep::Send {
            calls: calls
                .iter()
                .map(|call| ShardCall { shard: call.shard, body: to_json(&call.batch) })
                .collect(),
        },
        Step::Done(replies) => {
            let times = rounds.iter().flatten().flatten().map(|replies| replies.now_ns);
            let now_ns = times.max().unwrap_or(0);
            request.render(&Replies { format: FORMAT, now_ns, replies }).into()
        }
    }
}

/// In which form the reply is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Consume,
    Verb,
    Batch,
}

/// A request of any form.
#[derive(Debug)]
struct Request {
    form: Form,
    batch: Batch,
    /// Names of the limits of the charges, for replies to people.
    limits: Vec<Option<String>>,
    is_list: bool,
}

impl Request {
    fn parse(path: &str, body: &[u8]) -> Result<Self, Response> {
        let bad = |reason: String| Response::error(400, &reason);
        let (form, batch, is_list) = match path {
            "/operations" => (Form::Batch, Batch::parse(body).map_err(bad)?, false),
            "/consume" => {
                let consume: Consume = parse(body).map_err(bad)?;
                (Form::Consume, single(consume.operation().map_err(bad)?), false)
            }
            _ => {
                let Some(verb) = path.strip_prefix('/') else { return Err(Response::not_found()) };
                if !VERBS.contains(&verb) {
                    return Err(Response::not_found());
                }
                let fields: Verb = parse(body).map_err(bad)?;
                let is_list = fields.charges.is_some();
                (Form::Verb, single(fields.operation(verb).map_err(bad)?), is_list)
            }
        };
        if form != Form::Batch {
            let targets: Vec<_> = batch.operations[0].targets().collect();
            for target in &targets {
                target.limit.policy.to_policy().map_err(bad)?;
            }
            let keys: Vec<_> = targets.iter().map(|target| target.key()).collect();
            decide::check_list(keys).map_err(|error| bad(error.to_string()))?;
        }
        let targets = batch.operations.iter().take(1).flat_map(OperationMessage::targets);
        let limits = targets.map(|target| target.limit.name.clone()).collect();
        Ok(Self { form, batch, limits, is_list })
    }

    fn render(&self, replies: &Replies) -> Response {
        let first = || replies.replies.first();
        match self.form {
            Form::Batch => Response::ok(replies),
            Form::Consume => first().map_or_else(no_reply, render_consume),
            Form::Verb => first().map_or_else(no_reply, |reply| self.render_verb(reply)),
        }
    }

    fn render_verb(&self, reply: &Reply) -> Response {
        match reply {
            Reply::Allowed { wait_ns, receipt, outcomes } => {
                let is_reservation =
                    matches!(self.batch.operations[0], OperationMessage::Reserve { .. });
                Response::ok(&DecisionBody {
                    allowed: true,
                    by: None,
                    by_index: None,
                    remaining: remaining(outcomes),
                    reset_after_ms: outcomes.iter().filter_map(reset_ms).max(),
                    retry_after_ms: None,
                    wait_ms: is_reservation.then(|| wait_ns.div_ceil(NANOS_PER_MILLI)),
                    receipt: receipt.clone(),
                    charges: self.charges(outcomes),
                })
            }
            Reply::Denied { outcomes } => {
                let (index, retry) = binding(outcomes);
                Response::ok(&DecisionBody {
                    allowed: false,
                    by: Some(self.name(index)),
                    by_index: self.is_list.then_some(index),
                    remaining: remaining(outcomes),
                    reset_after_ms: None,
                    retry_after_ms: Some(retry),
                    wait_ms: None,
                    receipt: None,
                    charges: self.charges(outcomes),
                })
            }
            Reply::Settled { saturated, dropped, applied, outcomes } => {
                Response::ok(&SettledBody {
                    remaining: remaining(outcomes),
                    reset_after_ms: outcomes.iter().filter_map(reset_ms).max(),
                    saturated: *saturated > 0,
                    dropped: *dropped > 0,
                    applied,
                })
            }
            Reply::HeldNs(span) => {
                Response::ok(&HeldBody { held_ms: span.div_ceil(NANOS_PER_MILLI) })
            }
            Reply::Reset(reset) => Response::ok(&ResetBody { reset: *reset }),
            Reply::Slots(slots) => Response::ok(&SlotsBody { slots: *slots }),
            Reply::Error(error) => render_error(error),
        }
    }

    fn name(&self, index: usize) -> &str {
        self.limits.get(index).and_then(Option::as_deref).unwrap_or("inline")
    }

    fn charges(&self, outcomes: &[OutcomeMessage]) -> Option<Vec<ChargeBody<'_>>> {
        let charge = |(index, outcome): (usize, &OutcomeMessage)| ChargeBody {
            limit: self.name(index),
            remaining: outcome.remaining,
            reset_after_ms: reset_ms(outcome),
        };
        self.is_list.then(|| outcomes.iter().enumerate().map(charge).collect())
    }
}

/// Operations on their own, as paths.
const VERBS: [&str; 8] = ["take", "peek", "reserve", "settle", "release", "renew", "hold", "reset"];

fn single(operation: OperationMessage) -> Batch {
    Batch { format: FORMAT, node: None, operations: alloc::vec![operation] }
}

/// Body of `/consume`.
#[derive(Debug)]
struct Consume {
    key: String,
    cost: f64,
    capacity: f64,
    tokens_per_second: f64,
}

impl Consume {
    fn operation(self) -> Result<OperationMessage, String> {
        let cost = whole(self.cost).filter(|&cost| cost > 0);
        let cost = cost.ok_or("Rate limit cost must be a positive integer")?;
        let capacity = whole(self.capacity).filter(|&capacity| capacity > 0);
        let capacity = capacity.ok_or("Rate limit capacity must be >= 1 and an integer")?;
        if self.tokens_per_second <= 0.0 {
            return Err("tokensPerSecond must be > 0".into());
        }
        let policy = PolicyMessage {
            capacity: Some(capacity),
            tokens_per_second: Some(self.tokens_per_second),
            ..PolicyMessage::default()
        };
        let limit = LimitMessage { policy, ..LimitMessage::default() };
        let on = TargetMessage { limit, key: self.key, group: None, windows: None };
        Ok(OperationMessage::Take { charges: alloc::vec![ChargeMessage { on, cost }] })
    }
}

/// Returns a number of JavaScript as an integer, if it is one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked before")]
#[expect(clippy::cast_precision_loss, reason = "integers up to the bound are exact")]
fn whole(number: f64) -> Option<u64> {
    let fits = (0.0..=MAX_SAFE_INTEGER).contains(&number);
    fits.then_some(number as u64).filter(|&integer| integer as f64 == number)
}

/// Body of an operation on its own: one charge, or a list.
#[derive(Debug)]
struct Verb {
    limit: Option<String>,
    policy: Option<PolicyMessage>,
    key: Option<String>,
    group: Option<String>,
    windows: Option<[u32; 4]>,
    cost: Option<u64>,
    delta: Option<i64>,
    charges: Option<Vec<Item>>,
    max_wait_ms: Option<u64>,
    for_ms: Option<u64>,
    receipt: Option<ReceiptMessage>,
}

/// One item of a list.
#[derive(Debug)]
struct Item {
    limit: Option<String>,
    policy: PolicyMessage,
    key: String,
    group: Option<String>,
    windows: Option<[u32; 4]>,
    cost: Option<u64>,
    delta: Option<i64>,
}

impl Item {
    fn into_target(self) -> TargetMessage {
        let limit =
            LimitMessage { name: self.limit, policy: self.policy, ..LimitMessage::default() };
        TargetMessage { limit, key: self.key, group: self.group, windows: self.windows }
    }
}

impl Verb {
    fn operation(mut self, verb: &str) -> Result<OperationMessage, String> {
        for (field, is_set, verbs) in [
            ("cost", self.cost.is_some(), &["take", "peek", "reserve"][..]),
            ("delta", self.delta.is_some(), &["settle"][..]),
            ("max_wait_ms", self.max_wait_ms.is_some(), &["reserve"][..]),
            ("for_ms", self.for_ms.is_some(), &["hold"][..]),
            ("receipt", self.receipt.is_some(), &["settle", "release", "renew"][..]),
        ] {
            if is_set && !verbs.contains(&verb) {
                return Err(alloc::format!("{field} is not a field of {verb}"));
            }
        }
        let receipt = self.receipt.take();
        let (max_wait, hold) = (self.max_wait_ms, self.for_ms);
        let items = self.items()?;
        let is_settle = verb == "settle";
        if items.iter().any(|item| if is_settle { item.cost } else { None }.is_some()) {
            return Err("settle has delta, not cost".into());
        }
        if !is_settle && items.iter().any(|item| item.delta.is_some()) {
            return Err("only settle has delta".into());
        }
        let needs_receipt = |receipt: Option<_>| receipt.ok_or("receipt is required".to_string());
        let one = |items: Vec<Item>| match <[Item; 1]>::try_from(items) {
            Ok([item]) => Ok(item.into_target()),
            Err(_) => Err("this operation has one key, not a list".to_string()),
        };
        let millis = |millis: u64| millis.saturating_mul(NANOS_PER_MILLI);
        Ok(match verb {
            "take" => OperationMessage::Take { charges: charges(items) },
            "peek" => OperationMessage::Peek { charges: charges(items), for_take: false },
            "reserve" => OperationMessage::Reserve {
                charges: charges(items),
                horizon_ns: millis(max_wait.ok_or("max_wait_ms is required")?),
                not_before_ns: 0,
            },
            "settle" => OperationMessage::Settle { corrections: corrections(items)?, receipt },
            "release" => OperationMessage::Release {
                targets: items.into_iter().map(Item::into_target).collect(),
                receipt: needs_receipt(receipt)?,
            },
            "renew" => OperationMessage::Renew {
                targets: items.into_iter().map(Item::into_target).collect(),
                receipt: needs_receipt(receipt)?,
            },
            "hold" => OperationMessage::Hold {
                target: one(items)?,
                span_ns: millis(hold.ok_or("for_ms is required")?),
            },
            _ => OperationMessage::Reset { target: one(items)? },
        })
    }

    /// Returns the list, or the one charge as a list.
    fn items(self) -> Result<Vec<Item>, String> {
        let alone = [
            self.limit.is_some(),
            self.policy.is_some(),
            self.key.is_some(),
            self.group.is_some(),
            self.windows.is_some(),
            self.cost.is_some(),
            self.delta.is_some(),
        ];
        if let Some(items) = self.charges {
            if alone.contains(&true) {
                return Err("charges takes the place of limit, policy, key, cost and delta".into());
            }
            return Ok(items);
        }
        Ok(alloc::vec![Item {
            limit: self.limit,
            policy: self.policy.ok_or("policy is required")?,
            key: self.key.ok_or("key is required")?,
            group: self.group,
            windows: self.windows,
            cost: self.cost,
            delta: self.delta,
        }])
    }
}

fn charges(items: Vec<Item>) -> Vec<ChargeMessage> {
    let charge = |item: Item| {
        let cost = item.cost.unwrap_or(1);
        ChargeMessage { on: item.into_target(), cost }
    };
    items.into_iter().map(charge).collect()
}

fn corrections(items: Vec<Item>) -> Result<Vec<CorrectionMessage>, String> {
    let correction = |item: Item| {
        let delta = item.delta.ok_or("delta is required")?;
        Ok(CorrectionMessage { on: item.into_target(), delta })
    };
    items.into_iter().map(correction).collect()
}

fn render_consume(reply: &Reply) -> Response {
    match reply {
        Reply::Allowed { outcomes, .. } => {
            Response::ok(&ConsumeAllowed { allowed: true, remaining: remaining(outcomes) })
        }
        Reply::Denied { outcomes } => Response::ok(&ConsumeDenied {
            allowed: false,
            remaining: remaining(outcomes),
            retry_after_ms: binding(outcomes).1,
        }),
        Reply::Error(error) => render_error(error),
        _ => no_reply(),
    }
}

fn render_error(error: &ErrorMessage) -> Response {
    let status = match error {
        ErrorMessage::Full => 503,
        // Other versions of the storage, and shards that do not respond.
        ErrorMessage::Rejected(_) => 500,
        _ => 400,
    };
    Response::error(status, &error.to_error().to_string())
}

fn no_reply() -> Response {
    Response::error(500, "the shard returned no reply")
}

fn remaining(outcomes: &[OutcomeMessage]) -> u64 {
    outcomes.iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
}

fn reset_ms(outcome: &OutcomeMessage) -> Option<u64> {
    outcome.reset_ns.map(|ns| ns.div_ceil(NANOS_PER_MILLI))
}

/// Returns the charge with the longest wait, and the wait in milliseconds; null if it never fits,
/// one second if a slot must be released first.
fn binding(outcomes: &[OutcomeMessage]) -> (usize, Option<u64>) {
    let order = |retry: &Option<RetryMessage>| match *retry {
        None => (0, 0),
        Some(RetryMessage::AfterNs(wait)) => (1, wait),
        Some(RetryMessage::OnRelease) => (2, 0),
        Some(RetryMessage::Never) => (3, 0),
    };
    let mut longest = (0, (0, 0));
    for (index, outcome) in outcomes.iter().enumerate() {
        if order(&outcome.retry) > longest.1 {
            longest = (index, order(&outcome.retry));
        }
    }
    let retry = match longest.1 {
        (3, _) => None,
        (2, _) => Some(1_000),
        (_, wait) => Some(wait.div_ceil(NANOS_PER_MILLI)),
    };
    (longest.0, retry)
}

#[derive(Serialize)]
struct ConsumeAllowed {
    allowed: bool,
    remaining: u64,
}

#[derive(Serialize)]
struct ConsumeDenied {
    allowed: bool,
    remaining: u64,
    #[serde(rename = "retryAfterMs")]
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct DecisionBody<'r> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_index: Option<usize>,
    remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    /// Null if the list never fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<Option<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charges: Option<Vec<ChargeBody<'r>>>,
}

#[derive(Serialize)]
struct ChargeBody<'r> {
    limit: &'r str,
    remaining: u64,
    reset_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct SettledBody<'r> {
    remaining: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    saturated: bool,
    dropped: bool,
    applied: &'r [i64],
}

#[derive(Serialize)]
struct HeldBody {
    held_ms: u64,
}

#[derive(Serialize)]
struct ResetBody {
    reset: bool,
}

#[derive(Serialize)]
struct SlotsBody {
    slots: u64,
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

impl FromJson for Consume {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let consume = Self {
            key: fields.required("key")?,
            cost: fields.required("cost")?,
            capacity: fields.required("capacity")?,
            tokens_per_second: fields.required("tokensPerSecond")?,
        };
        fields.finish().map(|()| consume)
    }
}

impl FromJson for Verb {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let verb = Self {
            limit: fields.optional("limit")?,
            policy: fields.optional("policy")?,
            key: fields.optional("key")?,
            group: fields.optional("group")?,
            windows: fields.optional("windows")?,
            cost: fields.optional("cost")?,
            delta: fields.optional("delta")?,
            charges: fields.optional("charges")?,
            max_wait_ms: fields.optional("max_wait_ms")?,
            for_ms: fields.optional("for_ms")?,
            receipt: fields.optional("receipt")?,
        };
        fields.finish().map(|()| verb)
    }
}

impl FromJson for Item {
    fn from_json(value: Value) -> Result<Self, String> {
        let mut fields = Fields::new(value)?;
        let item = Self {
            limit: fields.optional("limit")?,
            policy: fields.required("policy")?,
            key: fields.required("key")?,
            group: fields.optional("group")?,
            windows: fields.optional("windows")?,
            cost: fields.optional("cost")?,
            delta: fields.optional("delta")?,
        };
        fields.finish().map(|()| item)
    }
}

fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).unwrap_or_default()
}
