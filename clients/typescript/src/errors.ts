/**
 * Why a limiter failed to decide.
 *
 * - `INVALID_POLICY`, `INVALID_KEY`, `INVALID_COST`, `INVALID_OPTION`: a bad argument of the caller.
 * - `REJECTED`: the backend refused the request (status 4xx).
 * - `UNAVAILABLE`: the backend failed (status 5xx) or could not be reached.
 * - `TIMEOUT`: no response in time. The tokens may have been spent.
 * - `MALFORMED_RESPONSE`: the response is not a decision.
 */
export type RateLimiterErrorCode =
  | "INVALID_POLICY"
  | "INVALID_KEY"
  | "INVALID_COST"
  | "INVALID_OPTION"
  | "REJECTED"
  | "UNAVAILABLE"
  | "TIMEOUT"
  | "MALFORMED_RESPONSE";

/** A failure of a limiter. A denial is a decision, not an error. */
export class RateLimiterError extends Error {
  readonly code: RateLimiterErrorCode;
  /** HTTP status of the backend, if there was a response. */
  readonly status: number | undefined;

  constructor(
    code: RateLimiterErrorCode,
    message: string,
    options: { status?: number; cause?: unknown } = {},
  ) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.name = "RateLimiterError";
    this.code = code;
    this.status = options.status;
  }
}
