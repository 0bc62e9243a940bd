import { BucketMemory } from "./bucket-memory.js";
import { BUCKET_WASM } from "./bucket-wasm.js";
import { BucketTable, type MemoryOptions, type MemoryRateLimiter } from "./memory-limiter.js";
import type { Policy } from "./types.js";

export type { MemoryOptions, MemoryRateLimiter } from "./memory-limiter.js";

let shared: BucketMemory | undefined;

/** Compiles the module on the first use. */
export function bucketMemory(): BucketMemory {
  if (shared === undefined) {
    const bytes = Uint8Array.from(atob(BUCKET_WASM), (character) => character.charCodeAt(0));
    shared = new BucketMemory(new WebAssembly.Module(bytes));
  }
  return shared;
}

/** Creates a limiter whose buckets are in the memory of this process. */
export function memoryRateLimiter(policy: Policy, options?: MemoryOptions): MemoryRateLimiter {
  return new BucketTable(bucketMemory(), policy, options);
}
