//! Reads and writes the tables, each operation in one transaction.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use super::super::DatabaseError;
use super::super::error::Damage;
use super::super::record::{self, Audit, Change, MOST_KEPT, Note, Replaced, Stored};
use super::super::schema::{self, Schema};
use super::line::ask;
use super::listen::CHANNEL;
use super::meaning;

pub(super) async fn read(client: &mut Client, schema: Schema) -> Result<Stored, DatabaseError> {
    let transaction = reading(client).await?;
    let (format, revision) = head(&transaction, "").await?;
    schema.require(Some(format))?;
    stored(&transaction, revision).await
}

/// Returns the settings if the revision differs from `since`.
pub(super) async fn newer(
    client: &mut Client,
    schema: Schema,
    since: u64,
) -> Result<Option<Stored>, DatabaseError> {
    let transaction = reading(client).await?;
    let (format, revision) = head(&transaction, "").await?;
    schema.require(Some(format))?;
    if revision == since {
        return Ok(None);
    }
    stored(&transaction, revision).await.map(Some)
}

pub(super) async fn write(
    client: &mut Client,
    schema: Schema,
    changes: &[Change],
    note: &Note,
    expected: Option<u64>,
) -> Result<Stored, DatabaseError> {
    let transaction = ask(client.transaction()).await?;
    // This row lock serializes writers, so everything read below is current.
    let (format, revision) = head(&transaction, "FOR UPDATE").await?;
    schema.require(Some(format))?;
    let mut stored = stored(&transaction, revision).await?;
    stored.expect(expected)?;
    if changes.is_empty() {
        return Ok(stored);
    }
    let replaced = stored.apply(changes)?;
    let revision = i64::try_from(stored.revision).map_err(|_| Damage::Number)?;
    unset(&transaction, changes).await?;
    // Skip values that a later change of the same write replaces or removes.
    let lasts = |change: &&Change| stored.settings.get(&change.key) == change.value.as_ref();
    for change in changes.iter().filter(lasts) {
        let Some(value) = &change.value else { continue };
        set(&transaction, &change.key, value, revision).await?;
    }
    remember(&transaction, &replaced, note, revision).await?;
    let update = "UPDATE tidegate_meta SET revision = $1";
    ask(transaction.execute(update, &[&revision])).await?;
    // The server sends the notification when the transaction commits.
    let tell = "SELECT pg_notify($1, $2)";
    ask(transaction.execute(tell, &[&CHANNEL, &revision.to_string()])).await?;
    ask(transaction.commit()).await?;
    Ok(stored)
}

/// Returns the most recent changes, newest first.
pub(super) async fn history(
    client: &mut Client,
    schema: Schema,
    most: usize,
) -> Result<Vec<Audit>, DatabaseError> {
    let transaction = reading(client).await?;
    schema.require(Some(head(&transaction, "").await?.0))?;
    let select = "SELECT revision, at_ms, door, who, key, was, became FROM tidegate_change \
                  ORDER BY id DESC LIMIT $1";
    let rows = ask(transaction.query(select, &[&record::told(most)])).await?;
    rows.iter().map(audit).collect()
}

/// Returns the format and the revision, which every format stores in the same columns.
pub(super) async fn head(
    transaction: &Transaction<'_>,
    lock: &'static str,
) -> Result<(u32, u64), DatabaseError> {
    let select = format!("SELECT format, revision FROM tidegate_meta {lock}");
    let row = ask(transaction.query_opt(&select, &[])).await?.ok_or(Damage::NoMeta)?;
    let format = u32::try_from(column::<i32>(&row, 0)?).map_err(|_| Damage::Number)?;
    Ok((format, number(&row, 1)?))
}

/// Begins a read-only transaction on a consistent snapshot.
async fn reading(client: &mut Client) -> Result<Transaction<'_>, DatabaseError> {
    let begin = client.build_transaction().read_only(true);
    ask(begin.isolation_level(IsolationLevel::RepeatableRead).start()).await
}

async fn stored(transaction: &Transaction<'_>, revision: u64) -> Result<Stored, DatabaseError> {
    let rows = ask(transaction.query("SELECT key, value FROM tidegate_setting", &[])).await?;
    let settings = rows.iter().map(|row| Ok((column(row, 0)?, column(row, 1)?)));
    let settings = settings.collect::<Result<_, DatabaseError>>()?;
    Ok(Stored { revision, settings })
}

/// Deletes all removed settings in one statement, since there may be many.
async fn unset(transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), DatabaseError> {
    let gone = changes.iter().filter(|change| change.value.is_none());
    let gone: Vec<&str> = gone.map(|change| change.key.as_str()).collect();
    if !gone.is_empty() {
        let unset = "DELETE FROM tidegate_setting WHERE key = ANY($1)";
        ask(transaction.execute(unset, &[&gone])).await?;
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
        Some(said) if *said.code() == SqlState::CHECK_VIOLATION => {
            let rule = schema::rule(said.constraint().unwrap_or_default());
            DatabaseError::refused(key, rule)
        }
        _ => meaning(error),
    };
    let done = async {
        let done = transaction.execute(set, &[&key, &value, &revision]).await;
        Ok(done.map(|_| ()).map_err(refused))
    };
    ask(done).await?
}

/// Writes the changes to the audit trail in one statement, and deletes its oldest entries.
async fn remember(
    transaction: &Transaction<'_>,
    replaced: &[Replaced<'_>],
    note: &Note,
    revision: i64,
) -> Result<(), DatabaseError> {
    let keys: Vec<&str> = replaced.iter().map(|entry| entry.change.key.as_str()).collect();
    let old: Vec<Option<&str>> = replaced.iter().map(|entry| entry.old.as_deref()).collect();
    let new: Vec<Option<&str>> =
        replaced.iter().map(|entry| entry.change.value.as_deref()).collect();
    let remember = "INSERT INTO tidegate_change (revision, at_ms, door, who, key, was, became) \
                    SELECT $1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
                    $2, $3, key, was, became \
                    FROM unnest($4::text[], $5::text[], $6::text[]) \
                    WITH ORDINALITY AS entry (key, was, became, place) ORDER BY place";
    let row: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
        [&revision, &note.door, &note.name(), &keys, &old, &new];
    ask(transaction.execute(remember, &row)).await?;
    let forget = "DELETE FROM tidegate_change \
                  WHERE id <= (SELECT max(id) FROM tidegate_change) - $1";
    ask(transaction.execute(forget, &[&MOST_KEPT])).await?;
    Ok(())
}

fn audit(row: &Row) -> Result<Audit, DatabaseError> {
    Ok(Audit {
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
