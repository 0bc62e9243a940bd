//! The result of `check` as JSON.

use serde::Serialize;
use tidegate_config::{ConfigError, LocatedViolation, Origin};
use tidegate_server::ProbeResult;

use crate::failure::Failure;

/// What `check` found.
#[derive(Debug, Default, Serialize)]
pub(super) struct CheckReport {
    /// Whether the configuration can be used.
    pub(super) valid: bool,
    pub(super) errors: Vec<CheckError>,
    pub(super) warnings: Vec<String>,
    /// With `--strict`: the result for each configured provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) providers: Option<Vec<Reached>>,
}

/// An error and its place. What is not known is `null`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct CheckError {
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    /// The environment variable, if the value is from one.
    variable: Option<String>,
    key: Option<String>,
    text: String,
}

/// Whether a provider can be reached.
#[derive(Debug, Serialize)]
pub(super) struct Reached {
    provider: String,
    base_url: String,
    proxy: Option<String>,
    reached: bool,
    error: Option<String>,
}

impl CheckReport {
    /// Adds the errors of a failure that the configuration caused. Returns any other failure.
    pub(super) fn reject(&mut self, failure: Failure) -> Result<Failure, Failure> {
        match &failure {
            Failure::Config(ConfigError::Invalid(violations)) => {
                self.errors.extend(violations.iter().map(CheckError::of));
            }
            Failure::Config(error @ ConfigError::Read { file, .. }) => {
                let file = Some(file.display().to_string());
                self.errors.push(CheckError {
                    file,
                    text: error.to_string(),
                    ..Default::default()
                });
            }
            Failure::Unusable(error) => {
                self.errors.push(CheckError { text: error.to_string(), ..Default::default() });
            }
            _ => return Err(failure),
        }
        Ok(failure)
    }
}

impl CheckError {
    fn of(located: &LocatedViolation) -> Self {
        let LocatedViolation { origin, violation } = located;
        let key = (!violation.key.is_empty()).then(|| violation.key.clone());
        let error = Self { key, text: violation.to_string(), ..Self::default() };
        match origin {
            Origin::File { file, position } => Self {
                file: Some(file.display().to_string()),
                line: position.map(|(line, _)| line),
                column: position.map(|(_, column)| column),
                ..error
            },
            Origin::Environment(name) => Self { variable: Some(name.clone()), ..error },
            _ => error,
        }
    }
}

impl From<&ProbeResult> for Reached {
    fn from(result: &ProbeResult) -> Self {
        let ProbeResult { provider, base_url, proxy, error, .. } = result;
        Self {
            provider: provider.clone(),
            base_url: base_url.clone(),
            proxy: proxy.clone(),
            reached: error.is_none(),
            error: error.clone(),
        }
    }
}
