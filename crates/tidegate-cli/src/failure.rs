//! Errors of the program and their exit codes.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_config::ConfigError;
use tidegate_replay::ReplayError;
use tidegate_server::{ChangeError, CreateTokenError, DatabaseError, StartError};

use crate::activation::ActivationError;
use crate::demo::DemoError;
use crate::status::StatusError;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}\n{summary}", summary = error_count(.0))]
    Config(#[from] ConfigError),
    #[error("TIDEGATE_LOG: {0}; use error, warn, info, debug or trace")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    #[error("{0}\nconfiguration rejected: 1 error")]
    Unusable(ChangeError),
    #[error("{0} of {1} providers cannot be reached")]
    Unreachable(usize, usize),
    #[error(
        "no database is configured (database.url is \"none\"); set database.url or pass --database"
    )]
    NoDatabase,
    #[error("{0:?} has no value; follow each key with its value")]
    NoValue(String),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot write man pages and completions below {path}: {1}", path = .0.display())]
    InstallFiles(PathBuf, io::Error),
    #[error(transparent)]
    Activation(#[from] ActivationError),
    #[error("cannot create a token: {0}")]
    Token(#[from] CreateTokenError),
    #[error(transparent)]
    Demo(#[from] DemoError),
    #[error(transparent)]
    Status(#[from] StatusError),
    #[error("cannot serialize the result: {0}")]
    Json(serde_json::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot open the log {0}: {1}")]
    OpenLog(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("{0} has no token bucket under [limits]; pass --policy or --search")]
    NoBucket(PathBuf),
    #[error("cannot write the report {0}: {1}")]
    Html(PathBuf, #[source] io::Error),
    #[error("cannot set up the runtime or signal handlers: {0}")]
    Runtime(io::Error),
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// A failure that is in the JSON on standard output already.
    #[error(transparent)]
    Reported(Box<Failure>),
}

impl Failure {
    /// Whether standard error should say what failed.
    pub(crate) const fn is_reported(&self) -> bool {
        matches!(self, Self::Reported(_))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Reported(failure) => failure.exit_code(),
            Self::Config(_)
            | Self::Start(StartError::Configuration(
                ChangeError::Config(_) | ChangeError::Limit { .. } | ChangeError::TierKind { .. },
            ))
            | Self::Unusable(_)
            | Self::Activation(_)
            | Self::Log(_)
            | Self::NoDatabase
            | Self::NoBucket(_)
            | Self::NoValue(_) => ExitCode::from(2),
            Self::Replay(error) if error.is_usage() => ExitCode::from(2),
            Self::Status(error) if error.is_usage() => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

fn error_count(error: &ConfigError) -> String {
    match error {
        ConfigError::Invalid(violations) if violations.len() > 1 => {
            format!("configuration rejected: {} errors", violations.len())
        }
        ConfigError::Invalid(_) => "configuration rejected: 1 error".to_owned(),
        _ => "cannot read the configuration file".to_owned(),
    }
}
