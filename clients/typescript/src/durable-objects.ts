import { RateLimiterError } from "./errors.js";
import { fnv1a } from "./fnv1a.js";
import { type HttpResponse, isCount, malformed, readJson, statusError } from "./http-decision.js";
import { checkCost, checkFunction, checkOptions, checkPolicy, positiveInteger, prefixedKey } from "./policy.js";
import type { Policy, RateLimitDecision, RateLimiter } from "./types.js";

/** What is used of a Durable Object namespace, so that no types of a runtime are needed. */
export interface ObjectNamespace<Id = unknown> {
  idFromName(name: string): Id;
  get(id: Id): { fetch(url: string, init: ConsumeRequest): Promise<HttpResponse> };
}

/** What is sent to an object. */
export interface ConsumeRequest {
  method: "POST";
  headers: Record<string, string>;
  body: string;
}

/** Options of `durableObjectRateLimiter`. */
export interface DurableObjectOptions {
  /** Number of objects among which the keys are divided; 128 if unset. */
  readonly shards?: number;
}

const DEFAULT_SHARDS = 128;
const URL = "https://internal/consume";

/**
 * Creates a limiter whose buckets are in Durable Objects, through a binding.
 *
 * A key always goes to the same object, which decides one request at a time. Changing `shards`
 * moves keys to other objects, where their buckets start full.
 */
export function durableObjectRateLimiter<Id>(
  namespace: ObjectNamespace<Id>,
  policy: Policy,
  options: DurableObjectOptions = {},
): RateLimiter {
  const { shards = DEFAULT_SHARDS } = checkOptions(options);
  positiveInteger("shards", shards);
  // Missing if the binding has another name.
  checkFunction("namespace", namespace, "idFromName");
  const checked = checkPolicy(policy);
  const { capacity, tokensPerSecond, prefix = "" } = checked;
  return {
    getPolicy: () => checked,
    async consume(key, cost) {
      const prefixed = prefixedKey(key, prefix);
      checkCost(cost);
      const shard = fnv1a(prefixed) % shards;
      const body = JSON.stringify({ key: prefixed, cost, capacity, tokensPerSecond });
      try {
        const object = namespace.get(namespace.idFromName(`rate-limiter-${shard}`));
        const headers = { "content-type": "application/json" };
        const response = await object.fetch(URL, { method: "POST", headers, body });
        if (!response.ok) throw await statusError(response, "Durable Object");
        return toDecision(await readJson(response), response.status);
      } catch (error) {
        throw toError(error);
      }
    },
  };
}

function toError(error: unknown): RateLimiterError {
  if (error instanceof RateLimiterError) return error;
  return new RateLimiterError("UNAVAILABLE", `Durable Object failed: ${String(error)}`, { cause: error });
}

function toDecision(value: unknown, status: number): RateLimitDecision {
  if (typeof value === "object" && value !== null) {
    const { allowed, remaining, retryAfterMs } = value as Record<string, unknown>;
    if (isCount(remaining)) {
      if (allowed === true) return { allowed, remaining };
      if (allowed === false && (retryAfterMs === null || isCount(retryAfterMs))) {
        return { allowed, remaining, retryAfterMs };
      }
    }
  }
  throw malformed(status, JSON.stringify(value));
}
