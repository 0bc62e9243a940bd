//! Problem documents of the admin API.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_http::problem::{FieldError, Problem as Document, ProblemType};

use super::MAX_WATCHERS;
use super::etag::with_etag;
use crate::api::change_error::{detail, field_errors};
use crate::api::problem::{Problem, format_errors};
use crate::configuration::ChangeError;
use crate::database::DatabaseError;
use crate::tokens::AuthError;

/// Why a request failed. Nothing was changed, unless the text says that this is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminProblem {
    /// A problem that is common to all APIs.
    #[error(transparent)]
    Common(#[from] Problem),
    #[error(
        "there is nothing at this path; see /config, /admin/config, /admin/keys/peek, hold, reset and settle, /admin/history, /admin/events, /admin/providers, /metrics, /openapi.json, /healthz and /readyz"
    )]
    NotFound,
    /// Contains the configured providers.
    #[error("unknown provider; known providers are {}", .0.join(", "))]
    UnknownProvider(Vec<String>),
    #[error("{}", auth_message(.0))]
    Unauthorized(AuthError),
    #[error("{}", format_errors(.0))]
    BadRequest(Vec<FieldError>),
    /// A change was not made. `expected` is the revision that the request named.
    #[error("{}", detail(.error))]
    Change { error: ChangeError, expected: Option<u64> },
    /// The database cannot be read.
    #[error(transparent)]
    Database(DatabaseError),
    #[error(
        "at most {MAX_WATCHERS} watchers are allowed, and at most a quarter of them from one address; \
         retry later"
    )]
    TooManyWatchers,
}

fn auth_message(auth_error: &AuthError) -> &'static str {
    match auth_error {
        AuthError::NoToken => {
            "a token is required; send `authorization: Bearer TOKEN`, with a token from `tidegate key`"
        }
        AuthError::UnknownToken => {
            "this token is not configured; add its hash to `write_tokens` or `read_tokens` under [admin]"
        }
        AuthError::ReadOnly => {
            "this token is read-only; use one whose hash is in `write_tokens` under [admin]"
        }
    }
}

impl AdminProblem {
    /// Creates a problem about one field of the request.
    pub(super) fn field(field: &str, rule: &str) -> Self {
        Self::BadRequest(vec![FieldError { field: field.to_owned(), rule: rule.to_owned() }])
    }

    fn problem_type(&self) -> ProblemType {
        match self {
            // `Common` renders itself.
            Self::Common(_) | Self::Change { error: ChangeError::Interrupted, .. } => {
                ProblemType::Internal
            }
            Self::NotFound | Self::UnknownProvider(_) => ProblemType::NotFound,
            Self::Unauthorized(AuthError::ReadOnly) => ProblemType::Forbidden,
            Self::Unauthorized(_) => ProblemType::Unauthorized,
            Self::BadRequest(_) => ProblemType::InvalidRequest,
            Self::Change { error, .. } if error.is_invalid() => ProblemType::InvalidConfiguration,
            Self::Change { error, .. } if error.conflict().is_some() => ProblemType::Conflict,
            Self::Change { .. } | Self::Database(_) => ProblemType::Database,
            Self::TooManyWatchers => ProblemType::TooManyWatchers,
        }
    }

    /// Returns the status. A conflict has another one if the request named a revision.
    fn status(&self) -> StatusCode {
        match (self.problem_type(), self) {
            (ProblemType::Conflict, Self::Change { expected: Some(_), .. }) => {
                StatusCode::PRECONDITION_FAILED
            }
            (problem_type, _) => problem_type.status(),
        }
    }

    /// Returns the `WWW-Authenticate` challenge.
    fn challenge(&self) -> Option<&'static str> {
        let Self::Unauthorized(auth_error) = self else { return None };
        Some(match auth_error {
            AuthError::NoToken => "Bearer realm=\"tidegate\"",
            AuthError::UnknownToken => "Bearer realm=\"tidegate\", error=\"invalid_token\"",
            AuthError::ReadOnly => "Bearer realm=\"tidegate\", error=\"insufficient_scope\"",
        })
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let change_errors;
        let errors: &[FieldError] = match &self {
            Self::BadRequest(errors) => errors,
            Self::Change { error, .. } => {
                change_errors = field_errors(error);
                &change_errors
            }
            _ => &[],
        };
        let detail = match &self {
            Self::Change { .. } if !errors.is_empty() => format_errors(errors),
            problem => problem.to_string(),
        };
        let document =
            Document::new(self.problem_type(), detail).status(self.status()).errors(errors);
        let mut response = document.response().map(Body::from);
        if let Some(challenge) = self.challenge() {
            let challenge = HeaderValue::from_static(challenge);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        match self {
            Self::Common(problem) => problem.into_response(),
            Self::Change { error, .. } => match error.conflict() {
                Some(now) => with_etag(response, now),
                None => response,
            },
            _ => response,
        }
    }
}
