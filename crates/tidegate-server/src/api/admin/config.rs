//! Showing the configuration, changing it, and telling how it came to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_config::is_in;

use super::Open;
use super::control::{Audit, By, Setting, Shown};
use super::etag::{expected, tagged};
use super::problem::AdminProblem;
use crate::api::body::{self, json};
use crate::api::body::{Declared, require_json};
use crate::api::problem::Problem;
use crate::tokens::Caller;

/// How many changes are told at most, and unless somebody asks for less.
const MOST_CHANGES: usize = 1_000;
const SOME_CHANGES: usize = 100;

/// What the summary has of each provider.
const OF_PROVIDERS: [&str; 4] =
    ["max_concurrent_requests", "max_retries", "requests_per_minute", "tokens_per_minute"];

/// The part of the configuration that concerns callers.
#[derive(Default, Serialize)]
struct Summary {
    revision: u64,
    providers: Sections,
    limits: Sections,
}

type Sections = BTreeMap<String, BTreeMap<String, Value>>;

/// `GET /config`.
pub(super) async fn summary(State(open): State<Arc<Open>>) -> Response {
    let shown = open.api.control.shown();
    let revision = shown.revision;
    tagged(json(StatusCode::OK, &Summary::of(shown)), revision)
}

impl Summary {
    fn of(shown: Shown) -> Self {
        let mut summary = Self { revision: shown.revision, ..Self::default() };
        for Setting { key, value, .. } in shown.settings {
            let (sections, name, field) = if let Some(key) = key.strip_prefix("providers.") {
                let Some((name, field)) = key.split_once('.') else { continue };
                if !OF_PROVIDERS.contains(&field) {
                    continue;
                }
                (&mut summary.providers, name, field)
            } else if let Some(key) = key.strip_prefix("limits.") {
                // Names of limits may have dots, their fields have none.
                let Some((name, field)) = key.rsplit_once('.') else { continue };
                (&mut summary.limits, name, field)
            } else {
                continue;
            };
            sections.entry(name.to_owned()).or_default().insert(field.to_owned(), value);
        }
        summary
    }
}

/// Which part of the configuration to show.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// A key, or a section and all that is in it.
    key: Option<String>,
}

/// `GET /admin/config`.
pub(super) async fn show(
    State(open): State<Arc<Open>>,
    part: Result<Query<Part>, QueryRejection>,
) -> Result<Response, AdminProblem> {
    let Query(Part { key }) = part.map_err(|_| unread("key"))?;
    let mut shown = open.api.control.shown();
    if let Some(part) = key {
        shown.settings.retain(|setting| is_in(&setting.key, &part));
    }
    Ok(answer(&shown))
}

fn answer(shown: &Shown) -> Response {
    tagged(json(StatusCode::OK, shown), shown.revision)
}

/// `PATCH` and `POST /admin/config`.
pub(super) async fn change(
    State(open): State<Arc<Open>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, AdminProblem> {
    let taken = match *request.method() {
        Method::PATCH => Declared::MergePatch,
        _ => Declared::Json,
    };
    require_json(request.headers(), taken)?;
    let expected = expected(request.headers())?;
    let patch = body::whole(request, open.api.bounds.body).await?;
    serde_json::from_slice::<IgnoredAny>(&patch).map_err(Problem::Malformed)?;
    let who = match caller {
        Caller::Anybody => None,
        Caller::Holder(who) => Some(who),
    };
    let by = By { door: "admin", who };
    // A change that has begun is not given up half way because the caller goes away.
    let control = open.api.control.clone();
    let updating = tokio::spawn(async move { control.update(patch, expected, by).await });
    let updated = updating.await.map_err(|error| {
        tracing::error!(%error, "a change of the configuration ended badly");
        AdminProblem::Broken
    })?;
    let shown = updated.map_err(|error| AdminProblem::update(error, expected))?;
    Ok(answer(&shown))
}

/// How much of the past is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Past {
    limit: Option<usize>,
}

/// `GET /admin/history`.
pub(super) async fn history(
    State(open): State<Arc<Open>>,
    past: Result<Query<Past>, QueryRejection>,
) -> Result<Response, AdminProblem> {
    #[derive(Serialize)]
    struct History {
        changes: Vec<Audit>,
    }
    let Query(Past { limit }) = past.map_err(|_| unread("limit"))?;
    let most = limit.unwrap_or(SOME_CHANGES);
    if !(1..=MOST_CHANGES).contains(&most) {
        return Err(unread("limit"));
    }
    let changes = open.api.control.history(most).await;
    let changes = changes.map_err(|error| AdminProblem::update(error, None))?;
    Ok(json(StatusCode::OK, &History { changes }))
}

/// The query is not what this path takes.
fn unread(parameter: &str) -> AdminProblem {
    let rule = match parameter {
        "limit" => "must be a whole number from 1 to 1000; there is no other parameter",
        _ => "may be given once, as a key or a section; there is no other parameter",
    };
    AdminProblem::field(&format!("?{parameter}"), rule)
}
