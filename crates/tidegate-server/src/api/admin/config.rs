//! Shows the configuration and its history, and changes it.

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
use tidegate_config::{EffectiveSetting, Patch, SettingChange, Source};
use tidegate_gateway::Gateway;

use super::AdminState;
use super::concurrency::CurrentConcurrency;
use super::etag::{expected_revision, with_etag};
use super::problem::AdminProblem;
use super::server_info::ServerJson;
use crate::api::body::{self, json};
use crate::api::body::{MediaTypes, require_json};
use crate::api::problem::Problem;
use crate::configuration::{Applied, ConfigSnapshot};
use crate::database::{AuditEntry, json_value};
use crate::tokens::Caller;

/// Maximum and default number of past changes returned.
const MAX_HISTORY: usize = 1_000;
const DEFAULT_HISTORY: usize = 100;

/// Settings of each provider in the summary.
const SUMMARY_PROVIDER_KEYS: [&str; 4] =
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
pub(super) async fn summary(State(state): State<Arc<AdminState>>) -> Response {
    let current = state.api.config.current();
    let summary = Summary::of(&current, &state.parts().gateway);
    with_etag(json(StatusCode::OK, &summary), current.revision)
}

impl Summary {
    fn of(current: &ConfigSnapshot, gateway: &Gateway) -> Self {
        let mut summary = Self { revision: current.revision, ..Self::default() };
        for setting in current.effective.iter() {
            let EffectiveSetting { key, value, .. } = setting;
            let (sections, name, field) = if let Some(key) = key.strip_prefix("providers.") {
                let Some((name, field)) = key.split_once('.') else { continue };
                if !SUMMARY_PROVIDER_KEYS.contains(&field) {
                    continue;
                }
                (&mut summary.providers, name, field)
            } else if let Some(key) = key.strip_prefix("limits.") {
                // Names of limits may contain dots, their fields do not.
                let Some((name, field)) = key.rsplit_once('.') else { continue };
                (&mut summary.limits, name, field)
            } else {
                continue;
            };
            let section = sections.entry(name.to_owned()).or_default();
            match CurrentConcurrency::of(setting, gateway) {
                Some(CurrentConcurrency { in_force, reason }) => {
                    section.insert(field.to_owned(), in_force.into());
                    section.insert(format!("{field}_reason"), reason.into());
                }
                None => {
                    section.insert(field.to_owned(), json_value(value));
                }
            }
        }
        summary
    }
}

/// Query parameters: the part of the configuration to show.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigQuery {
    /// A key, or a section with everything in it.
    key: Option<String>,
}

/// `GET /admin/config`.
pub(super) async fn show(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<ConfigQuery>, QueryRejection>,
) -> Result<Response, AdminProblem> {
    let Query(ConfigQuery { key }) = query.map_err(|_| invalid_query("key"))?;
    Ok(render_config(&state, key.as_deref().unwrap_or(""), None))
}

/// The effects of a change, shown with the configuration after it.
#[derive(Serialize)]
struct ChangeSummary<'a> {
    changes: &'a [SettingChange],
    /// Warnings caused by this change.
    warnings: Vec<String>,
    /// `database`, or `until_restart` without a database.
    kept: &'static str,
}

impl<'a> ChangeSummary<'a> {
    fn of(applied: &'a Applied, kept_by: Source) -> Self {
        Self {
            changes: &applied.changes,
            warnings: applied.warnings.iter().map(ToString::to_string).collect(),
            kept: if kept_by == Source::Runtime { "until_restart" } else { "database" },
        }
    }
}

/// Renders the part of the configuration that a key or section names.
fn render_config(state: &AdminState, part: &str, change: Option<ChangeSummary<'_>>) -> Response {
    #[derive(Serialize)]
    struct SettingJson<'a> {
        #[serde(flatten)]
        setting: &'a EffectiveSetting,
        #[serde(flatten)]
        in_force: Option<CurrentConcurrency>,
    }
    #[derive(Serialize)]
    struct ConfigJson<'a> {
        revision: u64,
        server: ServerJson<'a>,
        settings: Vec<SettingJson<'a>>,
        /// Warnings about the configuration.
        warnings: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<ChangeSummary<'a>>,
    }
    let (current, gateway) = (state.api.config.current(), &state.parts().gateway);
    let body = ConfigJson {
        revision: current.revision,
        server: state.api.info.json(),
        settings: (current.effective.iter().filter(|one| one.is_in(part)))
            .map(|setting| SettingJson {
                setting,
                in_force: CurrentConcurrency::of(setting, gateway),
            })
            .collect(),
        warnings: current.plan.warnings.iter().map(ToString::to_string).collect(),
        change,
    };
    with_etag(json(StatusCode::OK, &body), current.revision)
}

/// `PATCH` and `POST /admin/config`.
pub(super) async fn change(
    State(state): State<Arc<AdminState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, AdminProblem> {
    let accepted = match *request.method() {
        Method::PATCH => MediaTypes::MergePatch,
        _ => MediaTypes::Json,
    };
    require_json(request.headers(), accepted)?;
    let expected = expected_revision(request.headers())?;
    let peer = request.extensions().get().copied();
    let patch = body::read_all(request.into_body(), state.api.bounds.body).await?;
    serde_json::from_slice::<IgnoredAny>(&patch).map_err(Problem::Malformed)?;
    let problem = |error| AdminProblem::Change { error, expected };
    // Parsed from the original bytes, so that duplicate keys can be rejected.
    let patch = Patch::from_json(&patch).map_err(|error| problem(error.into()))?;
    let note = caller.note("admin", peer);
    let applied = state.api.config.update(patch, expected, note).await.map_err(problem)?;
    let change = ChangeSummary::of(&applied, state.api.config.change_source());
    Ok(render_config(&state, "", Some(change)))
}

/// Query parameters: how many past changes to return.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    limit: Option<usize>,
}

/// `GET /admin/history`.
pub(super) async fn history(
    State(state): State<Arc<AdminState>>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, AdminProblem> {
    #[derive(Serialize)]
    struct History {
        changes: Vec<AuditEntry>,
    }
    let Query(HistoryQuery { limit }) = query.map_err(|_| invalid_query("limit"))?;
    let count = limit.unwrap_or(DEFAULT_HISTORY);
    if !(1..=MAX_HISTORY).contains(&count) {
        return Err(invalid_query("limit"));
    }
    let changes = state.api.config.history(count).await.map_err(AdminProblem::Database)?;
    Ok(json(StatusCode::OK, &History { changes }))
}

/// Creates the problem for an invalid query.
fn invalid_query(parameter: &str) -> AdminProblem {
    let rule = match parameter {
        "limit" => "must be a whole number from 1 to 1000, and the only parameter",
        _ => "must be a key or a section, given once, and the only parameter",
    };
    AdminProblem::field(&format!("?{parameter}"), rule)
}
