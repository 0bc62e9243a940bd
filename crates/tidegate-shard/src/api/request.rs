//! Requests: which operation a path and a body ask for.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;
use tidegate_core::{Limit, PolicyError, decide};

use super::{NANOS_PER_MILLI, Response};
use crate::json::{Fields, FromJson, parse};
use crate::message::{
    Batch, ChargeMessage, CorrectionMessage, FORMAT, LimitMessage, OperationMessage, PolicyMessage,
    ReceiptMessage, TargetMessage,
};

/// Largest integer that a JSON number of JavaScript holds exactly.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;

/// In which form the reply is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Consume,
    Verb,
    Batch,
}

/// A request of any form.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) form: Form,
    pub(super) batch: Batch,
    /// Names of the limits of the charges, for replies to people.
    pub(super) limits: Vec<Option<String>>,
    pub(super) is_list: bool,
}

impl Request {
    pub(super) fn parse(path: &str, body: &[u8]) -> Result<Self, Response> {
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
                let policy = target.limit.policy.to_policy().map_err(bad)?;
                target.windows().map_err(bad)?;
                if let Some(name) = &target.limit.name {
                    Limit::named(name, policy).map_err(|error| bad(error.to_string()))?;
                }
            }
            let keys: Vec<_> = targets.iter().map(|target| target.key()).collect();
            decide::check_list(keys).map_err(|error| bad(error.to_string()))?;
        }
        let targets = batch.operations.iter().take(1).flat_map(OperationMessage::targets);
        let limits = targets.map(|target| target.limit.name.clone()).collect();
        Ok(Self { form, batch, limits, is_list })
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
        let capacity = match whole(self.capacity) {
            _ if self.capacity < 1.0 => Err(PolicyError::Capacity),
            Some(capacity) => Ok(capacity),
            None => Err(PolicyError::FractionalCapacity),
        };
        let capacity = capacity.map_err(|error| error.to_string())?;
        if self.tokens_per_second <= 0.0 {
            return Err("tokensPerSecond must be > 0".into());
        }
        let policy = PolicyMessage {
            capacity: Some(capacity),
            tokens_per_second: Some(self.tokens_per_second),
            // This path neither settles nor reserves. As in the memory limiter of the npm package.
            max_debt: Some(0),
            horizon_ns: Some(0),
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
