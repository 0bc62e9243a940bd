//! Manual operations on keys: peek, hold, reset, settle.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;

use super::Open;
use super::problem::AdminProblem;
use crate::api::body::{self, Declared, require_json};
use crate::api::http::KeyAction;
use crate::tokens::Caller;

/// `POST /admin/keys/peek`, `hold`, `reset` and `settle`.
pub(super) async fn operate(
    State(open): State<Arc<Open>>,
    Extension(caller): Extension<Caller>,
    Path(action): Path<String>,
    request: Request,
) -> Result<Response, AdminProblem> {
    let action = KeyAction::named(&action).ok_or(AdminProblem::NotFound)?;
    require_json(request.headers(), Declared::Json)?;
    let peer = request.extensions().get().copied();
    let body = body::whole(request.into_body(), open.api.bounds.body).await?;
    let note = caller.note("admin", peer);
    Ok(action.carry_out(&open.api.config, &body, &note).await?)
}
