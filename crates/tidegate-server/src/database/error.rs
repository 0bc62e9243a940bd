//! Database errors, distinguished by what can be done about them.

use std::error::Error;

use tidegate_config::PostgresUrlError;

/// An error of the driver or the operating system.
pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Why a database operation failed.
///
/// The texts contain neither values nor the address of a server, which may contain a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The URL is not a valid PostgreSQL URL.
    #[error("the database URL is invalid: it {0}")]
    Address(#[from] PostgresUrlError),
    /// The database cannot be reached, opened or queried at the moment. A write that ends with this
    /// error was either applied completely or not at all; read the settings to find out.
    #[error("the database is unavailable: {}", with_sources(.0.as_ref()))]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The database can be read but not written.
    #[error(
        "the database is read-only; check the permissions of its file, directory, disk or server"
    )]
    ReadOnly,
    /// Another write came first: the expected revision is outdated.
    #[error("another change was written first; the settings are now at revision {now}")]
    Conflict {
        /// The current revision.
        now: u64,
    },
    /// The PostgreSQL database has no Tidegate tables.
    #[error(
        "the database has no Tidegate tables; run `tidegate db migrate`, or start with \
         --auto-migrate"
    )]
    NotMigrated,
    /// An older version wrote the database; it must be migrated first.
    #[error(
        "the database has format {found}, but this version needs format {needs}; run \
         `tidegate db migrate`, or start with --auto-migrate"
    )]
    OldFormat {
        /// The format of the database.
        found: u32,
        /// The format that this version reads and writes.
        needs: u32,
    },
    /// A newer version wrote the database.
    #[error(
        "the database has format {found}, but this version supports formats up to {known}: it was \
         written by a newer version, so run that one"
    )]
    NewFormat {
        /// The format of the database.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// A constraint of the tables rejects a change. Nothing was written.
    #[error("the database rejects {key:?}: {rule}")]
    Refused {
        /// The key of the setting, truncated if it is long.
        key: String,
        /// What the constraint requires.
        rule: &'static str,
    },
    /// A maximum would be exceeded. Nothing was written.
    #[error("too many {what}: at most {most} are allowed")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The maximum.
        most: usize,
    },
    /// The file is a database of another program.
    #[error("the file is a database of another program; choose another file")]
    Foreign,
    /// The content is inconsistent or cannot be read.
    #[error("the database is damaged: {}; restore it from a backup", with_sources(.0.as_ref()))]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
}

/// What is wrong with a damaged database.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("the row with its format and revision is missing")]
    NoMeta,
    #[error("it contains a number that is out of range")]
    Number,
}

impl DatabaseError {
    pub(super) fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::Unavailable(cause.into())
    }

    pub(super) fn refused(key: &str, rule: &'static str) -> Self {
        /// Maximum number of characters shown of a key, which the caller may have made very long.
        const MAX_SHOWN: usize = 256;
        Self::Refused { key: key.chars().take(MAX_SHOWN).collect(), rule }
    }
}

impl From<Damage> for DatabaseError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage.into())
    }
}

/// Formats an error with its chain of sources on one line, since drivers only give the cause in
/// `source`.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn each_cause_appears_once() {
        let inner = std::io::Error::other("inner");
        let error = DatabaseError::unavailable(Outer(inner));
        assert_eq!(error.to_string(), "the database is unavailable: outer: inner");
        let plain = DatabaseError::unavailable(std::io::Error::other("inner"));
        assert_eq!(plain.to_string(), "the database is unavailable: inner");
    }

    #[test]
    fn long_keys_are_truncated() {
        let error = DatabaseError::refused(&"k".repeat(100_000), "no");
        assert!(error.to_string().len() < 400);
    }
}
