//! Manual operations on keys: peek, hold, reset, settle.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;

use super::AdminState;
use super::problem::AdminProblem;
use crate::api::body::{self, MediaTypes, require_json};
use crate::api::http::KeyAction;
use crate::tokens::Caller;

/// `POST /admin/keys/peek`, `hold`, `reset` and `settle`.
pub(super) async fn operate(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    Path(action): Path<String>,
    request: Request,
) -> Result<Response, AdminProblem> {
    let action = KeyAction::from_name(&action).ok_or(AdminProblem::NotFound)?;
    require_json(request.headers(), MediaTypes::Json)?;
    let peer = request.extensions().get().copied();
    let body = body::read_all(request.into_body(), state.api.bounds.body).await?;
    let note = caller.note("admin", peer);
    Ok(action.execute(&state.api.config, &body, &note).await?)
}
