export { type MemoryOptions, type MemoryRateLimiter, memoryRateLimiter } from "./memory.workerd.js";
export * from "./shared.js";
