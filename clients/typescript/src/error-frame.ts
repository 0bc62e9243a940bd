/** Error frames for clients, equal to those of the Rust crate `tidegate-ws`. */

export type ErrorCode =
  | "RESOURCE_EXHAUSTED"
  | "FAILED_PRECONDITION"
  | "INVALID_ARGUMENT"
  | "PARSE_ERROR";

/** Payload of an error frame. */
export interface ErrorPayload {
  readonly code: ErrorCode;
  readonly message: string;
  /** The exceeded limit; empty if the error is not about a limit. */
  readonly details: { readonly type?: "rate" | "in_flight"; readonly observed?: number; readonly limit?: number };
  /** Whether the same message may succeed later. */
  readonly retryable: boolean;
  /** Milliseconds to wait before a retry; absent if there is none. */
  readonly retryAfterMs?: number;
}

/** An error frame. */
export interface ErrorFrame {
  readonly type: "ERROR";
  readonly payload: ErrorPayload;
}

/** Hint for messages in flight: when one of them ends is not known. */
const RELEASE_HINT_MS = 1_000;

/** Returns the frame of an error that must not be retried. */
export function errorFrame(code: ErrorCode, message: string): ErrorFrame {
  return { type: "ERROR", payload: { code, message, details: {}, retryable: false } };
}

/** Returns the frame for a denied message. */
export function denialFrame(observed: number, limit: number, retryAfterMs: number | null): ErrorFrame {
  const details = { type: "rate", observed, limit } as const;
  if (retryAfterMs === null) {
    const message = "Operation cost exceeds rate limit capacity";
    return {
      type: "ERROR",
      payload: { code: "FAILED_PRECONDITION", message, details, retryable: false },
    };
  }
  const message = "Rate limit exceeded";
  return {
    type: "ERROR",
    payload: { code: "RESOURCE_EXHAUSTED", message, details, retryable: true, retryAfterMs },
  };
}

/** Returns the frame for a message of a connection that already has the most messages in flight. */
export function inFlightFrame(limit: number): ErrorFrame {
  const details = { type: "in_flight", observed: limit + 1, limit } as const;
  const message = "Too many messages in flight";
  return {
    type: "ERROR",
    payload: { code: "RESOURCE_EXHAUSTED", message, details, retryable: true, retryAfterMs: RELEASE_HINT_MS },
  };
}
