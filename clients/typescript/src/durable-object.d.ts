/** Bindings of the object. */
export interface RateLimiterEnv {
  /** "1": requests may bring their time. For tests only. */
  TIDEGATE_MANUAL_CLOCK?: string;
}

/**
 * The Durable Object class: one shard of the limiter, with its own SQLite storage. Export it from
 * your Worker and bind it as in the README.
 */
export declare class RateLimiterDO {
  /** `ctx` is the `DurableObjectState` of the runtime. */
  constructor(ctx: never, env: RateLimiterEnv);
  fetch(request: Request): Promise<Response>;
  alarm(): Promise<void>;
}
