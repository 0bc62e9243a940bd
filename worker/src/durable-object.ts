/**
 * The Durable Object class: one shard of the limiter.
 *
 * The runtime executes one request at a time up to its next `await`, and a decision has none between
 * its first read and its last write. So a decision is atomic without a lock.
 */
import { HttpError, MAX_CALL, NOW_HEADER, notFound, pathOf, readBody, reply, text } from "./http";
import { ShardModule, type ModuleReply } from "./shard-module";
import { FormatError, ShardStorage, START } from "./shard-storage";

/** Time between the first write and the first sweep, and between sweeps, in milliseconds. */
const SWEEP_INTERVAL_MS = 3_600_000;

/**
 * Pause between two steps of a sweep, in milliseconds. A step takes about one; without a pause the
 * steps would take half of the object's time, and requests would wait for it.
 */
const SWEEP_PAUSE_MS = 10;

/** No path of the API is longer. */
const MAX_PATH = 64;

/** Bindings of the object. */
export interface RateLimiterEnv {
  /** "1": requests may bring their time. For tests only. */
  TIDEGATE_MANUAL_CLOCK?: string;
}

/** One shard, with its own SQLite storage. */
export class RateLimiterDO implements DurableObject {
  readonly #ctx: DurableObjectState;
  readonly #manualClock: boolean;
  #storage: ShardStorage | undefined;
  #module: ShardModule | undefined;
  /** Whether an alarm is set; undefined until the storage was asked. */
  #armed: boolean | undefined;

  constructor(ctx: DurableObjectState, env: RateLimiterEnv) {
    this.#ctx = ctx;
    this.#manualClock = env.TIDEGATE_MANUAL_CLOCK === "1";
  }

  async fetch(request: Request): Promise<Response> {
    const path = pathOf(request.url);
    if (request.method !== "POST" || path.length > MAX_PATH) return notFound();
    try {
      if (this.#manualClock && path === "/sweep") {
        await this.#sweep(Number(this.#now(request) / 1_000_000n));
        return reply(200, "{}");
      }
      return await this.#handle(path, request);
    } catch (error) {
      if (error instanceof HttpError) return error.toResponse();
      return this.#failed(error);
    }
  }

  async alarm(): Promise<void> {
    await this.#sweep(Date.now());
  }

  async #handle(path: string, request: Request): Promise<Response> {
    const body = await readBody(request, MAX_CALL);
    this.#armed ??= (await this.#ctx.storage.getAlarm()) !== null;
    // After the last await: a slow caller must not bring a time before that of later decisions.
    const result = this.#execute(path, body, this.#now(request));
    return reply(result.status, result.body);
  }

  /** Executes a request in a transaction. */
  #execute(path: string, body: Uint8Array, nowNs: bigint): ModuleReply {
    const storage = this.#open();
    const writes = storage.writes;
    storage.nowMs = Number(nowNs / 1_000_000n);
    let failed: ModuleReply | undefined;
    try {
      const result = this.#ctx.storage.transactionSync(() => {
        this.#module ??= new ShardModule(storage);
        const result = this.#module.handle(path, body, nowNs);
        if (result.status !== 200 && storage.writes > writes) {
          failed = result;
          throw new Error("a failed request wrote to the storage");
        }
        return result;
      });
      if (storage.writes > writes) this.#arm();
      return result;
    } catch (error) {
      // Both may hold what was rolled back.
      this.#forget();
      if (failed !== undefined) return failed;
      throw error;
    }
  }

  /** Sets the alarm unless it is set. Without an `await` since the write, both are committed together. */
  #arm(): void {
    if (this.#armed) return;
    this.#armed = true;
    // A failure closes the output gate: the runtime then fails the request and resets the object.
    void this.#ctx.storage.setAlarm(Date.now() + SWEEP_INTERVAL_MS);
  }

  /**
   * Deletes the buckets that are full and idle, and the limits that have no bucket any more. Requests
   * are served between its steps.
   */
  async #sweep(nowMs: number): Promise<void> {
    // The alarm that called this is not set any more. A request in between may set the next one.
    this.#armed = (await this.#ctx.storage.getAlarm()) !== null;
    await this.#sweepTable((storage, cursor) => storage.sweepBuckets(cursor, nowMs));
    await this.#sweepTable((storage, cursor) => {
      // It has policy histories that are about to be deleted.
      this.#module = undefined;
      return storage.sweepLimits(cursor);
    });
    const storage = this.#open();
    if (!storage.isEmpty()) {
      this.#arm();
      return;
    }
    storage.forgetShard();
    // It has the number that was just deleted.
    this.#module = undefined;
  }

  /** Executes one step after the other. A step returns where the next one starts. */
  async #sweepTable(step: (storage: ShardStorage, cursor: ArrayBuffer) => ArrayBuffer | undefined): Promise<void> {
    let cursor: ArrayBuffer | undefined = START;
    for (;;) {
      // A request in between may have dropped the storage, so it is not kept over an await.
      cursor = step(this.#open(), cursor);
      if (cursor === undefined) return;
      await scheduler.wait(SWEEP_PAUSE_MS);
    }
  }

  #open(): ShardStorage {
    return (this.#storage ??= new ShardStorage(this.#ctx.storage.sql));
  }

  #forget(): void {
    this.#module = undefined;
    this.#storage = undefined;
    this.#armed = undefined;
  }

  #failed(error: unknown): Response {
    if (error instanceof FormatError) return text(500, `Error: ${error.message}`);
    console.error("request failed", error);
    return text(500, `Error: the shard failed and rolled the request back: ${String(error)}`);
  }

  #now(request: Request): bigint {
    const manual = this.#manualClock ? request.headers.get(NOW_HEADER) : null;
    if (manual === null) return BigInt(Date.now()) * 1_000_000n;
    if (!/^\d{1,19}$/.test(manual)) throw new HttpError(400, `Error: ${NOW_HEADER} must be a number of nanoseconds`);
    return BigInt(manual);
  }
}
