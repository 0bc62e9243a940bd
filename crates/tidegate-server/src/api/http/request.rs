//! Parses JSON bodies into lists of charges. All invalid fields are reported at once.
//!
//! Inline policies have the same keys and rules as in the configuration file.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate::{Key, Limiter, Receipt};
use tidegate_config::{Calendar, Fields, Path, Rule, Value, Violation, read_policy};
use tidegate_core::{
    ChargeError, KeyError, Limit, MAX_CHARGES, MAX_SPAN, ReceiptError, Target, WallTime, Windows,
};

use super::response::DenyStatus;
use crate::api::problem::{Problem, receipt_rule};
use crate::configuration::limits::{ConfiguredLimit, ConfiguredLimits};
use crate::metrics::LimitMetrics;

/// Maximum number of limits listed in an error.
const MAX_LISTED_LIMITS: usize = 10;

/// Validation rules of requests, in addition to those of policies.
#[derive(Debug, thiserror::Error)]
enum RequestRule {
    #[error("{name:?} is not a configured limit; {}", configured(known))]
    UnknownLimit { name: String, known: Vec<String> },
    #[error("cannot be combined with `policy`: name a configured limit or give a policy, not both")]
    LimitAndPolicy,
    #[error("is required: name a configured limit, or give a `policy` instead")]
    NoLimit,
    #[error("must be in the items of `charges` if there is such a list")]
    BesideCharges,
    #[error("must be a 64-bit integer; negative values are refunds")]
    NotSigned,
    #[error("must be at most {} (100 years)", MAX_SPAN.as_millis())]
    TooLong,
    #[error("must be 200 or 429")]
    DenyStatus,
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Charges(#[from] ChargeError),
    #[error("{}", receipt_rule(*.0))]
    Receipt(#[from] ReceiptError),
}

fn configured(known: &[String]) -> String {
    match known {
        [] => "no limits are configured; give a `policy`".to_owned(),
        known => format!("known limits are {}", known.join(", ")),
    }
}

impl From<RequestRule> for Rule {
    fn from(rule: RequestRule) -> Self {
        Self::Other(Box::new(rule))
    }
}

/// Context for parsing a request: the configured limits and the time for calendars.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'s> {
    pub(crate) limits: &'s ConfiguredLimits,
    /// Metrics of decisions on inline policies.
    pub(crate) inline: &'s LimitMetrics,
    pub(crate) wall: &'s (dyn Fn() -> WallTime + Sync),
    /// Keys that every request may have besides those of its verb, and that were read before.
    pub(crate) extra_keys: &'static [&'static str],
}

/// One bucket of a request, with an amount.
pub(crate) struct Item<'v, N> {
    pub(crate) limit: Cow<'v, Limit>,
    /// The limiter, if the limit is a configured one.
    pub(crate) limiter: Option<&'v Limiter>,
    /// The calendar, if the limit is a calendar quota.
    pub(crate) calendar: Option<Cow<'v, Calendar>>,
    /// Metrics of decisions on this limit.
    pub(crate) metrics: &'v LimitMetrics,
    key: &'v str,
    group: Option<&'v str>,
    windows: Option<Windows>,
    pub(crate) amount: N,
}

impl<N> Item<'_, N> {
    /// Returns the key and its group.
    pub(crate) const fn names(&self) -> (&str, Option<&str>) {
        (self.key, self.group)
    }

    pub(crate) fn key(&self) -> Key<'_> {
        let key = Key::new(self.key);
        match self.group {
            Some(group) => key.in_group(group),
            None => key,
        }
    }

    pub(crate) fn target(&self) -> Target<'_> {
        Target { limit: &self.limit, key: self.key(), windows: self.windows }
    }
}

/// A limit that a request names, or an inline policy.
struct ResolvedLimit<'v> {
    limit: Cow<'v, Limit>,
    limiter: Option<&'v Limiter>,
    calendar: Option<Cow<'v, Calendar>>,
    metrics: &'v LimitMetrics,
}

/// The buckets of a request: a single one, or a list under `charges`.
pub(crate) struct List<'v, N> {
    pub(crate) items: Vec<Item<'v, N>>,
    pub(crate) is_list: bool,
}

/// Request of take and peek.
pub(crate) struct Spend<'v> {
    pub(crate) list: List<'v, u64>,
    pub(crate) receipt: bool,
}

/// Request of reserve.
pub(crate) struct Reserve<'v> {
    pub(crate) list: List<'v, u64>,
    pub(crate) max_wait: Duration,
}

/// Request of settle.
pub(crate) struct Settle<'v> {
    pub(crate) list: List<'v, i64>,
    pub(crate) receipt: Option<Receipt>,
}

