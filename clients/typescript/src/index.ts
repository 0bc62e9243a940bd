export { type MemoryOptions, type MemoryRateLimiter, memoryRateLimiter } from "./memory.js";
export * from "./shared.js";
