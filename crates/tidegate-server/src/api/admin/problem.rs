//! What the admin door says when it does not do as it is asked.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::MOST_WATCHERS;
use super::control::{Fault, UpdateError};
use super::etag::tagged;
use crate::api::problem::{Document, FieldError, Kind, Problem, told};
use crate::tokens::Refused;

/// Why a request is refused. Nothing was changed, unless the text says that this is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminProblem {
    /// As at any door.
    #[error(transparent)]
    Any(#[from] Problem),
    #[error(
        "there is nothing at this path; see /config, /admin/config, /admin/history, /admin/events, /metrics, /openapi.json, /healthz and /readyz"
    )]
    NotFound,
    #[error("{}", refusal(.0))]
    Refused(Refused),
    #[error("{}", told(.0))]
    BadRequest(Vec<FieldError>),
    #[error("{}", told(.0))]
    Invalid(Vec<FieldError>),
    #[error("{}", UpdateError::Conflict { now: *.0 })]
    /// Somebody else was faster, and the request did not say which revision it is for.
    Conflict(u64),
    #[error("{}", UpdateError::Conflict { now: *.0 })]
    /// The request is for another revision than the one in force.
    Outdated(u64),
    #[error("{0}")]
    NotKept(UpdateError),
    #[error("{MOST_WATCHERS} watch already; try again later")]
    TooManyWatchers,
    #[error("the change ended badly; look whether it was made")]
    Broken,
}

fn refusal(refused: &Refused) -> &'static str {
    match refused {
        Refused::NoToken => {
            "this needs a token: authorization: Bearer ...; `tidegate key` makes one"
        }
        Refused::UnknownToken => "this token is not known here",
        Refused::ReadOnly => "this token may look and not change",
    }
}

impl AdminProblem {
    /// One field of the request is wrong.
    pub(super) fn field(field: &str, rule: &str) -> Self {
        Self::BadRequest(vec![FieldError { field: field.to_owned(), rule: rule.to_owned() }])
    }

    /// What became of a change that was meant for a revision, if it was.
    pub(super) fn update(error: UpdateError, expected: Option<u64>) -> Self {
        let field = |Fault { key, message }| FieldError { field: key, rule: message };
        match (error, expected) {
            (UpdateError::Invalid(faults), _) => {
                Self::Invalid(faults.into_iter().map(field).collect())
            }
            (UpdateError::Conflict { now }, Some(_)) => Self::Outdated(now),
            (UpdateError::Conflict { now }, None) => Self::Conflict(now),
            (error, _) => Self::NotKept(error),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            // Told by itself.
            Self::Any(_) | Self::Broken => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "urn:tidegate:problem:internal",
                "Internal error",
            ),
            Self::NotFound => {
                (StatusCode::NOT_FOUND, "urn:tidegate:problem:not-found", "Not found")
            }
            Self::Refused(Refused::ReadOnly) => {
                (StatusCode::FORBIDDEN, "urn:tidegate:problem:forbidden", "Forbidden")
            }
            Self::Refused(_) => {
                (StatusCode::UNAUTHORIZED, "urn:tidegate:problem:unauthorized", "Unauthorized")
            }
            Self::BadRequest(_) => {
                (StatusCode::BAD_REQUEST, "urn:tidegate:problem:invalid-request", "Invalid request")
            }
            Self::Invalid(_) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "urn:tidegate:problem:invalid-configuration",
                "Invalid configuration",
            ),
            Self::Conflict(_) => {
                (StatusCode::CONFLICT, "urn:tidegate:problem:conflict", "Changed in between")
            }
            Self::Outdated(_) => (
                StatusCode::PRECONDITION_FAILED,
                "urn:tidegate:problem:conflict",
                "Changed in between",
            ),
            Self::NotKept(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:tidegate:problem:database",
                "The database cannot be used",
            ),
            Self::TooManyWatchers => (
                StatusCode::SERVICE_UNAVAILABLE,
                "urn:tidegate:problem:too-many-watchers",
                "Too many watchers",
            ),
        }
    }

    /// How to say who one is.
    fn challenge(&self) -> Option<&'static str> {
        let Self::Refused(refused) = self else { return None };
        Some(match refused {
            Refused::NoToken => "Bearer realm=\"tidegate\"",
            Refused::UnknownToken => "Bearer realm=\"tidegate\", error=\"invalid_token\"",
            Refused::ReadOnly => "Bearer realm=\"tidegate\", error=\"insufficient_scope\"",
        })
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let errors: &[FieldError] = match &self {
            Self::BadRequest(errors) | Self::Invalid(errors) => errors,
            _ => &[],
        };
        let mut response = Document::new(self.kind(), self.to_string(), errors).response();
        if let Some(challenge) = self.challenge() {
            let challenge = HeaderValue::from_static(challenge);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        match self {
            Self::Any(problem) => problem.into_response(),
            Self::Conflict(now) | Self::Outdated(now) => tagged(response, now),
            _ => response,
        }
    }
}
