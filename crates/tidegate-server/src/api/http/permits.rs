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
use super::permit_request::{self, PermitRequest, RequiredFields};
use super::response::{self, DenyStatus, State, max_reset_ms, min_remaining};
use crate::api::body::json;
use crate::api::problem::Problem;
use crate::permits::{GrantedCharge, GrantedPermit, Lookup};

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
        let request = permit_request::parse_costs(body, RequiredFields::Nothing)?;
        // Validate the costs before anything is released.
        let actual = match (&request.costs, self.permits.find(request.id)) {
            (Some(costs), Lookup::Active(permit, _)) => Some(costs.actual(charges(&permit)?)?),
            _ => None,
        };
        let found = self.permits.release(request.id);
        let Lookup::Active(permit, _) = &found else {
            return Ok(json(StatusCode::OK, &ended(&request, &found)));
        };
        let settlement = permit.clone().release(actual).await?;
        let state = PermitState {
            id: request.id_text,
            state: "released",
            changed: true,
            expires_in_ms: None,
            settlement: settlement.as_ref().map(|settlement| settled(permit, settlement)),
        };
        Ok(json(StatusCode::OK, &state))
    }

    /// `POST /v1/renew`. A permit that is no longer held is a conflict, so that its holder notices.
    pub(super) fn renew(&self, body: &Value<'_>, deny: DenyStatus) -> Result<Response, Problem> {
        let request = permit_request::parse_renew(body)?;
        let found = self.permits.renew(request.id, request.ttl);
        let Lookup::Active(_, left) = found else {
            let status = if deny == DenyStatus::Ok { StatusCode::OK } else { StatusCode::CONFLICT };
            return Ok(json(status, &ended(&request, &found)));
        };
        let state = PermitState {
            id: request.id_text,
            state: "held",
            changed: true,
            expires_in_ms: Some(millis(left)),
            settlement: None,
        };
        Ok(json(StatusCode::OK, &state))
    }

    /// `POST /v1/settle` with an id.
    pub(super) async fn settle_permit(&self, body: &Value<'_>) -> Result<Response, Problem> {
        let request = permit_request::parse_costs(body, RequiredFields::Costs)?;
        let found = self.permits.find(request.id);
        let (Lookup::Active(permit, left), Some(costs)) = (&found, &request.costs) else {
            return Ok(json(StatusCode::OK, &ended(&request, &found)));
        };
        let actual = costs.actual(charges(permit)?)?;
        let settlement = permit.clone().settle(actual).await?;
        let state = PermitState {
            id: request.id_text,
            state: "held",
            changed: settlement.is_some(),
            expires_in_ms: Some(millis(*left)),
            settlement: settlement.as_ref().map(|settlement| settled(permit, settlement)),
        };
        Ok(json(StatusCode::OK, &state))
    }
}

/// Returns the charges of a permit, if it is for a list.
fn charges(permit: &GrantedPermit) -> Result<&[GrantedCharge], Problem> {
    let rule = "is a permit of /v1/admit, which has nothing to settle";
    let none =
        || Problem::Invalid(vec![FieldError { field: "id".to_owned(), rule: rule.to_owned() }]);
    permit.charges().map(|granted| granted.charges.as_slice()).ok_or_else(none)
}

/// Returns the state of a permit that is not held, and so was not changed.
fn ended<'a>(request: &PermitRequest<'a>, found: &Lookup) -> PermitState<'a> {
    let state = match found {
        Lookup::Active(..) => "held",
        Lookup::Ended(end) => end.as_str(),
        Lookup::Unknown => "unknown",
    };
    PermitState {
        id: request.id_text,
        state,
        changed: false,
        expires_in_ms: None,
        settlement: None,
    }
}

fn settled<'a>(permit: &'a GrantedPermit, settlement: &Settlement) -> Settled<'a> {
    let charges = permit.charges().map(|granted| granted.charges.as_slice()).unwrap_or_default();
    let limits = charges.iter().map(|charge| charge.limit.as_str());
    Settled {
        remaining: min_remaining(&settlement.outcomes),
        reset_after_ms: max_reset_ms(&settlement.outcomes),
        saturated: settlement.saturated > 0,
        dropped: settlement.dropped > 0,
        charges: response::states_of(limits, &settlement.outcomes),
    }
}
