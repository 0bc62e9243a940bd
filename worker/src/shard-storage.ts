/** The SQLite tables of a shard. */
import { BUCKETS, type Host } from "./shard-module";

/** Format of the tables. */
export const FORMAT = 1;

/** A bucket is deleted once it is full and was not written for this long, in milliseconds. */
export const IDLE_MS = 86_400_000;

/** Number of rows that one step of a sweep looks at. */
export const BATCH = 1_000;

const CREATE = `
  CREATE TABLE tidegate_meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE buckets (id BLOB PRIMARY KEY, value BLOB NOT NULL, full_at REAL, written_at INTEGER NOT NULL) WITHOUT ROWID;
  CREATE TABLE limits (id BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
  INSERT INTO tidegate_meta VALUES ('format', ${FORMAT});`;

// The runtime caches prepared statements by their text, so these stay constant.
const READ_BUCKET = "SELECT value FROM buckets WHERE id = ?";
const READ_LIMIT = "SELECT value FROM limits WHERE id = ?";
const WRITE_BUCKET = `INSERT INTO buckets VALUES (?1, ?2, ?3, ?4)
  ON CONFLICT (id) DO UPDATE SET value = ?2, full_at = ?3, written_at = ?4`;
const WRITE_LIMIT = "INSERT INTO limits VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET value = ?2";
const REMOVE_BUCKET = "DELETE FROM buckets WHERE id = ?";
const REMOVE_LIMIT = "DELETE FROM limits WHERE id = ?";
const BATCH_END = `SELECT id FROM buckets WHERE id > ? ORDER BY id LIMIT 1 OFFSET ${BATCH - 1}`;
const SWEEP_TO = "DELETE FROM buckets WHERE id > ?1 AND id <= ?2 AND full_at <= ?3 AND written_at < ?4";
const SWEEP_REST = "DELETE FROM buckets WHERE id > ?1 AND full_at <= ?2 AND written_at < ?3";

const LIMITS_END = `SELECT id FROM limits WHERE id > ? ORDER BY id LIMIT 1 OFFSET ${BATCH - 1}`;
// The id of a bucket starts with that of its limit and the byte 1f, which is in no limit's id.
const UNUSED = `NOT EXISTS (SELECT 1 FROM buckets
  WHERE buckets.id > CAST(limits.id || x'1f' AS BLOB) AND buckets.id < CAST(limits.id || x'20' AS BLOB))`;
const SWEEP_LIMITS_TO = `DELETE FROM limits WHERE id > ?1 AND id <= ?2 AND ${UNUSED}`;
const SWEEP_LIMITS_REST = `DELETE FROM limits WHERE id > ?1 AND ${UNUSED}`;

/** Where a sweep starts. Neither a bucket nor a limit has an empty id, but the number of the shard. */
export const START = new ArrayBuffer(0);

/** Storage that this version cannot read. */
export class FormatError extends Error {
  constructor(format: unknown) {
    super(`the storage of this object has format ${format}, but this version reads format ${FORMAT}; deploy the newer version again`);
  }
}

/** Implements the module's storage with synchronous statements. */
export class ShardStorage implements Host {
  readonly #sql: SqlStorage;
  #exists: boolean;
  /** Number of writes and removals so far. */
  writes = 0;
  /** Time of the current request, in milliseconds. */
  nowMs = 0;

  /** @throws FormatError if another version wrote the storage */
  constructor(sql: SqlStorage) {
    this.#sql = sql;
    this.#exists = isCreated(sql);
  }

  read(table: number, key: Uint8Array): ArrayBuffer | undefined {
    if (!this.#exists) return undefined;
    const rows = this.#sql.exec(table === BUCKETS ? READ_BUCKET : READ_LIMIT, key).raw();
    const row = rows.next();
    return row.done ? undefined : (row.value[0] as ArrayBuffer);
  }

  write(table: number, key: Uint8Array, value: Uint8Array, fullAt: number): void {
    this.#create();
    this.writes += 1;
    if (table === BUCKETS) {
      const never = fullAt === Infinity;
      this.#sql.exec(WRITE_BUCKET, key, value, never ? null : fullAt, this.nowMs);
    } else {
      this.#sql.exec(WRITE_LIMIT, key, value);
    }
  }

  remove(table: number, key: Uint8Array): void {
    if (!this.#exists) return;
    this.writes += 1;
    this.#sql.exec(table === BUCKETS ? REMOVE_BUCKET : REMOVE_LIMIT, key);
  }

  /**
   * Deletes what is full and idle among the next buckets after `cursor`. Returns the next cursor, or
   * undefined after the last bucket.
   */
  sweepBuckets(cursor: ArrayBuffer, nowMs: number): ArrayBuffer | undefined {
    if (!this.#exists) return undefined;
    const end = this.#sql.exec(BATCH_END, cursor).raw().next();
    const before = nowMs - IDLE_MS;
    if (end.done) {
      this.#sql.exec(SWEEP_REST, cursor, nowMs, before);
      return undefined;
    }
    const next = end.value[0] as ArrayBuffer;
    this.#sql.exec(SWEEP_TO, cursor, next, nowMs, before);
    return next;
  }

  /**
   * Deletes those without a bucket among the next limits after `cursor`. Returns the next cursor, or
   * undefined after the last limit.
   */
  sweepLimits(cursor: ArrayBuffer): ArrayBuffer | undefined {
    if (!this.#exists) return undefined;
    const end = this.#sql.exec(LIMITS_END, cursor).raw().next();
    if (end.done) {
      this.#sql.exec(SWEEP_LIMITS_REST, cursor);
      return undefined;
    }
    const next = end.value[0] as ArrayBuffer;
    this.#sql.exec(SWEEP_LIMITS_TO, cursor, next);
    return next;
  }

  /** Whether there is no bucket. */
  isEmpty(): boolean {
    return !this.#exists || this.#sql.exec("SELECT 1 FROM buckets LIMIT 1").raw().next().done === true;
  }

  /** Deletes the number of a shard without buckets, and limits whose buckets were just deleted. */
  forgetShard(): void {
    if (this.#exists) this.#sql.exec("DELETE FROM limits");
  }

  /** Creates the tables on the first write: an object that is only asked stores nothing. */
  #create(): void {
    if (this.#exists) return;
    this.#sql.exec(CREATE);
    this.#exists = true;
  }
}

function isCreated(sql: SqlStorage): boolean {
  const tables = sql.exec("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'tidegate_meta'");
  if (tables.raw().next().done) return false;
  const row = sql.exec("SELECT value FROM tidegate_meta WHERE name = 'format'").raw().next();
  const format = row.done ? undefined : row.value[0];
  if (format !== FORMAT) throw new FormatError(format);
  return true;
}
