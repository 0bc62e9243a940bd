//! Parses requests on permits: acquire, release, renew, and settle by id.

use std::time::Duration;

use tidegate::pacer::Priority;
use tidegate_config::{Fields, Path, Rule, Value};
use tidegate_http::problem::FieldError;

use super::request::{List, Reader, cost, key_text, read, signed};
use crate::api::problem::Problem;
use crate::permits::{GrantedCharge, PermitId, PermitIdError};

/// Default maximum wait of an acquire.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(30);

/// Longest accepted maximum wait.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// Default lifetime of a permit.
pub(super) const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// Longest accepted lifetime of a permit.
const MAX_TTL: Duration = Duration::from_secs(24 * 3_600);

const PRIORITIES: &[&str] = &["high", "normal", "low"];

/// Validation rules of permits, in addition to those of lists.
#[derive(Debug, thiserror::Error)]
enum PermitRule {
    #[error(transparent)]
    Id(#[from] PermitIdError),
    #[error("cannot be combined with `delta`: give the actual cost or the difference, not both")]
    CostAndDelta,
    #[error("cannot be combined with `charges`")]
    BesideCharges,
    #[error(
        "is required: give the actual cost as `cost`, or the difference to the charge as `delta`"
    )]
    NoCost,
}

impl From<PermitRule> for Rule {
    fn from(rule: PermitRule) -> Self {
        Self::Other(Box::new(rule))
    }
}

/// Request of `/v1/acquire`.
pub(super) struct Acquire<'v> {
    pub(super) list: List<'v, u64>,
    pub(super) max_wait: Duration,
    pub(super) ttl: Duration,
    pub(super) tenant: Option<&'v str>,
    pub(super) priority: Priority,
}

/// Request of release, renew and settle: a permit, and what changes.
pub(super) struct PermitRequest<'v> {
    pub(super) id: PermitId,
    pub(super) id_text: &'v str,
    pub(super) ttl: Option<Duration>,
    pub(super) costs: Option<ActualCosts<'v>>,
}

/// Actual costs.
pub(super) enum ActualCosts<'v> {
    /// Of the only charge that is not a slot.
    One(Amount),
    Listed(Vec<ActualCost<'v>>),
}

/// Actual cost of one charge.
pub(super) struct ActualCost<'v> {
    /// Limit and key identify the charge; without both, the position in the list does.
    limit: Option<&'v str>,
    key: Option<&'v str>,
    amount: Amount,
}

/// An actual cost, or its difference to the charged cost.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    Cost(u64),
    Delta(i64),
}

impl Amount {
    fn of(self, charged: u64) -> u64 {
        match self {
            Self::Cost(cost) => cost,
            Self::Delta(delta) => charged.saturating_add_signed(delta),
        }
    }
}

impl<'v> Reader<'v> {
    pub(super) fn acquire(self, body: &'v Value<'v>) -> Result<Acquire<'v>, Problem> {
        let known = [
            "key",
            "cost",
            "limit",
            "policy",
            "group",
            "charges",
            "max_wait_ms",
            "ttl_ms",
            "tenant",
            "priority",
        ];
        self.read(body, &known, |top| {
            let max_wait = optional(top, "max_wait_ms", |value| span(value, 0, MAX_WAIT));
            let ttl = optional(top, "ttl_ms", ttl);
            let tenant = top.read("tenant", key_text);
            let priority = optional(top, "priority", priority);
            let list = self.list(top, "cost", cost)?;
            Some(Acquire {
                list,
                max_wait: max_wait?.unwrap_or(DEFAULT_MAX_WAIT),
                ttl: ttl?.unwrap_or(DEFAULT_TTL),
                tenant,
                priority: priority?.unwrap_or_default(),
            })
        })
    }
}

/// Parses `/v1/renew`.
pub(super) fn parse_renew<'v>(body: &'v Value<'v>) -> Result<PermitRequest<'v>, Problem> {
    read(body, &["id", "ttl_ms"], |top| {
        let ttl = optional(top, "ttl_ms", ttl);
        let (id, id_text) = id(top)?;
        Some(PermitRequest { id, id_text, ttl: ttl?, costs: None })
    })
}

/// Parses `/v1/release`, and `/v1/settle` with an id.
pub(super) fn parse_costs<'v>(
    body: &'v Value<'v>,
    required: RequiredFields,
) -> Result<PermitRequest<'v>, Problem> {
    read(body, &["id", "cost", "delta", "charges"], |top| {
        let costs = if top.get("charges").is_some() {
            for key in ["cost", "delta"] {
                if top.get(key).is_some() {
                    top.report(key, PermitRule::BesideCharges.into());
                }
            }
            listed_costs(top).map(|listed| Some(ActualCosts::Listed(listed)))
        } else if required == RequiredFields::Costs
            || ["cost", "delta"].iter().any(|it| top.get(it).is_some())
        {
            amount(top).map(|amount| Some(ActualCosts::One(amount)))
        } else {
            Some(None)
        };
        let (id, id_text) = id(top)?;
        Some(PermitRequest { id, id_text, ttl: None, costs: costs? })
    })
}

/// Whether a request must contain actual costs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredFields {
    Costs,
    Nothing,
}

