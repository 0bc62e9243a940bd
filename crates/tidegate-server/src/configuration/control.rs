//! What the admin door shows of the configuration, and how it changes it.

use axum::body::Bytes;
use serde_json::Value;
use tidegate_config::{ConfigError, Effective, Patch};

use super::{ActiveConfig, ApplyError, PartsError};
use crate::api::admin::{
    Audit, By, Control, ControlFuture, Fault, Setting, Shadowed, Shown, UpdateError,
};
use crate::database::{self, DatabaseError};

impl Control for ActiveConfig {
    fn shown(&self) -> Shown {
        let current = self.current();
        Shown {
            revision: current.revision,
            settings: current.effective.iter().map(setting).collect(),
            warnings: current.plan.warnings.iter().map(ToString::to_string).collect(),
        }
    }

    fn update(&self, patch: Bytes, expected: Option<u64>, by: By) -> ControlFuture<'_, Shown> {
        Box::pin(async move {
            let patch = Patch::from_json(&patch).map_err(ApplyError::from)?;
            self.update(&patch, expected, &by).await?;
            Ok(self.shown())
        })
    }

    fn history(&self, most: usize) -> ControlFuture<'_, Vec<Audit>> {
        Box::pin(async move {
            let Some(database) = &self.parts().database else { return Ok(Vec::new()) };
            let history = database.history(most).await.map_err(UpdateError::Unusable)?;
            Ok(history.into_iter().map(audit).collect())
        })
    }
}

fn setting(one: &Effective) -> Setting {
    let shadowed = one
        .shadowed
        .iter()
        .map(|(source, value)| Shadowed { source: source.to_string(), value: json(value) });
    Setting {
        key: one.key.clone(),
        value: json(&one.value),
        source: one.source.to_string(),
        shadowed: shadowed.collect(),
        configured: one.configured.as_deref().map(json),
    }
}

fn audit(one: database::Audit) -> Audit {
    let database::Audit { revision, at_ms, door, who, key, old, new, .. } = one;
    let (old, new) = (old.as_deref().map(json), new.as_deref().map(json));
    Audit { revision, at_ms, door, who, key, old, new }
}

/// A value that is kept as JSON; anything else is shown as the text it is.
pub(super) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

impl ApplyError {
    /// Every mistake by its key; none if the mistake is not one of the configuration.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let one = |key: &str, message: String| vec![Fault { key: key.to_owned(), message }];
        match self {
            Self::Config(error) => faults(error),
            Self::Limit(name, error) => one(&format!("limits.{name}"), error.to_string()),
            Self::Parts(PartsError::Admission(error)) => one("admission", error.to_string()),
            Self::Parts(PartsError::Gateway(error)) => one("providers", error.to_string()),
            Self::OpenToAll(error) => one("admin", error.to_string()),
            Self::Database(DatabaseError::Refused { key, rule }) => one(key, (*rule).to_owned()),
            Self::Database(DatabaseError::TooMany { .. }) => one("", self.to_string()),
            Self::Database(_) => Vec::new(),
        }
    }
}

fn faults(error: &ConfigError) -> Vec<Fault> {
    let faults = error
        .faults()
        .iter()
        .map(|located| Fault { key: located.fault.key.clone(), message: located.without_key() });
    let faults: Vec<_> = faults.collect();
    match faults.is_empty() {
        true => vec![Fault { key: String::new(), message: error.to_string() }],
        false => faults,
    }
}

impl From<ApplyError> for UpdateError {
    fn from(error: ApplyError) -> Self {
        let faults = error.faults();
        match error {
            _ if !faults.is_empty() => Self::Invalid(faults),
            ApplyError::Database(DatabaseError::Conflict { now }) => Self::Conflict { now },
            ApplyError::Database(DatabaseError::ReadOnly) => Self::ReadOnly,
            ApplyError::Database(DatabaseError::Unavailable(_)) => Self::Unavailable,
            ApplyError::Database(error) => Self::Unusable(error),
            // All others have faults.
            error => Self::Invalid(vec![Fault { key: String::new(), message: error.to_string() }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_once() {
        let error = Patch::from_json(br#"{"limits":{"a":{"capacity":0}}}"#).unwrap().check();
        let [fault] = &ApplyError::from(error.unwrap_err()).faults()[..] else { panic!("one") };
        assert_eq!(fault.key, "limits.a.capacity");
        assert!(!fault.message.contains("limits.a"), "{}", fault.message);
        assert!(fault.message.ends_with("(change: 0)"), "{}", fault.message);
    }

    fn told(error: DatabaseError) -> String {
        UpdateError::from(ApplyError::from(error)).to_string()
    }

    #[test]
    fn whoever_has_to_migrate_is_told_so() {
        for error in [DatabaseError::NotMigrated, DatabaseError::OldFormat { found: 1, needs: 2 }] {
            let said = error.to_string();
            assert!(said.contains("tidegate db migrate"), "{said}");
            assert_eq!(told(error), said);
        }
        assert!(told(DatabaseError::NewFormat { found: 3, known: 2 }).contains("run that one"));
        assert!(told(DatabaseError::Foreign).contains("choose another one"));
        assert!(told(DatabaseError::Damaged("torn".into())).contains("restore it"));
    }

    /// The answer may have got lost after the write was done.
    #[test]
    fn a_database_that_falls_silent_is_not_said_to_have_kept_nothing() {
        let said = told(DatabaseError::Unavailable("silence".into()));
        assert!(said.contains("not known whether"), "{said}");
        assert!(!said.contains("nothing was changed"), "{said}");
    }
}
