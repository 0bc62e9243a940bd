/** What is the same in every runtime. */
export { type DurableObjectOptions, durableObjectRateLimiter, type ObjectNamespace } from "./durable-objects.js";
export { RateLimiterError, type RateLimiterErrorCode } from "./errors.js";
export * from "./middleware.js";
export { type ServerOptions, tidegateRateLimiter } from "./server.js";
export type { Clock, Policy, RateLimitDecision, RateLimiter } from "./types.js";
