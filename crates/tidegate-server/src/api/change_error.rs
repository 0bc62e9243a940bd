//! How the admin and gRPC APIs report a configuration change that failed.

use tidegate_config::ConfigError;
use tidegate_http::problem::FieldError;

use super::problem::truncate_errors;
use crate::configuration::ChangeError;
use crate::database::DatabaseError;

/// Returns the errors by key, up to the number that a response lists. Empty if the given
/// configuration is not the cause.
pub(crate) fn field_errors(error: &ChangeError) -> Vec<FieldError> {
    truncate_errors(all_field_errors(error).into_iter())
}

fn all_field_errors(error: &ChangeError) -> Vec<FieldError> {
    let one = |field: &str, rule: String| vec![FieldError { field: field.to_owned(), rule }];
    // The error text begins with the key, which is already the field.
    let limit = |limit: &str| {
        let (field, text) = (format!("limits.{limit}"), error.to_string());
        let rule = text.strip_prefix(&format!("{field}: ")).unwrap_or(&text).to_owned();
        one(&field, rule)
    };
    match error {
        ChangeError::Config(error) => config_field_errors(error),
        ChangeError::Limit { limit: name, .. } | ChangeError::TierKind { limit: name } => {
            limit(name)
        }
        ChangeError::Admission(error) => one("admission", error.to_string()),
        ChangeError::Gateway(error) => one("providers", error.to_string()),
        ChangeError::UnauthenticatedListener(error) => one("admin", error.to_string()),
        ChangeError::Database(DatabaseError::Refused { key, rule }) => one(key, (*rule).to_owned()),
        ChangeError::Database(DatabaseError::TooMany { .. }) => one("", error.to_string()),
        ChangeError::Database(_) | ChangeError::Interrupted => Vec::new(),
    }
}

fn config_field_errors(error: &ConfigError) -> Vec<FieldError> {
    let located = error.violations().iter();
    let errors: Vec<_> = located
        .map(|located| FieldError {
            field: located.violation.key.clone(),
            rule: located.without_key(),
        })
        .collect();
    match errors.is_empty() {
        true => vec![FieldError { field: String::new(), rule: error.to_string() }],
        false => errors,
    }
}

/// Describes a failure of a valid change, and what the caller can do about it.
pub(crate) fn detail(error: &ChangeError) -> String {
    match error {
        ChangeError::Database(DatabaseError::Conflict { now }) => format!(
            "the configuration is now at revision {now}; read it again and repeat the change"
        ),
        // The write may already have been sent.
        ChangeError::Database(DatabaseError::Unavailable(_)) => {
            "the database is unavailable, and it is unknown whether the change was stored; read \
             the configuration before you repeat it"
                .to_owned()
        }
        ChangeError::Database(DatabaseError::ReadOnly) => {
            "the change cannot be stored: the database is read-only; nothing was changed".to_owned()
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_config::Patch;

    use super::*;

    #[test]
    fn the_key_appears_once() {
        let error = Patch::from_json(br#"{"limits":{"a":{"capacity":0}}}"#).unwrap().check();
        let errors = field_errors(&error.unwrap_err().into());
        let [FieldError { field, rule }] = &errors[..] else { panic!("one: {errors:?}") };
        assert_eq!(field, "limits.a.capacity");
        assert!(!rule.contains("limits.a"), "{rule}");
        assert!(rule.ends_with("(change: 0)"), "{rule}");
        let errors = field_errors(&ChangeError::TierKind { limit: "client".to_owned() });
        let [FieldError { field, rule }] = &errors[..] else { panic!("one: {errors:?}") };
        assert_eq!(field, "limits.client");
        assert!(rule.starts_with("is an admission tier"), "{rule}");
    }

    /// A response has either field errors or a detail of its own.
    #[test]
    fn only_an_invalid_configuration_has_field_errors() {
        for error in [
            ChangeError::TierKind { limit: "client".to_owned() },
            DatabaseError::Refused { key: "a".to_owned(), rule: "no" }.into(),
            DatabaseError::TooMany { what: "settings", most: 1 }.into(),
            DatabaseError::Conflict { now: 1 }.into(),
            DatabaseError::NotMigrated.into(),
            ChangeError::Interrupted,
        ] {
            assert_eq!(error.is_invalid(), !field_errors(&error).is_empty(), "{error}");
        }
    }

    #[test]
    fn the_detail_says_how_to_migrate() {
        for error in [DatabaseError::NotMigrated, DatabaseError::OldFormat { found: 1, needs: 2 }] {
            let text = error.to_string();
            assert!(text.contains("tidegate db migrate"), "{text}");
            assert_eq!(detail(&error.into()), text);
        }
        let detail = |error: DatabaseError| detail(&error.into());
        assert!(detail(DatabaseError::NewFormat { found: 3, known: 2 }).contains("run that one"));
        assert!(detail(DatabaseError::Foreign).contains("choose another file"));
        assert!(detail(DatabaseError::Damaged("torn".into())).contains("restore it"));
    }

    /// The database may have applied the write before the connection broke.
    #[test]
    fn an_unavailable_database_leaves_the_outcome_unknown() {
        let text = detail(&DatabaseError::Unavailable("silence".into()).into());
        assert!(text.contains("unknown whether"), "{text}");
        assert!(!text.contains("nothing was changed"), "{text}");
    }
}
