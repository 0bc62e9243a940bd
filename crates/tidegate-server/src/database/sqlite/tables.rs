//! Reads and writes the tables, each operation in one transaction.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};

use super::super::DatabaseError;
use super::super::error::Damage;
use super::super::record::{
    self, AuditEntry, ChangeOrigin, MAX_STORED_HISTORY, SettingUpdate, StoredSettings,
};
use super::super::schema::{self, Schema};
use super::map_error;

/// Returns the format of a file; `None` if it is empty.
pub(super) fn format(connection: &Connection) -> Result<Option<u32>, DatabaseError> {
    let tables = "SELECT count(*), count(*) FILTER (WHERE name = 'tidegate_meta') \
                  FROM sqlite_schema WHERE type = 'table'";
    let counts = connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?)));
    match counts.map_err(map_error)? {
        (0_i64, _) => Ok(None),
        (_, 0_i64) => Err(DatabaseError::Foreign),
        _ => Ok(Some(read_meta(connection)?.0)),
    }
}

pub(super) fn read(
    connection: &mut Connection,
    schema: Schema,
) -> Result<StoredSettings, DatabaseError> {
    let transaction = connection.transaction().map_err(map_error)?;
    stored(&transaction, schema)
}

/// Returns the settings if the revision differs from `since`.
pub(super) fn read_if_changed(
    connection: &mut Connection,
    schema: Schema,
    since: u64,
) -> Result<Option<StoredSettings>, DatabaseError> {
    let transaction = connection.transaction().map_err(map_error)?;
    let (format, revision) = read_meta(&transaction)?;
    schema.require(Some(format))?;
    if revision == since { Ok(None) } else { stored(&transaction, schema).map(Some) }
}

pub(super) fn write(
    connection: &mut Connection,
    schema: Schema,
    changes: &[SettingUpdate],
    note: &ChangeOrigin,
    expected: Option<u64>,
) -> Result<StoredSettings, DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(map_error)?;
    let mut stored = stored(&transaction, schema)?;
    stored.check_revision(expected)?;
    if changes.is_empty() {
        return Ok(stored);
    }
    let replaced = stored.apply(changes)?;
    let revision = i64::try_from(stored.revision).map_err(|_| Damage::Number)?;
    let who = note.author();
    for replaced in replaced {
        let SettingUpdate { key, value } = replaced.change;
        set(&transaction, key, value.as_deref(), revision)?;
        let insert = "INSERT INTO tidegate_change (revision, at_ms, door, who, key, was, became) \
                        VALUES (?1, CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER), \
                        ?2, ?3, ?4, ?5, ?6)";
        let row = params![revision, note.door, who, key, replaced.old, value];
        transaction.execute(insert, row).map_err(map_error)?;
    }
    let update = "UPDATE tidegate_meta SET revision = ?1";
    transaction.execute(update, [revision]).map_err(map_error)?;
    let trim = "DELETE FROM tidegate_change \
                  WHERE id <= (SELECT max(id) FROM tidegate_change) - ?1";
    transaction.execute(trim, [MAX_STORED_HISTORY]).map_err(map_error)?;
    transaction.commit().map_err(map_error)?;
    Ok(stored)
}

/// Returns the most recent changes, newest first.
pub(super) fn history(
    connection: &mut Connection,
    schema: Schema,
    most: usize,
) -> Result<Vec<AuditEntry>, DatabaseError> {
    let transaction = connection.transaction().map_err(map_error)?;
    schema.require(Some(read_meta(&transaction)?.0))?;
    let select = "SELECT revision, at_ms, door, who, key, was, became FROM tidegate_change \
                  ORDER BY id DESC LIMIT ?1";
    let mut statement = transaction.prepare(select).map_err(map_error)?;
    let rows = statement.query_map([record::history_limit(most)], audit).map_err(map_error)?;
    rows.collect::<Result<_, _>>().map_err(map_error)
}

fn audit(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        revision: number(row, 0)?,
        at_ms: number(row, 1)?,
        door: row.get(2)?,
        who: row.get(3)?,
        key: row.get(4)?,
        old: row.get(5)?,
        new: row.get(6)?,
    })
}

fn stored(transaction: &Transaction<'_>, schema: Schema) -> Result<StoredSettings, DatabaseError> {
    let (format, revision) = read_meta(transaction)?;
    schema.require(Some(format))?;
    let select = "SELECT key, value FROM tidegate_setting";
    let mut statement = transaction.prepare(select).map_err(map_error)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(map_error)?;
    let settings = rows.collect::<Result<_, _>>().map_err(map_error)?;
    Ok(StoredSettings { revision, settings })
}

/// Returns the format and the revision, which every format stores in the same columns.
fn read_meta(connection: &Connection) -> Result<(u32, u64), DatabaseError> {
    let select = "SELECT format, revision FROM tidegate_meta";
    let head = connection.query_row(select, [], |row| Ok((row.get(0)?, number(row, 1)?)));
    Ok(head.optional().map_err(map_error)?.ok_or(Damage::NoMeta)?)
}

fn set(
    transaction: &Transaction<'_>,
    key: &str,
    value: Option<&str>,
    revision: i64,
) -> Result<(), DatabaseError> {
    let result = match value {
        Some(value) => {
            let set = "INSERT INTO tidegate_setting (key, value, revision) VALUES (?1, ?2, ?3) \
                       ON CONFLICT (key) DO UPDATE \
                       SET value = excluded.value, revision = excluded.revision";
            transaction.execute(set, params![key, value, revision])
        }
        None => transaction.execute("DELETE FROM tidegate_setting WHERE key = ?1", [key]),
    };
    match result {
        Ok(_) => Ok(()),
        Err(rusqlite::Error::SqliteFailure(error, message))
            if error.code == rusqlite::ErrorCode::ConstraintViolation =>
        {
            Err(DatabaseError::refused(key, schema::constraint_rule(&message.unwrap_or_default())))
        }
        Err(error) => Err(map_error(error)),
    }
}

fn number(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(index)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))
}
