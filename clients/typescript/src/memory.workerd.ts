import module from "./bucket.wasm";
import { BucketMemory } from "./bucket-memory.js";
import { BucketTable, type MemoryOptions, type MemoryRateLimiter } from "./memory-limiter.js";
import type { Policy } from "./types.js";

export type { MemoryOptions, MemoryRateLimiter } from "./memory-limiter.js";

let shared: BucketMemory | undefined;

/**
 * Creates a limiter whose buckets are in the memory of this isolate. Workers may not compile bytes
 * at run time, so the module is imported.
 */
export function memoryRateLimiter(policy: Policy, options?: MemoryOptions): MemoryRateLimiter {
  shared ??= new BucketMemory(module);
  return new BucketTable(shared, policy, options);
}
