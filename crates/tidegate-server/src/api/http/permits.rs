//! Release, renew and settle permits by id. All three are idempotent; the response gives the state
//! of the permit and whether the request changed it.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidegate::Settlement;
use tidegate_config::Value;
use tidegate_core::ceil_millis as millis;
use tidegate_http::problem::FieldError;

use super::HttpApi;
use super::answer::{self, Deny, State, least, longest_reset};
use super::permit_request::{self, OfPermit, Required};
use crate::api::body::json;
use crate::api::problem::Problem;
use crate::permits::{Found, Held, HeldCharge};

/// State of a permit after a request on it.
#[derive(Serialize)]
struct PermitState<'a> {
    id: &'a str,
    /// `held`, `released`, `expired`, `lost` or `unknown`.
    state: &'static str,
    /// Whether this request changed the permit.
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    #[serde(flatten)]
    settlement: Option<Settled<'a>>,
}

#[derive(Serialize)]
struct Settled<'a> {
    remaining: u64,
    reset_after_ms: Option<u64>,
    saturated: bool,
    dropped: bool,
    charges: Vec<State<'a>>,
}

impl HttpApi {
    /// `POST /v1/release`.
    pub(super) async fn release(&self, body: &Value<'_>) -> Result<Response, Problem> {
        let asked = permit_request::spent(body, Required::Nothing)?;
        // Validate the costs before anything is released.
        let actual = match (&asked.spent, self.permits.find(asked.id)) {
            (Some(spent), Found::Held(held, _)) => Some(spent.actual(charges(&held)?)?),
            _ => None,
        };
        let found = self.permits.release(asked.id);
        let Found::Held(held, _) = &found else {
            return Ok(json(StatusCode::OK, &ended(&asked, &found)));
        };
        let settlement = held.clone().release(actual).await?;
        let state = PermitState {
            id: asked.id_text,
            state: "released",
            changed: true,
            expires_in_ms: None,
            settlement: settlement.as_ref().map(|settlement| settled(held, settlement)),
        };
        Ok(json(StatusCode::OK, &state))
    }

    /// `POST /v1/renew`. A permit that is no longer held is a conflict, so that its holder notices.
    pub(super) fn renew(&self, body: &Value<'_>, deny: Deny) -> Result<Response, Problem> {
        let asked = permit_request::renew(body)?;
        let found = self.permits.renew(asked.id, asked.ttl);
        let Found::Held(_, left) = found else {
            let status = if deny == Deny::Ok { StatusCode::OK } else { StatusCode::CONFLICT };
            return Ok(json(status, &ended(&asked, &found)));
        };
        let state = PermitState {
            id: asked.id_text,
            state: "held",
            changed: true,
            expires_in_ms: Some(millis(left)),
            settlement: None,
        };
        Ok(json(StatusCode::OK, &state))
    }

    /// `POST /v1/settle` with an id.
    pub(super) async fn settle_permit(&self, body: &Value<'_>) -> Result<Response, Problem> {
        let asked = permit_request::spent(body, Required::Costs)?;
        let found = self.permits.find(asked.id);
        let (Found::Held(held, left), Some(spent)) = (&found, &asked.spent) else {
            return Ok(json(StatusCode::OK, &ended(&asked, &found)));
        };
        let actual = spent.actual(charges(held)?)?;
        let settlement = held.clone().settle(actual).await?;
        let state = PermitState {
            id: asked.id_text,
            state: "held",
            changed: settlement.is_some(),
            expires_in_ms: Some(millis(*left)),
            settlement: settlement.as_ref().map(|settlement| settled(held, settlement)),
        };
        Ok(json(StatusCode::OK, &state))
    }
}

/// Returns the charges of a permit, if it is for a list.
fn charges(held: &Held) -> Result<&[HeldCharge], Problem> {
    let rule = "is a permit of /v1/admit, which has nothing to settle";
    let none =
        || Problem::Invalid(vec![FieldError { field: "id".to_owned(), rule: rule.to_owned() }]);
    held.list().map(|list| list.charges.as_slice()).ok_or_else(none)
}

/// Returns the state of a permit that is not held, and so was not changed.
fn ended<'a>(asked: &OfPermit<'a>, found: &Found) -> PermitState<'a> {
    let state = match found {
        Found::Held(..) => "held",
        Found::Ended(end) => end.as_str(),
        Found::Unknown => "unknown",
    };
    PermitState { id: asked.id_text, state, changed: false, expires_in_ms: None, settlement: None }
}

fn settled<'a>(held: &'a Held, settlement: &Settlement) -> Settled<'a> {
    let charges = held.list().map(|list| list.charges.as_slice()).unwrap_or_default();
    let limits = charges.iter().map(|charge| charge.limit.as_str());
    Settled {
        remaining: least(&settlement.outcomes),
        reset_after_ms: longest_reset(&settlement.outcomes),
        saturated: settlement.saturated > 0,
        dropped: settlement.dropped > 0,
        charges: answer::states_of(limits, &settlement.outcomes),
    }
}
