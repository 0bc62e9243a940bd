import type { BucketMemory } from "./bucket-memory.js";
import { fnv1a } from "./fnv1a.js";
import { checkCost, checkFunction, checkOptions, checkPolicy, decimalText, invalidOption, positiveInteger, prefixedKey } from "./policy.js";
import type { Clock, Policy, RateLimitDecision, RateLimiter } from "./types.js";

/** Options of `memoryRateLimiter`. */
export interface MemoryOptions {
  /** Source of time; `Date` if unset. For tests. */
  readonly clock?: Clock;
  /** Maximum number of keys with a bucket of their own; 100,000 if unset. */
  readonly maxKeys?: number;
}

/** A limiter in this process, which can also decide without a promise. */
export interface MemoryRateLimiter extends RateLimiter {
  /** Decides at once. */
  consumeSync(key: string, cost: number): RateLimitDecision;
  /** Number of keys with a bucket of their own. */
  readonly size: number;
  dispose(): void;
}

const DEFAULT_MAX_KEYS = 100_000;
/** Buckets for keys that find no room. */
const OVERFLOW_BUCKETS = 64;
/** Buckets that are checked for each new key; more if there is no room. */
const CHECKS_PER_KEY = 2;
const CHECKS_WITHOUT_ROOM = 16;
/** 64 bits of nanoseconds last 100 years longer, which is the longest fill time. */
const MAX_TIME_MS = 15_000_000_000_000;

/**
 * Buckets in wasm memory, found by a map from keys to slot numbers.
 *
 * A full bucket equals no bucket, so it may be forgotten. Every new key checks the next few slots
 * and frees those that are full again: the table stays as small as the traffic of one fill time
 * and needs no timer. A bucket that is not full is never forgotten. If the table has its maximum
 * and the checks found no full bucket, the new key shares one of a fixed number of overflow
 * buckets. It gets its own bucket later, with the content of the one that it shared.
 */
export class BucketTable implements MemoryRateLimiter {
  readonly #memory: BucketMemory;
  readonly #policy: Policy;
  readonly #maxKeys: number;
  readonly #now: () => number;
  readonly #consume: BucketMemory["wasm"]["consume"];
  /** The first block has the policy and the overflow buckets, the others a bucket per slot. */
  readonly #blocks: number[];
  /** Address of the policy. */
  readonly #address: number;
  readonly #bucketSize: number;
  /** Buckets in a block, a power of two, and its logarithm. */
  readonly #perBlock: number;
  readonly #blockShift: number;
  #slots = new Map<string, number>();
  /** The key of each slot; `undefined` if the slot is free. */
  #keys: (string | undefined)[] = [];
  #free: number[] = [];
  #cursor = 0;
  #overflowed = false;

  /** `rate` is the text of a rate that tokens per second cannot express, for tests. */
  constructor(memory: BucketMemory, policy: Policy, options: MemoryOptions = {}, rate?: string) {
    const { clock, maxKeys = DEFAULT_MAX_KEYS } = checkOptions(options);
    if (clock !== undefined) checkFunction("clock", clock, "now");
    this.#memory = memory;
    this.#policy = checkPolicy(policy);
    this.#maxKeys = positiveInteger("maxKeys", maxKeys);
    this.#now = clock === undefined ? Date.now : () => checkTime(clock.now());
    this.#consume = memory.wasm.consume;
    this.#bucketSize = memory.bucketSize;
    this.#perBlock = memory.blockSize / memory.bucketSize;
    this.#blockShift = Math.log2(this.#perBlock);
    this.#address = memory.create(this.#policy.capacity, rate ?? decimalText(this.#policy.tokensPerSecond));
    this.#blocks = [this.#address];
    memory.releaseWith(this, this.#blocks);
  }

  get size(): number {
    return this.#slots.size;
  }

  getPolicy(): Policy {
    return this.#policy;
  }

  consume(key: string, cost: number): Promise<RateLimitDecision> {
    try {
      return Promise.resolve(this.consumeSync(key, cost));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  consumeSync(key: string, cost: number): RateLimitDecision {
    checkCost(cost);
    const now = this.#now();
    const slot = this.#slots.get(key);
    const bucket = slot === undefined ? this.#insert(key, now) : this.#bucket(slot);
    const result = this.#consume(this.#address, bucket, cost, now);
    if (result >= 0) return { allowed: true, remaining: result };
    if (result < 0) return { allowed: false, remaining: 0, retryAfterMs: -result };
    return this.#memory.denial();
  }

  /** Forgets all keys and returns their memory. The limiter can still be used. */
  dispose(): void {
    const { wasm } = this.#memory;
    for (const block of this.#blocks.splice(1)) wasm.release(block);
    this.#slots = new Map();
    this.#keys = [];
    this.#free = [];
    this.#cursor = 0;
    this.#overflowed = false;
    for (let index = 0; index < OVERFLOW_BUCKETS; index += 1) wasm.clear(this.#overflowBucket(index));
  }

  /** Returns the address of the bucket of a new key. */
  #insert(key: string, now: number): number {
    // The prefix is not needed here, but all limiters have the same keys.
    prefixedKey(key, this.#policy.prefix);
    const full = this.#slots.size >= this.#maxKeys;
    this.#sweep(now, full ? CHECKS_WITHOUT_ROOM : CHECKS_PER_KEY);
    if (full && this.#free.length === 0) {
      this.#overflowed = true;
      return this.#overflowBucket(fnv1a(key) % OVERFLOW_BUCKETS);
    }
    const slot = this.#free.pop() ?? this.#grow();
    this.#slots.set(key, slot);
    this.#keys[slot] = key;
    const bucket = this.#bucket(slot);
    if (this.#overflowed) {
      // The key may have spent from a shared bucket before.
      this.#memory.wasm.copy(this.#overflowBucket(fnv1a(key) % OVERFLOW_BUCKETS), bucket);
    } else {
      this.#memory.wasm.clear(bucket);
    }
    return bucket;
  }

  /** Frees those of the next slots that have full buckets. */
  #sweep(now: number, checks: number): void {
    const count = Math.min(checks, this.#keys.length);
    for (let check = 0; check < count; check += 1) {
      if (this.#cursor >= this.#keys.length) this.#cursor = 0;
      const slot = this.#cursor;
      this.#cursor += 1;
      const key = this.#keys[slot];
      if (key === undefined) continue;
      if (this.#memory.wasm.is_full(this.#address, this.#bucket(slot), now) === 0) continue;
      this.#slots.delete(key);
      this.#keys[slot] = undefined;
      this.#free.push(slot);
    }
  }

  /** Adds a slot at the end. */
  #grow(): number {
    const slot = this.#keys.length;
    if (slot % this.#perBlock === 0) this.#blocks.push(this.#memory.block());
    this.#keys.push(undefined);
    return slot;
  }

  #bucket(slot: number): number {
    // The first block has the policy.
    const block = this.#blocks[1 + (slot >>> this.#blockShift)] as number;
    return block + (slot & (this.#perBlock - 1)) * this.#bucketSize;
  }

  #overflowBucket(index: number): number {
    return this.#address + this.#memory.policySize + index * this.#bucketSize;
  }
}

/** Near the end of time all would be allowed, as with a clock of microseconds. */
function checkTime(now: number): number {
  if (typeof now === "number" && now >= 0 && now < MAX_TIME_MS) return now;
  throw invalidOption("clock.now()", `must return milliseconds from 0 to ${MAX_TIME_MS}`, now);
}
