//! What can go wrong with a database, by what can be done about it.

use std::error::Error;

use tidegate_config::PostgresUrlError;

/// What a driver or the system said.
pub(super) type Cause = Box<dyn Error + Send + Sync>;

/// Why the database did not do what it was asked.
///
/// No text has a value in it, nor the address of a server: that may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Not the address of a PostgreSQL database.
    #[error("the address of the database is not usable: it {0}")]
    Address(#[from] PostgresUrlError),
    /// The database cannot be reached, opened or asked for now. If this is the answer to a write,
    /// the write was done whole or not at all: a read tells which.
    #[error("the database is not available: {}", told(.0.as_ref()))]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// It can be read, and not written.
    #[error("the database is read-only: its file, its folder, its disk or its server")]
    ReadOnly,
    /// Somebody else has written since the revision that the write was meant for.
    #[error("the settings have changed meanwhile; they are at revision {now} now")]
    Conflict {
        /// The revision that is stored.
        now: u64,
    },
    /// A PostgreSQL database without our tables.
    #[error(
        "the database has no tables of Tidegate yet; run `tidegate db migrate`, or start with \
         --auto-migrate"
    )]
    NotMigrated,
    /// An older version has written it, and it must be migrated first.
    #[error(
        "the database has format {found}, and this version needs format {needs}; run \
         `tidegate db migrate`, or start with --auto-migrate"
    )]
    OldFormat {
        /// The format that is stored.
        found: u32,
        /// The format that this version reads and writes.
        needs: u32,
    },
    /// A newer version has written it.
    #[error(
        "the database has format {found}, and this version knows formats up to {known}: a newer \
         version has written it, so run that one"
    )]
    NewFormat {
        /// The format that is stored.
        found: u32,
        /// The newest format that this version knows.
        known: u32,
    },
    /// A rule of the tables forbids a change. Nothing of the write was done.
    #[error("the database refuses to set {key:?}: {rule}")]
    Refused {
        /// Which setting; the beginning of it, if it is long.
        key: String,
        /// What the rule asks for.
        rule: &'static str,
    },
    /// More than is kept. Nothing of the write was done.
    #[error("too many {what}: {most} is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// There is a database, and something else keeps its things in it.
    #[error("the file is a database of something else; choose another one")]
    Foreign,
    /// What is stored makes no sense, or cannot be read back.
    #[error("the database is damaged: {}; restore it from a backup", told(.0.as_ref()))]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
}

/// What was found in place of a sound database.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Damage {
    #[error("its row of format and revision is missing")]
    NoMeta,
    #[error("a number in it is out of range")]
    Number,
}

impl DatabaseError {
    pub(super) fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::Unavailable(cause.into())
    }

    pub(super) fn refused(key: &str, rule: &'static str) -> Self {
        /// How much of a key is told, which may be as long as a caller likes.
        const SHOWN: usize = 256;
        Self::Refused { key: key.chars().take(SHOWN).collect(), rule }
    }
}

impl From<Damage> for DatabaseError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage.into())
    }
}

/// An error with what caused it, in one line. Drivers tell the cause in their source alone.
fn told(error: &(dyn Error + 'static)) -> String {
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
    fn the_cause_is_told_once() {
        let inner = std::io::Error::other("inner");
        let error = DatabaseError::unavailable(Outer(inner));
        assert_eq!(error.to_string(), "the database is not available: outer: inner");
        let plain = DatabaseError::unavailable(std::io::Error::other("inner"));
        assert_eq!(plain.to_string(), "the database is not available: inner");
    }

    #[test]
    fn a_long_key_is_not_repeated_whole() {
        let error = DatabaseError::refused(&"k".repeat(100_000), "no");
        assert!(error.to_string().len() < 400);
    }
}
