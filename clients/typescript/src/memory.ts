import { bucketMemory } from "./embedded-memory.js";
import { BucketTable, type MemoryOptions, type MemoryRateLimiter } from "./memory-limiter.js";
import type { Policy } from "./types.js";

export type { MemoryOptions, MemoryRateLimiter } from "./memory-limiter.js";

/** Creates a limiter whose buckets are in the memory of this process. */
export function memoryRateLimiter(policy: Policy, options?: MemoryOptions): MemoryRateLimiter {
  return new BucketTable(bucketMemory(), policy, options);
}
