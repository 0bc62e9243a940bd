//! Reads and writes the tables, each operation in one transaction.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use super::super::DatabaseError;
use super::super::error::Damage;
use super::super::record::{
    self, AuditEntry, ChangeOrigin, MAX_STORED_HISTORY, Replaced, SettingUpdate, StoredSettings,
};
use super::super::schema::{self, Schema};
use super::connection::with_timeout;
use super::listen::CHANNEL;
use super::map_error;

pub(super) async fn read(
    client: &mut Client,
    schema: Schema,
) -> Result<StoredSettings, DatabaseError> {
    let transaction = begin_read(client).await?;
    let (format, revision) = read_meta(&transaction, "").await?;
    schema.require(Some(format))?;
    stored(&transaction, revision).await
}

/// Returns the settings if the revision differs from `since`.
pub(super) async fn read_if_changed(
    client: &mut Client,
    schema: Schema,
    since: u64,
) -> Result<Option<StoredSettings>, DatabaseError> {
    let transaction = begin_read(client).await?;
    let (format, revision) = read_meta(&transaction, "").await?;
    schema.require(Some(format))?;
    if revision == since {
        return Ok(None);
    }
    stored(&transaction, revision).await.map(Some)
}

pub(super) async fn write(
    client: &mut Client,
    schema: Schema,
    changes: &[SettingUpdate],
    note: &ChangeOrigin,
    expected: Option<u64>,
) -> Result<StoredSettings, DatabaseError> {
    let transaction = with_timeout(client.transaction()).await?;
    // This row lock serializes writers, so everything read below is current.
    let (format, revision) = read_meta(&transaction, "FOR UPDATE").await?;
    schema.require(Some(format))?;
    let mut stored = stored(&transaction, revision).await?;
    stored.check_revision(expected)?;
    if changes.is_empty() {
        return Ok(stored);
    }
    let replaced = stored.apply(changes)?;
    let revision = i64::try_from(stored.revision).map_err(|_| Damage::Number)?;
    unset(&transaction, changes).await?;
    // Skip values that a later change of the same write replaces or removes.
    let is_final =
        |change: &&SettingUpdate| stored.settings.get(&change.key) == change.value.as_ref();
    for change in changes.iter().filter(is_final) {
        let Some(value) = &change.value else { continue };
        set(&transaction, &change.key, value, revision).await?;
    }
    write_audit(&transaction, &replaced, note, revision).await?;
    let update = "UPDATE tidegate_meta SET revision = $1";
    with_timeout(transaction.execute(update, &[&revision])).await?;
    // The server sends the notification when the transaction commits.
    let notify = "SELECT pg_notify($1, $2)";
    with_timeout(transaction.execute(notify, &[&CHANNEL, &revision.to_string()])).await?;
    with_timeout(transaction.commit()).await?;
    Ok(stored)
}

/// Returns the most recent changes, newest first.
pub(super) async fn history(
    client: &mut Client,
    schema: Schema,
    most: usize,
) -> Result<Vec<AuditEntry>, DatabaseError> {
    let transaction = begin_read(client).await?;
    schema.require(Some(read_meta(&transaction, "").await?.0))?;
    let select = "SELECT revision, at_ms, door, who, key, was, became FROM tidegate_change \
                  ORDER BY id DESC LIMIT $1";
    let rows = with_timeout(transaction.query(select, &[&record::history_limit(most)])).await?;
    rows.iter().map(audit).collect()
}

/// Returns the format and the revision, which every format stores in the same columns.
pub(super) async fn read_meta(
    transaction: &Transaction<'_>,
    lock: &'static str,
) -> Result<(u32, u64), DatabaseError> {
    let select = format!("SELECT format, revision FROM tidegate_meta {lock}");
    let row = with_timeout(transaction.query_opt(&select, &[])).await?.ok_or(Damage::NoMeta)?;
    let format = u32::try_from(column::<i32>(&row, 0)?).map_err(|_| Damage::Number)?;
    Ok((format, number(&row, 1)?))
}

