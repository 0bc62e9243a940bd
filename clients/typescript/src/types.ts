/** Parameters of a limiter. They are checked once, when the limiter is created. */
export interface Policy {
  /** Tokens in a full bucket: the burst. A whole number, at least 1. */
  readonly capacity: number;
  /** Tokens that refill per second. May be a fraction; `0.1` means exactly one tenth. */
  readonly tokensPerSecond: number;
  /** Put before every key, so that limiters with one backend do not share buckets. */
  readonly prefix?: string;
}

/** What was decided. A denial has spent nothing. */
export type RateLimitDecision =
  | { readonly allowed: true; readonly remaining: number }
  | {
      readonly allowed: false;
      readonly remaining: number;
      /** Milliseconds until the cost fits, rounded up; `null` if it never does. */
      readonly retryAfterMs: number | null;
    };

/** A limiter. All backends make the same decisions. */
export interface RateLimiter {
  /** Spends `cost` tokens of the key's bucket, or none. Atomic per key. */
  consume(key: string, cost: number): Promise<RateLimitDecision>;
  /** Returns the policy of this limiter. */
  getPolicy(): Policy;
  /** Releases what the limiter holds. The memory limiter forgets its buckets. */
  dispose?(): void;
}

/** A source of time in milliseconds. Fractions are kept to the nanosecond. */
export interface Clock {
  now(): number;
}
