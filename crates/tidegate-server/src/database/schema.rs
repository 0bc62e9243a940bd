//! The format of the database: its number, and the migrations that lead to it.
//!
//! A migration takes a database from one format to the next, in one transaction. A published
//! migration never changes; mistakes are corrected by the next one.

use super::DatabaseError;

/// A migration, in SQL for both databases.
#[derive(Debug)]
pub(super) struct Migration {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// All migrations from an empty database to the current format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema(pub(super) &'static [Migration]);

/// State of a database relative to the current format.
#[derive(Debug)]
pub(super) enum SchemaState {
    Current,
    /// These migrations are missing.
    Behind(&'static [Migration]),
}

/// The constraints of the tables, by name, with what they require.
const CONSTRAINTS: [(&str, &str); 4] = [
    ("tidegate_key_length", "a key must have 1 to 256 characters"),
    ("tidegate_value_length", "a value must have 1 to 16384 characters"),
    ("tidegate_max_concurrent_requests", "it must be a whole number from 1 to 100"),
    ("tidegate_max_retries", "it must be a whole number from 0 to 20"),
];

impl Schema {
    /// The schema that this version reads and writes.
    pub(super) const CURRENT: Self = Self(&[Migration {
        sqlite: include_str!("schema/sqlite-1.sql"),
        postgres: include_str!("schema/postgres-1.sql"),
    }]);

    /// Returns the format number, which is the number of migrations.
    pub(super) fn format(self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// Compares the format of a database with the current one; `None` means empty.
    pub(super) fn state(self, found: Option<u32>) -> Result<SchemaState, DatabaseError> {
        let done = usize::try_from(found.unwrap_or(0)).unwrap_or(usize::MAX);
        match self.0.get(done..) {
            None => {
                Err(DatabaseError::NewFormat { found: found.unwrap_or(0), known: self.format() })
            }
            Some([]) => Ok(SchemaState::Current),
            Some(missing) => Ok(SchemaState::Behind(missing)),
        }
    }

    /// Rejects every format except the current one.
    pub(super) fn require(self, found: Option<u32>) -> Result<(), DatabaseError> {
        match (self.state(found)?, found) {
            (SchemaState::Current, _) => Ok(()),
            (SchemaState::Behind(_), None) => Err(DatabaseError::NotMigrated),
            (SchemaState::Behind(_), Some(found)) => {
                Err(DatabaseError::OldFormat { found, needs: self.format() })
            }
        }
    }
}

/// Returns what a constraint requires, given its name or a message that ends with it.
pub(super) fn constraint_rule(name: &str) -> &'static str {
    let found = CONSTRAINTS.iter().find(|(constraint, _)| name.ends_with(constraint));
    found.map_or("the database does not accept this value", |(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use tidegate_config::{MAX_KEY_CHARS, MAX_VALUE_CHARS};

    use super::*;

    const TWO: Schema =
        Schema(&[Migration { sqlite: "1", postgres: "" }, Migration { sqlite: "2", postgres: "" }]);

    #[test]
    fn missing_migrations_follow_the_format_found() {
        let missing = |found| match TWO.state(found) {
            Ok(SchemaState::Current) => "current".to_owned(),
            Ok(SchemaState::Behind(migrations)) => {
                migrations.iter().map(|migration| migration.sqlite).collect()
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(missing(None), "12");
        assert_eq!(missing(Some(1)), "2");
        assert_eq!(missing(Some(2)), "current");
        assert!(missing(Some(3)).contains("format 3"), "{}", missing(Some(3)));
        assert!(missing(Some(u32::MAX)).contains("newer"), "{}", missing(Some(u32::MAX)));
    }

    #[test]
    fn only_the_current_format_is_accepted() {
        assert!(TWO.require(Some(2)).is_ok());
        assert!(matches!(TWO.require(None), Err(DatabaseError::NotMigrated)));
        let old = TWO.require(Some(1));
        assert!(matches!(old, Err(DatabaseError::OldFormat { found: 1, needs: 2 })), "{old:?}");
    }

    /// A change that passes validation must not be rejected by the database for its length.
    #[test]
    fn the_tables_accept_the_longest_valid_key_and_value() {
        let [Migration { sqlite, postgres }] = Schema::CURRENT.0 else {
            panic!("adapt this test to the new migration")
        };
        for (column, most) in [("key", MAX_KEY_CHARS), ("value", MAX_VALUE_CHARS)] {
            let check = format!("CHECK (length({column}) BETWEEN 1 AND {most})");
            assert!(sqlite.contains(&check) && postgres.contains(&check), "{check}");
            let text = constraint_rule(&format!("tidegate_{column}_length"));
            assert!(text.ends_with(&format!("1 to {most} characters")), "{text}");
        }
    }

    #[test]
    fn constraints_are_found_by_name_and_by_message() {
        assert_eq!(
            constraint_rule("tidegate_max_retries"),
            "it must be a whole number from 0 to 20"
        );
        assert!(constraint_rule("CHECK constraint failed: tidegate_key_length").contains("256"));
        assert_eq!(constraint_rule("another"), "the database does not accept this value");
    }
}
