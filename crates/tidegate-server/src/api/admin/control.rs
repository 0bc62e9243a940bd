//! What the admin door needs of the running configuration.

use std::pin::Pin;

use axum::body::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::database::DatabaseError;

/// An answer that may have to wait for a database.
pub(crate) type ControlFuture<'c, T> =
    Pin<Box<dyn Future<Output = Result<T, UpdateError>> + Send + 'c>>;

/// The running configuration, as it is shown and changed.
pub(crate) trait Control: Send + Sync {
    /// What is in force now.
    fn shown(&self) -> Shown;

    /// Changes some values, whole or not at all: a JSON merge patch (RFC 7396), in which null takes
    /// a value back. With `expected` only if that is the revision in force.
    ///
    /// The patch is JSON, and nothing more is known of it; it comes as it was sent, so that a key
    /// that stands there twice can be refused. Whoever implements this tells metrics and events of
    /// it, as for changes through any other door.
    fn update(&self, patch: Bytes, expected: Option<u64>, by: By) -> ControlFuture<'_, Shown>;

    /// The latest changes, the newest first, at most so many.
    fn history(&self, most: usize) -> ControlFuture<'_, Vec<Audit>>;
}

/// Who asks for a change, for the audit trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct By {
    /// Through which door.
    pub(crate) door: &'static str,
    /// The first eight digits of the hash of the token, if there was one.
    pub(crate) who: Option<String>,
}

impl By {
    /// Another process, of which there is no more to know here: its own trail says who it was.
    pub(crate) const ELSEWHERE: Self = Self { door: "database", who: None };
}

/// A configuration in force.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) revision: u64,
    pub(crate) settings: Vec<Setting>,
    /// What people should look at.
    pub(crate) warnings: Vec<String>,
}

/// One value in force.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// Its path, such as `limits.client.rate`.
    pub(crate) key: String,
    pub(crate) value: Value,
    /// Where it comes from, such as `file`.
    pub(crate) source: String,
    /// What it is instead of, the strongest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) shadowed: Vec<Shadowed>,
    /// What was asked for, if bounds made another value of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) configured: Option<Value>,
}

/// A value that another one hides.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Shadowed {
    pub(crate) source: String,
    pub(crate) value: Value,
}

/// One value that was changed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Audit {
    /// The revision since which it is so.
    pub(crate) revision: u64,
    /// When, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) door: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<String>,
    pub(crate) key: String,
    pub(crate) old: Option<Value>,
    pub(crate) new: Option<Value>,
}

/// Why a change was not made, or not for certain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UpdateError {
    /// Some of it cannot be: every mistake, by its key. So are keys that may not be changed here.
    #[error("the change is not valid")]
    Invalid(Vec<Fault>),
    /// Somebody else changed it in between.
    #[error(
        "the configuration is at revision {now} by now; look at it again and repeat the change"
    )]
    Conflict {
        /// The revision in force.
        now: u64,
    },
    /// The database did not answer. It may have been asked to write already.
    #[error(
        "the database does not answer, and it is not known whether the change was kept; look again \
         before you repeat it"
    )]
    Unavailable,
    /// The database is there, and cannot be used as it is. The error says what to do about it.
    #[error("{0}")]
    Unusable(DatabaseError),
    /// The database cannot be written, or there is none.
    #[error("the change cannot be kept: the database cannot be written; nothing was changed")]
    ReadOnly,
}

/// A key and what is wrong with its value. The message does not repeat secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) key: String,
    pub(crate) message: String,
}
