//! Creates the tables or migrates them to the current format, in one transaction.

use tokio_postgres::{Client, Transaction};

use super::super::DatabaseError;
use super::super::error::Damage;
use super::super::record::MigrationResult;
use super::super::schema::{Schema, SchemaState};
use super::connection::with_timeout;
use super::tables;

/// Advisory lock that serializes migrations: "tidegate" in ASCII.
const LOCK: i64 = 0x7469_6465_6761_7465;

pub(super) async fn run(
    client: &mut Client,
    schema: Schema,
) -> Result<MigrationResult, DatabaseError> {
    let transaction = with_timeout(client.transaction()).await?;
    with_timeout(transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])).await?;
    let from = format(&transaction).await?;
    let to = schema.format();
    let SchemaState::Behind(migrations) = schema.state(from)? else {
        return Ok(MigrationResult { from, to, backup: None });
    };
    for migration in migrations {
        with_timeout(transaction.batch_execute(migration.postgres)).await?;
    }
    let format = i32::try_from(to).map_err(|_| Damage::Number)?;
    with_timeout(transaction.execute("UPDATE tidegate_meta SET format = $1", &[&format])).await?;
    with_timeout(transaction.commit()).await?;
    tracing::info!(from, to, "database migrated");
    Ok(MigrationResult { from, to, backup: None })
}

/// Returns the format of the tables; `None` if there are none.
async fn format(transaction: &Transaction<'_>) -> Result<Option<u32>, DatabaseError> {
    // Querying a missing table would abort the transaction.
    let find = "SELECT to_regclass('tidegate_meta') IS NOT NULL";
    let found = with_timeout(transaction.query_one(find, &[])).await?;
    if found.try_get(0).map_err(super::map_error)? {
        tables::read_meta(transaction, "").await.map(|(format, _)| Some(format))
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::launch::PostgresServer;

    use super::super::super::AutoMigrate;
    use super::super::super::record::{ChangeOrigin, SettingUpdate};
    use super::super::super::schema::Migration;
    use super::super::Postgres;
    use super::*;

    const FIRST: &str = include_str!("../schema/postgres-1.sql");
    const ONE: Schema = Schema(&[Migration { sqlite: "", postgres: FIRST }]);
    const TWO: Schema = Schema(&[
        Migration { sqlite: "", postgres: FIRST },
        Migration {
            sqlite: "",
            postgres: "ALTER TABLE tidegate_setting ADD COLUMN note text; \
                       UPDATE tidegate_setting SET value = '7' WHERE key = 'a'",
        },
    ]);
    const BROKEN: Schema = Schema(&[
        Migration { sqlite: "", postgres: FIRST },
        Migration { sqlite: "", postgres: "DELETE FROM tidegate_setting; SELECT no_such_column" },
    ]);

    #[tokio::test]
    async fn older_tables_are_migrated_on_request_and_atomically() {
        let server = PostgresServer::start();
        let open = |auto, schema| Postgres::new(&server.url(), auto, schema).unwrap();
        let old = open(AutoMigrate::Yes, ONE);
        let note = ChangeOrigin { door: "cli", who: None };
        old.write(&[SettingUpdate::set("a", "1")], &note, None).await.unwrap();

        let refused = open(AutoMigrate::No, TWO).read().await;
        let is_old_format = matches!(refused, Err(DatabaseError::OldFormat { found: 1, needs: 2 }));
        assert!(is_old_format, "{refused:?}");
        assert!(open(AutoMigrate::No, BROKEN).migrate().await.is_err());
        assert_eq!(old.read().await.unwrap().settings["a"], "1", "nothing has changed");

        let migrated = open(AutoMigrate::No, TWO).migrate().await.unwrap();
        assert_eq!(migrated, MigrationResult { from: Some(1), to: 2, backup: None });
        assert_eq!(open(AutoMigrate::Yes, TWO).read().await.unwrap().settings["a"], "7");
        let outdated = old.read().await;
        assert!(
            matches!(outdated, Err(DatabaseError::NewFormat { found: 2, known: 1 })),
            "{outdated:?}"
        );
    }
}