/// Parses a JSON body.
pub(crate) fn parse(body: &[u8]) -> Result<Value<'_>, Problem> {
    serde_json::from_slice(body).map_err(Problem::Malformed)
}

/// Parses `deny_status` in the query: the status of denials.
pub(crate) fn deny_status(query: Option<&str>) -> Result<DenyStatus, Problem> {
    let (root, mut violations, mut deny) = (Path::Root, Vec::new(), DenyStatus::default());
    let parameters = query.unwrap_or("").split('&').filter(|parameter| !parameter.is_empty());
    for parameter in parameters {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let rule = match (name, value) {
            ("deny_status", "200") => {
                deny = DenyStatus::Ok;
                continue;
            }
            ("deny_status", "429") => {
                deny = DenyStatus::TooManyRequests;
                continue;
            }
            ("deny_status", _) => RequestRule::DenyStatus.into(),
            (name, _) => Rule::unknown(name, &["deny_status"]),
        };
        let field = format!("?{name}");
        violations.push(Violation::at(Path::Key(&root, &field), &Value::text(value), rule));
    }
    if violations.is_empty() { Ok(deny) } else { Err(violations.into()) }
}

impl<'v> Reader<'v> {
    pub(crate) fn take(self, body: &'v Value<'v>) -> Result<Spend<'v>, Problem> {
        self.read(body, &["key", "cost", "limit", "policy", "group", "charges", "receipt"], |top| {
            let receipt = top.read("receipt", Value::to_bool);
            let list = self.list(top, "cost", cost)?;
            Some(Spend { list, receipt: receipt.unwrap_or(false) })
        })
    }

    pub(crate) fn peek(self, body: &'v Value<'v>) -> Result<Spend<'v>, Problem> {
        self.read(body, &["key", "cost", "limit", "policy", "group", "charges"], |top| {
            Some(Spend { list: self.list(top, "cost", cost)?, receipt: false })
        })
    }

    pub(crate) fn reserve(self, body: &'v Value<'v>) -> Result<Reserve<'v>, Problem> {
        let known = ["key", "cost", "limit", "policy", "group", "charges", "max_wait_ms"];
        self.read(body, &known, |top| {
            let max_wait = top.require("max_wait_ms", millis);
            let list = self.list(top, "cost", cost)?;
            Some(Reserve { list, max_wait: max_wait? })
        })
    }

    pub(crate) fn settle(self, body: &'v Value<'v>) -> Result<Settle<'v>, Problem> {
        let known = ["key", "delta", "limit", "policy", "group", "charges", "receipt"];
        self.read(body, &known, |top| {
            let receipt = top.read("receipt", receipt);
            let list = self.list(top, "delta", delta)?;
            Some(Settle { list, receipt })
        })
    }

    pub(crate) fn hold(self, body: &'v Value<'v>) -> Result<Item<'v, Duration>, Problem> {
        self.read(body, &["key", "limit", "policy", "group", "for_ms"], |top| {
            self.item(top, |top| top.require("for_ms", millis))
        })
    }

    pub(crate) fn reset(self, body: &'v Value<'v>) -> Result<Item<'v, ()>, Problem> {
        self.read(body, &["key", "limit", "policy", "group"], |top| self.item(top, |_| Some(())))
    }

    /// Parses a body that may also have the keys in `beside`.
    pub(super) fn read<T>(
        self,
        body: &'v Value<'v>,
        known: &[&'static str],
        read: impl FnOnce(&mut Fields<'v, '_>) -> Option<T>,
    ) -> Result<T, Problem> {
        self::read(body, &[known, self.extra_keys].concat(), read)
    }

    pub(super) fn list<N>(
        self,
        top: &mut Fields<'v, '_>,
        amount_key: &'static str,
        amount: fn(&mut Fields<'v, '_>) -> Option<N>,
    ) -> Option<List<'v, N>> {
        let Some(charges) = top.get("charges") else {
            let item = self.item(top, amount)?;
            return Some(List { items: vec![item], is_list: false });
        };
        let known = ["key", amount_key, "limit", "policy", "group"];
        for key in known {
            if top.get(key).is_some() {
                top.report(key, RequestRule::BesideCharges.into());
            }
        }
        let charges = top.read("charges", |_| list_of_charges(charges))?;
        let path = top.path();
        let path = Path::Key(&path, "charges");
        let mut items = Vec::with_capacity(charges.len());
        for (index, charge) in charges.iter().enumerate() {
            let path = Path::Index(&path, index);
            if let Some(mut fields) = Fields::open(charge, path, &known, top.violations()) {
                items.extend(self.item(&mut fields, amount));
            }
        }
        Some(List { items, is_list: true })
    }

    fn item<N>(
        self,
        fields: &mut Fields<'v, '_>,
        amount: impl FnOnce(&mut Fields<'v, '_>) -> Option<N>,
    ) -> Option<Item<'v, N>> {
        let key = fields.require("key", key_text);
        let group = fields.read("group", key_text);
        let amount = amount(fields);
        let ResolvedLimit { limit, limiter, calendar, metrics } = self.limit(fields)?;
        let windows = calendar.as_deref().map(|calendar| calendar.windows((self.wall)()));
        let (key, amount) = (key?, amount?);
        Some(Item { limit, limiter, calendar, metrics, key, group, windows, amount })
    }

    fn limit(self, fields: &mut Fields<'v, '_>) -> Option<ResolvedLimit<'v>> {
        match (fields.get("limit"), fields.get("policy")) {
            (Some(_), Some(_)) => fields.report("limit", RequestRule::LimitAndPolicy.into()),
            (None, None) => fields.report("limit", RequestRule::NoLimit.into()),
            (Some(_), None) => {
                let found =
                    fields.read("limit", |value| self.configured_limit(value.to_text()?))?;
                let calendar = found.calendar.as_ref().map(Cow::Borrowed);
                let (limit, metrics) = (Cow::Borrowed(&found.limit), &found.metrics);
                return Some(ResolvedLimit {
                    limit,
                    limiter: Some(&found.limiter),
                    calendar,
                    metrics,
                });
            }
            (None, Some(policy)) => {
                let path = fields.path();
                let path = Path::Key(&path, "policy");
                let plan = read_policy(policy, path, fields.violations())?;
                let limit = match &plan.calendar {
                    Some(calendar) => Limit::inline_on(calendar.name(), plan.policy),
                    None => Limit::inline(plan.policy),
                };
                let (limit, calendar) = (Cow::Owned(limit), plan.calendar.map(Cow::Owned));
                return Some(ResolvedLimit {
                    limit,
                    limiter: None,
                    calendar,
                    metrics: self.inline,
                });
            }
        }
        None
    }

    fn configured_limit(self, name: &str) -> Result<&'v ConfiguredLimit, Rule> {
        self.limits.get(name).ok_or_else(|| {
            let known =
                self.limits.names().take(MAX_LISTED_LIMITS).map(ToOwned::to_owned).collect();
            let name = name.chars().take(64).collect();
            RequestRule::UnknownLimit { name, known }.into()
        })
    }
}

