import type { IngressContext, Middleware } from "./context.js";
import { denialFrame, errorFrame } from "./error-frame.js";
import { keyPerUserOrIpPerType } from "./keys.js";
import { checkFunction, INVALID_COST, invalidOption, isCost } from "./policy.js";
import { ignoreFailure, sendFrame } from "./send.js";
import type { RateLimiter } from "./types.js";

export { clientAddress } from "./address.js";
export type { IngressContext, Middleware, Next, Socket } from "./context.js";
export type { ErrorCode, ErrorFrame, ErrorPayload } from "./error-frame.js";
export { joinKey, keyPerUserOrIpPerType, keyPerUserPerType, perUserKey } from "./keys.js";
export {
  type Connection,
  type MessageGate,
  messageGate,
  type MessageGateOptions,
  type RawMessage,
} from "./message-gate.js";

/** What the hook learns of a limited message. */
export interface LimitExceededInfo {
  readonly type: "rate";
  /** The cost of the message. */
  readonly observed: number;
  /** The capacity of the limiter. */
  readonly limit: number;
  /** Milliseconds until the cost fits; `null` if it never does. */
  readonly retryAfterMs: number | null;
  /** Id of the connection. */
  readonly clientId: string;
}

/** Options of `rateLimit`. */
export interface RateLimitOptions<AppData = unknown> {
  readonly limiter: RateLimiter;
  /** The bucket of a message; `keyPerUserOrIpPerType` if unset. */
  readonly key?: (ctx: IngressContext<AppData>) => string;
  /** The cost of a message, a positive integer; 1 if unset. */
  readonly cost?: (ctx: IngressContext<AppData>) => number;
  /**
   * What happens to a message over the limit: `send` an error frame (default), `close` the
   * connection, or nothing (`custom`: the application acts in the hook).
   */
  readonly onExceeded?: "send" | "close" | "custom";
  /**
   * Status code of a close; 1013 (try again later) if unset. One that servers may send: 1000 to 1003,
   * 1007 to 1014, or 3000 to 4999. Sockets as in browsers close with 1000 or 3000 to 4999 only.
   */
  readonly closeCode?: number;
  /**
   * Called once for each message over the limit. It is not awaited, and its failures are ignored:
   * it observes and does not decide.
   */
  readonly onLimitExceeded?: (info: LimitExceededInfo) => unknown;
}

const TRY_AGAIN_LATER = 1013;
const BEHAVIOURS = ["send", "close", "custom"];

/**
 * Creates a middleware that charges each message to a limiter, and continues only if it fits.
 *
 * If the limiter fails, the returned promise rejects with its error and the handler does not run:
 * the application decides what an unavailable store means.
 */
export function rateLimit<AppData = unknown>(options: RateLimitOptions<AppData>): Middleware<AppData> {
  const { limiter, key = keyPerUserOrIpPerType, cost: costOf, onLimitExceeded } = options;
  const { onExceeded = "send", closeCode = TRY_AGAIN_LATER } = options;
  if (!BEHAVIOURS.includes(onExceeded)) {
    throw invalidOption("onExceeded", 'must be "send", "close" or "custom"', onExceeded);
  }
  if (!isCloseCode(closeCode)) {
    throw invalidOption("closeCode", "must be 1000 to 1003, 1007 to 1014, or 3000 to 4999", closeCode);
  }
  checkFunction("limiter", limiter, "consume");
  checkFunction("key", key);
  if (costOf !== undefined) checkFunction("cost", costOf);
  if (onLimitExceeded !== undefined) checkFunction("onLimitExceeded", onLimitExceeded);
  return async (ctx, next) => {
    const cost = costOf === undefined ? 1 : costOf(ctx);
    if (!isCost(cost)) {
      sendFrame(ctx.ws, errorFrame("INVALID_ARGUMENT", INVALID_COST));
      return;
    }
    const decision = await limiter.consume(key(ctx), cost);
    if (decision.allowed) {
      await next();
      return;
    }
    const { retryAfterMs } = decision;
    const limit = limiter.getPolicy().capacity;
    if (onLimitExceeded !== undefined) {
      notify(onLimitExceeded, { type: "rate", observed: cost, limit, retryAfterMs, clientId: ctx.id });
    }
    const frame = denialFrame(cost, limit, retryAfterMs);
    if (onExceeded === "send") sendFrame(ctx.ws, frame);
    if (onExceeded === "close") ignoreFailure(() => ctx.ws.close(closeCode, frame.payload.message));
  };
}

/** Sockets throw on other codes, or close without one. */
function isCloseCode(code: number): boolean {
  const ranges = [[1_000, 1_003], [1_007, 1_014], [3_000, 4_999]] as const;
  return Number.isInteger(code) && ranges.some(([first, last]) => code >= first && code <= last);
}

function notify(hook: (info: LimitExceededInfo) => unknown, info: LimitExceededInfo): void {
  ignoreFailure(() => {
    // A hook may be an async function, whose rejection would end the process.
    Promise.resolve(hook(info)).catch(() => {});
  });
}
