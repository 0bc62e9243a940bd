import { RateLimiterError } from "./errors.js";

/** What is read of a response. */
export interface HttpResponse {
  readonly ok: boolean;
  readonly status: number;
  text(): Promise<string>;
}

/** Longest part of an unexpected response that is quoted in an error. */
const MAX_QUOTE = 200;

/** Returns the body of a response as JSON. */
export async function readJson(response: HttpResponse): Promise<unknown> {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw malformed(response.status, text, cause);
  }
}

/** Returns the error for a status that is not a decision. The body is consumed. */
export async function statusError(response: HttpResponse, backend: string): Promise<RateLimiterError> {
  const { status } = response;
  // A body that cannot be read does not hide the status.
  const text = await response.text().catch(() => "");
  const code = status >= 400 && status < 500 ? "REJECTED" : "UNAVAILABLE";
  return new RateLimiterError(code, `${backend} responded with status ${status}: ${quote(text)}`, { status });
}

/** Returns the error for a body that is not a decision. */
export function malformed(status: number, text: string, cause?: unknown): RateLimiterError {
  return new RateLimiterError("MALFORMED_RESPONSE", `response is not a decision: ${quote(text)}`, {
    status,
    cause,
  });
}

/** Returns whether a value is a whole number of at least zero. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function quote(text: string): string {
  return text.length > MAX_QUOTE ? `${text.slice(0, MAX_QUOTE)}...` : text;
}
