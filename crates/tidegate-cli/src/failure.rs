//! Errors of the program and their exit codes.

use std::io;
use std::process::ExitCode;

use tidegate_config::ConfigError;
use tidegate_server::{ChangeError, DatabaseError, MintError, StartError};

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}\n{summary}", summary = error_count(.0))]
    Config(#[from] ConfigError),
    #[error("TIDEGATE_LOG: {0}")]
    Log(#[from] tracing_subscriber::filter::ParseError),
    #[error("{0}\nthe configuration is not used: 1 mistake")]
    Unusable(ChangeError),
    #[error("{0} of {1} providers cannot be reached")]
    Unreachable(usize, usize),
    #[error("there is no database: --database says none")]
    NoDatabase,
    #[error("keys and values come in pairs, and {0:?} has no value")]
    NoValue(String),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("no token could be made: {0}")]
    Token(#[from] MintError),
    #[error("the settings cannot be shown: {0}")]
    Json(serde_json::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the program cannot run here: {0}")]
    Runtime(io::Error),
    #[error("standard output cannot be written: {0}")]
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Start(StartError::Configuration(
                ChangeError::Config(_) | ChangeError::Limit { .. } | ChangeError::TierKind { .. },
            ))
            | Self::Unusable(_)
            | Self::Log(_)
            | Self::NoDatabase
            | Self::NoValue(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }
}

fn error_count(error: &ConfigError) -> String {
    match error {
        ConfigError::Invalid(faults) if faults.len() > 1 => {
            format!("the configuration is not used: {} mistakes", faults.len())
        }
        ConfigError::Invalid(_) => "the configuration is not used: 1 mistake".to_owned(),
        _ => "the configuration cannot be read".to_owned(),
    }
}