/// Begins a read-only transaction on a consistent snapshot.
async fn begin_read(client: &mut Client) -> Result<Transaction<'_>, DatabaseError> {
    let begin = client.build_transaction().read_only(true);
    with_timeout(begin.isolation_level(IsolationLevel::RepeatableRead).start()).await
}

async fn stored(
    transaction: &Transaction<'_>,
    revision: u64,
) -> Result<StoredSettings, DatabaseError> {
    let rows =
        with_timeout(transaction.query("SELECT key, value FROM tidegate_setting", &[])).await?;
    let settings = rows.iter().map(|row| Ok((column(row, 0)?, column(row, 1)?)));
    let settings = settings.collect::<Result<_, DatabaseError>>()?;
    Ok(StoredSettings { revision, settings })
}

/// Deletes all removed settings in one statement, since there may be many.
async fn unset(
    transaction: &Transaction<'_>,
    changes: &[SettingUpdate],
) -> Result<(), DatabaseError> {
    let removed = changes.iter().filter(|change| change.value.is_none());
    let removed: Vec<&str> = removed.map(|change| change.key.as_str()).collect();
    if !removed.is_empty() {
        let unset = "DELETE FROM tidegate_setting WHERE key = ANY($1)";
        with_timeout(transaction.execute(unset, &[&removed])).await?;
    }
    Ok(())
}

async fn set(
    transaction: &Transaction<'_>,
    key: &str,
    value: &str,
    revision: i64,
) -> Result<(), DatabaseError> {
    let set = "INSERT INTO tidegate_setting (key, value, revision) VALUES ($1, $2, $3) \
               ON CONFLICT (key) DO UPDATE \
               SET value = excluded.value, revision = excluded.revision";
    let refused = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(db_error) if *db_error.code() == SqlState::CHECK_VIOLATION => {
            let rule = schema::constraint_rule(db_error.constraint().unwrap_or_default());
            DatabaseError::refused(key, rule)
        }
        _ => map_error(error),
    };
    let insert = async {
        let inserted = transaction.execute(set, &[&key, &value, &revision]).await;
        Ok(inserted.map(|_| ()).map_err(refused))
    };
    with_timeout(insert).await?
}

/// Writes the changes to the audit trail in one statement, and deletes its oldest entries.
async fn write_audit(
    transaction: &Transaction<'_>,
    replaced: &[Replaced<'_>],
    note: &ChangeOrigin,
    revision: i64,
) -> Result<(), DatabaseError> {
    let keys: Vec<&str> = replaced.iter().map(|entry| entry.change.key.as_str()).collect();
    let old: Vec<Option<&str>> = replaced.iter().map(|entry| entry.old.as_deref()).collect();
    let new: Vec<Option<&str>> =
        replaced.iter().map(|entry| entry.change.value.as_deref()).collect();
    let insert = "INSERT INTO tidegate_change (revision, at_ms, door, who, key, was, became) \
                    SELECT $1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
                    $2, $3, key, was, became \
                    FROM unnest($4::text[], $5::text[], $6::text[]) \
                    WITH ORDINALITY AS entry (key, was, became, place) ORDER BY place";
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&revision, &note.door, &note.author(), &keys, &old, &new];
    with_timeout(transaction.execute(insert, &row)).await?;
    let trim = "DELETE FROM tidegate_change \
                  WHERE id <= (SELECT max(id) FROM tidegate_change) - $1";
    with_timeout(transaction.execute(trim, &[&MAX_STORED_HISTORY])).await?;
    Ok(())
}

fn audit(row: &Row) -> Result<AuditEntry, DatabaseError> {
    Ok(AuditEntry {
        revision: number(row, 0)?,
        at_ms: number(row, 1)?,
        door: column(row, 2)?,
        who: column(row, 3)?,
        key: column(row, 4)?,
        old: column(row, 5)?,
        new: column(row, 6)?,
    })
}

fn number(row: &Row, index: usize) -> Result<u64, DatabaseError> {
    Ok(u64::try_from(column::<i64>(row, index)?).map_err(|_| Damage::Number)?)
}

/// Reads a column. A different type means that the database is damaged.
fn column<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T, DatabaseError> {
    row.try_get(index).map_err(|error| DatabaseError::Damaged(error.into()))
}