/// Returns whether the body of a settle is about a permit.
pub(super) fn has_id(body: &Value<'_>) -> bool {
    let mut violations = Vec::new();
    Fields::open_any(body, Path::Root, &mut violations)
        .is_some_and(|fields| fields.get("id").is_some())
}

impl ActualCosts<'_> {
    /// Returns the actual cost of each charge of a permit. Slots keep their cost until they are
    /// released.
    pub(super) fn actual(&self, charges: &[GrantedCharge]) -> Result<Vec<u64>, Problem> {
        let mut actual: Vec<u64> = charges.iter().map(|charge| charge.cost).collect();
        match self {
            Self::One(amount) => {
                let mut chargeable =
                    charges.iter().enumerate().filter(|(_, charge)| !charge.is_slot);
                let (Some((index, charge)), None) = (chargeable.next(), chargeable.next()) else {
                    let charges = charges.len();
                    return Err(invalid(
                        "cost",
                        format!(
                            "needs a permit with one charge, this one has {charges}; use `charges`"
                        ),
                    ));
                };
                actual[index] = amount.of(charge.cost);
            }
            Self::Listed(listed) => {
                for (position, cost) in listed.iter().enumerate() {
                    let index = cost.index(position, charges, listed.len())?;
                    if !charges[index].is_slot {
                        actual[index] = cost.amount.of(charges[index].cost);
                    }
                }
            }
        }
        Ok(actual)
    }
}

impl ActualCost<'_> {
    /// Returns the index of the charge that this is about.
    fn index(
        &self,
        position: usize,
        charges: &[GrantedCharge],
        listed_len: usize,
    ) -> Result<usize, Problem> {
        if self.limit.is_none() && self.key.is_none() {
            if listed_len != charges.len() {
                let rule = format!(
                    "must have {} entries, one for each charge of the permit",
                    charges.len()
                );
                return Err(invalid("charges", rule));
            }
            return Ok(position);
        }
        let matches = |charge: &GrantedCharge| {
            self.limit.is_none_or(|limit| charge.limit == limit)
                && self.key.is_none_or(|key| charge.key == key)
        };
        let mut found = charges.iter().enumerate().filter(|(_, charge)| matches(charge));
        match (found.next(), found.next()) {
            (Some((index, _)), None) => Ok(index),
            (found, _) => {
                let matched = if found.is_some() { "several charges" } else { "no charge" };
                Err(invalid(
                    &format!("charges[{position}]"),
                    format!("matches {matched} of the permit"),
                ))
            }
        }
    }
}

fn invalid(field: &str, rule: String) -> Problem {
    Problem::Invalid(vec![FieldError { field: field.to_owned(), rule }])
}

fn id<'v>(top: &mut Fields<'v, '_>) -> Option<(PermitId, &'v str)> {
    top.require("id", |value| {
        let text = value.to_text()?;
        Ok((PermitId::parse(text).map_err(PermitRule::from)?, text))
    })
}

fn listed_costs<'v>(top: &mut Fields<'v, '_>) -> Option<Vec<ActualCost<'v>>> {
    let charges = top.get("charges")?;
    let charges = top.read("charges", |_| charges.to_list())?;
    let path = top.path();
    let path = Path::Key(&path, "charges");
    let read = |(index, charge): (usize, &'v Value<'v>)| {
        let (path, known) = (Path::Index(&path, index), ["limit", "key", "cost", "delta"]);
        let mut fields = Fields::open(charge, path, &known, top.violations())?;
        let limit = fields.read("limit", Value::to_text);
        let key = fields.read("key", key_text);
        Some(ActualCost { limit, key, amount: amount(&mut fields)? })
    };
    charges.iter().enumerate().map(read).collect::<Vec<_>>().into_iter().collect()
}

fn amount(fields: &mut Fields<'_, '_>) -> Option<Amount> {
    match (fields.get("cost"), fields.get("delta")) {
        (Some(_), Some(_)) => fields.report("cost", PermitRule::CostAndDelta.into()),
        (Some(_), None) => return fields.read("cost", |value| value.to_whole(0)).map(Amount::Cost),
        (None, Some(_)) => return fields.read("delta", signed).map(Amount::Delta),
        (None, None) => fields.report("cost", PermitRule::NoCost.into()),
    }
    None
}

/// Reads an optional field. The outer `None` means that it is invalid.
fn optional<'v, T>(
    fields: &mut Fields<'v, '_>,
    key: &'static str,
    read: impl FnOnce(&'v Value<'v>) -> Result<T, Rule>,
) -> Option<Option<T>> {
    match fields.get(key) {
        Some(_) => fields.read(key, read).map(Some),
        None => Some(None),
    }
}

/// Parses the lifetime of a permit.
pub(super) fn ttl(value: &Value<'_>) -> Result<Duration, Rule> {
    span(value, 1, MAX_TTL)
}

fn span(value: &Value<'_>, least: u64, longest: Duration) -> Result<Duration, Rule> {
    value.to_whole_between(least, longest.as_secs() * 1_000).map(Duration::from_millis)
}

fn priority(value: &Value<'_>) -> Result<Priority, Rule> {
    match value.to_text() {
        Ok("high") => Ok(Priority::High),
        Ok("normal") => Ok(Priority::Normal),
        Ok("low") => Ok(Priority::Low),
        _ => Err(Rule::NotOneOf(PRIORITIES)),
    }
}
