import { RateLimiterError } from "./errors.js";
import type { RateLimitDecision } from "./types.js";

/** What `bucket.wasm` exports. Addresses and sizes are in bytes, times in milliseconds. */
interface BucketExports {
  readonly memory: WebAssembly.Memory;
  text(): number;
  text_size(): number;
  denial(): number;
  block(): number;
  release(block: number): void;
  block_size(): number;
  policy_size(): number;
  bucket_size(): number;
  create(block: number, capacity: number, length: number): number;
  consume(policy: number, bucket: number, cost: number, now: number): number;
  is_full(policy: number, bucket: number, now: number): number;
  copy(from: number, to: number): void;
  clear(bucket: number): void;
}

/** The wasm instance that all memory limiters of a program share. */
export class BucketMemory {
  readonly wasm: BucketExports;
  readonly blockSize: number;
  readonly bucketSize: number;
  /** Bytes at the beginning of a limiter's first block, before its overflow buckets. */
  readonly policySize: number;
  readonly #denial: number;
  /** Some runtimes have none. */
  readonly #collected: FinalizationRegistry<readonly number[]> | undefined;
  #floats: Float64Array;

  constructor(module: WebAssembly.Module) {
    const wasm = new WebAssembly.Instance(module).exports as unknown as BucketExports;
    this.wasm = wasm;
    this.blockSize = wasm.block_size();
    this.bucketSize = wasm.bucket_size();
    this.policySize = Math.ceil(wasm.policy_size() / this.bucketSize) * this.bucketSize;
    this.#denial = wasm.denial() / 8;
    this.#floats = new Float64Array(wasm.memory.buffer);
    if (typeof FinalizationRegistry === "function") {
      this.#collected = new FinalizationRegistry((blocks) => {
        for (const block of blocks) wasm.release(block);
      });
    }
  }

  /** Returns a zeroed block. */
  block(): number {
    // The address is unsigned, the number that arrives here is not.
    const block = this.wasm.block() >>> 0;
    if (block === 0) {
      throw new RateLimiterError("UNAVAILABLE", "no memory left for rate limit buckets");
    }
    return block;
  }

  /** Creates a policy at the beginning of a new block and returns its address. */
  create(capacity: number, rate: string): number {
    const block = this.block();
    const bytes = new Uint8Array(this.wasm.memory.buffer, this.wasm.text(), this.wasm.text_size());
    const { written } = new TextEncoder().encodeInto(rate, bytes);
    const length = this.wasm.create(block, capacity, written);
    if (length === 0) return block;
    this.wasm.release(block);
    throw new RateLimiterError("INVALID_POLICY", new TextDecoder().decode(bytes.slice(0, length)));
  }

  /** Releases blocks when their owner has been collected: a limiter may be dropped undisposed. */
  releaseWith(owner: object, blocks: readonly number[]): void {
    this.#collected?.register(owner, blocks);
  }

  /** Returns the last denial that did not fit into the result of `consume`. */
  denial(): RateLimitDecision {
    // Memory that has grown has another buffer.
    if (this.#floats.length === 0) this.#floats = new Float64Array(this.wasm.memory.buffer);
    const remaining = this.#floats[this.#denial] as number;
    const millis = this.#floats[this.#denial + 1] as number;
    return { allowed: false, remaining, retryAfterMs: millis === Infinity ? null : millis };
  }
}
