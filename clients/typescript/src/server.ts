import { RateLimiterError } from "./errors.js";
import { isCount, malformed, readJson, statusError } from "./http-decision.js";
import { checkCost, checkOptions, checkPolicy, invalidOption, positiveInteger, prefixedKey } from "./policy.js";
import type { Policy, RateLimitDecision, RateLimiter } from "./types.js";

/** Options of `tidegateRateLimiter`. */
export interface ServerOptions {
  /** Sent as `Authorization: Bearer`, for a proxy that checks it. The server itself does not. */
  readonly token?: string;
  /** Whole milliseconds to wait for a response; 5,000 if unset. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 5_000;
/** Timers with more end at once. */
const MAX_TIMEOUT_MS = 2_147_483_647;

/**
 * Creates a limiter whose buckets are in a Tidegate server, over its HTTP API.
 *
 * The server keeps one bucket for a policy and a key. `url` is that of the API, such as
 * `http://127.0.0.1:8080`.
 */
export function tidegateRateLimiter(
  url: string | URL,
  policy: Policy,
  options: ServerOptions = {},
): RateLimiter {
  const { token, timeoutMs = DEFAULT_TIMEOUT_MS } = checkOptions(options);
  const checked = checkPolicy(policy);
  // Node's timers of signals refuse fractions.
  if (!(positiveInteger("timeoutMs", timeoutMs) <= MAX_TIMEOUT_MS)) {
    throw invalidOption("timeoutMs", `must be at most ${MAX_TIMEOUT_MS}`, timeoutMs);
  }
  // What a header cannot carry would fail in each call, with an error that quotes it.
  if (token !== undefined && !(typeof token === "string" && /^[\x21-\x7e]+$/.test(token))) {
    throw new RateLimiterError("INVALID_OPTION", "token must have visible ASCII characters only, without spaces");
  }
  const { capacity, tokensPerSecond, prefix = "" } = checked;
  const address = takeAddress(url);
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
  const inline = { capacity, tokens_per_second: tokensPerSecond };
  return {
    getPolicy: () => checked,
    async consume(key, cost) {
      const prefixed = prefixedKey(key, prefix);
      checkCost(cost);
      const body = JSON.stringify({ key: prefixed, cost, policy: inline });
      const signal = AbortSignal.timeout(timeoutMs);
      try {
        const response = await fetch(address, { method: "POST", headers, body, signal });
        if (response.status !== 200 && response.status !== 429) {
          throw await statusError(response, "server");
        }
        return toDecision(await readJson(response), response.status);
      } catch (error) {
        throw toError(error, signal, timeoutMs);
      }
    },
  };
}

/**
 * Keeps a path in the URL: a proxy may put the API below one. Errors do not quote the URL, nor have a
 * cause that does: it may have a password.
 */
function takeAddress(url: string | URL): URL {
  const base = URL.canParse(url) ? new URL(url) : undefined;
  if (base === undefined || !/^https?:$/.test(base.protocol)) {
    throw new RateLimiterError("INVALID_OPTION", "url must be one of http or https, such as http://127.0.0.1:8080");
  }
  if (base.username !== "" || base.password !== "") {
    throw new RateLimiterError("INVALID_OPTION", "url must not have a user or a password; use the option token");
  }
  base.pathname = `${base.pathname.replace(/\/+$/, "")}/v1/take`;
  return base;
}

function toError(error: unknown, signal: AbortSignal, timeoutMs: number): RateLimiterError {
  if (error instanceof RateLimiterError) return error;
  if (signal.aborted) {
    return new RateLimiterError("TIMEOUT", `no response within ${timeoutMs} ms`, { cause: error });
  }
  const reason = error instanceof Error ? (error.cause ?? error) : error;
  return new RateLimiterError("UNAVAILABLE", `server cannot be reached: ${String(reason)}`, {
    cause: error,
  });
}

function toDecision(value: unknown, status: number): RateLimitDecision {
  if (typeof value === "object" && value !== null) {
    const { allowed, remaining, retry_after_ms: retryAfterMs } = value as Record<string, unknown>;
    if (isCount(remaining)) {
      if (allowed === true && status === 200) return { allowed, remaining };
      if (allowed === false && (retryAfterMs === null || isCount(retryAfterMs))) {
        return { allowed, remaining, retryAfterMs };
      }
    }
  }
  throw malformed(status, JSON.stringify(value));
}
