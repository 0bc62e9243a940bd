//! `[database]`: where settings changed at run time are kept.
//!
//! This crate parses the URL and never opens the database.

use std::fmt;
use std::path::PathBuf;

use crate::sections::keys::KnownKey;
use crate::values::fields::Fields;
use crate::values::postgres_url::PostgresUrl;
use crate::values::setting::Setting;
use crate::values::value::Value;
use crate::values::value_kind::ValueKind;
use crate::violation::Rule;

pub(crate) const WHY_FIXED: &str = "it is needed before the database can be read";

pub(crate) const KEYS: &[KnownKey] = &[
    KnownKey::new(
        "database.url",
        ValueKind::Text,
        |value| url(value).map(drop),
        "Database for settings changed at run time: \"none\", \"sqlite:\", \"sqlite:PATH\" or \
         postgres://...",
    )
    .at_start(WHY_FIXED, |a, b| a.database.url.value != b.database.url.value),
    KnownKey::new(
        "database.auto_migrate",
        ValueKind::Switch,
        |value| value.to_switch().map(drop),
        "Whether to migrate a PostgreSQL database to the current schema at start. SQLite is always \
         migrated.",
    )
    .at_start(WHY_FIXED, |a, b| a.database.auto_migrate.value != b.database.auto_migrate.value),
];

/// Settings of `[database]`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatabaseConfig {
    /// URL of the database. Default: `sqlite:`.
    pub url: Setting<DatabaseUrl>,
    /// Whether to migrate PostgreSQL at start. Default: `false`. SQLite is always migrated.
    pub auto_migrate: Setting<bool>,
}

/// A database URL.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseUrl {
    /// No database: changes made at run time are lost on restart.
    None,
    /// An SQLite file. `None` means `tidegate.db` in the state directory.
    Sqlite(Option<PathBuf>),
    /// A PostgreSQL server, which several nodes can share.
    Postgres(PostgresUrl),
}

impl fmt::Display for DatabaseUrl {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Sqlite(None) => f.write_str("sqlite:"),
            Self::Sqlite(Some(path)) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: Setting::default(DatabaseUrl::Sqlite(None)),
            auto_migrate: Setting::default(false),
        }
    }
}

impl DatabaseConfig {
    pub(crate) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut database = Self::default();
        database.url.replace(fields.setting("url", url));
        database.auto_migrate.replace(fields.setting("auto_migrate", Value::to_switch));
        database
    }
}

pub(crate) fn url(value: &Value<'_>) -> Result<DatabaseUrl, Rule> {
    let text = value.to_text().map_err(|_| Rule::DatabaseUrl)?;
    match text.split_once(':') {
        None if text == "none" => Ok(DatabaseUrl::None),
        Some(("sqlite", "")) => Ok(DatabaseUrl::Sqlite(None)),
        Some(("sqlite", path)) => match path.strip_prefix("//").unwrap_or(path) {
            "" => Err(Rule::DatabaseUrl),
            path => Ok(DatabaseUrl::Sqlite(Some(path.into()))),
        },
        Some(("postgres" | "postgresql", _)) => Ok(DatabaseUrl::Postgres(text.parse()?)),
        _ => Err(Rule::DatabaseUrl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_urls_are_parsed() {
        for (text, shown) in [
            ("none", "none"),
            ("sqlite:", "sqlite:"),
            ("sqlite:state.db", "sqlite:state.db"),
            ("sqlite:///var/lib/x.db", "sqlite:/var/lib/x.db"),
            ("postgres://u:secret@host/db", "postgres://host:5432/db"),
        ] {
            assert_eq!(url(&Value::text(text)).unwrap().to_string(), shown);
        }
        for text in ["", "off", "sqlite", "sqlite://", "mysql://host", "file.db"] {
            assert!(url(&Value::text(text)).is_err(), "{text}");
        }
    }
}