/// Parses a body. Returns all errors as one problem.
pub(crate) fn read<'v, T>(
    body: &'v Value<'v>,
    known: &[&'static str],
    read: impl FnOnce(&mut Fields<'v, '_>) -> Option<T>,
) -> Result<T, Problem> {
    let mut violations = Vec::new();
    let read = match Fields::open(body, Path::Root, known, &mut violations) {
        Some(mut top) => read(&mut top),
        None => None,
    };
    match read {
        Some(read) if violations.is_empty() => Ok(read),
        _ => Err(violations.into()),
    }
}

fn list_of_charges<'v>(value: &'v Value<'v>) -> Result<&'v [Value<'v>], Rule> {
    match value.to_list()? {
        [] => Err(RequestRule::from(ChargeError::Empty).into()),
        list if list.len() > MAX_CHARGES => {
            Err(RequestRule::from(ChargeError::TooMany(list.len())).into())
        }
        list => Ok(list),
    }
}

/// Parses a key or a group, to which the same rules apply.
pub(crate) fn key_text<'v>(value: &'v Value<'v>) -> Result<&'v str, Rule> {
    let text = value.to_text()?;
    Key::new(text).check().map_err(RequestRule::from)?;
    Ok(text)
}

pub(crate) fn cost(fields: &mut Fields<'_, '_>) -> Option<u64> {
    match fields.get("cost") {
        Some(_) => fields.read("cost", |value| value.to_whole(0)),
        None => Some(1),
    }
}

fn delta(fields: &mut Fields<'_, '_>) -> Option<i64> {
    fields.require("delta", signed)
}

/// Parses a signed 64-bit integer.
pub(super) fn signed(value: &Value<'_>) -> Result<i64, Rule> {
    let number = value.as_number().and_then(tidegate_config::Number::signed);
    number.ok_or(RequestRule::NotSigned.into())
}

fn millis(value: &Value<'_>) -> Result<Duration, Rule> {
    let span = Duration::from_millis(value.to_whole(0)?);
    if span > MAX_SPAN { Err(RequestRule::TooLong.into()) } else { Ok(span) }
}

fn receipt(value: &Value<'_>) -> Result<Receipt, Rule> {
    let bytes = URL_SAFE_NO_PAD.decode(value.to_text()?);
    let bytes = bytes.map_err(|_| RequestRule::from(ReceiptError::Malformed))?;
    Ok(Receipt::from_bytes(&bytes).map_err(RequestRule::from)?)
}
