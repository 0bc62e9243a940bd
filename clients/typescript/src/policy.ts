import { RateLimiterError } from "./errors.js";
import type { Policy } from "./types.js";

/** The text of an invalid cost, on both sides of the wire. */
export const INVALID_COST = "Rate limit cost must be a positive integer";

/** Checks an option that counts something and returns it. */
export function positiveInteger(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw new RateLimiterError("INVALID_OPTION", `${name} must be a positive integer, got ${String(value)}`);
}

/** The text of a fractional capacity, on both sides of the wire. */
export const FRACTIONAL_CAPACITY =
  "Rate limit capacity must be a whole number; to limit in fractions, count smaller units: " +
  "a capacity of 5, 2 per second and a cost of 2 are 2.5, 1 per second and a cost of 1";

/** Checks a policy and returns a copy that cannot change. */
export function checkPolicy(policy: Policy): Policy {
  const { capacity, tokensPerSecond, prefix } = policy;
  if (!(capacity >= 1)) {
    throw new RateLimiterError("INVALID_POLICY", "Rate limit capacity must be >= 1");
  }
  if (!Number.isSafeInteger(capacity)) {
    throw new RateLimiterError("INVALID_POLICY", FRACTIONAL_CAPACITY);
  }
  if (!(tokensPerSecond > 0)) {
    throw new RateLimiterError("INVALID_POLICY", "tokensPerSecond must be > 0");
  }
  if (!Number.isFinite(tokensPerSecond)) {
    throw new RateLimiterError("INVALID_POLICY", "tokensPerSecond must be finite");
  }
  if (prefix !== undefined && typeof prefix !== "string") {
    throw new RateLimiterError("INVALID_POLICY", "prefix must be a string");
  }
  return Object.freeze({ capacity, tokensPerSecond, ...(prefix === undefined ? {} : { prefix }) });
}

/** Returns whether a cost is a whole number of at least 1. */
export function isCost(cost: number): boolean {
  return cost >= 1 && Number.isSafeInteger(cost);
}

/** Throws unless the cost is a whole number of at least 1. */
export function checkCost(cost: number): void {
  if (!isCost(cost)) throw new RateLimiterError("INVALID_COST", INVALID_COST);
}

const MAX_KEY_BYTES = 1_024;

/**
 * Returns the key with its prefix.
 * @throws RateLimiterError if one of the backends would refuse it, or store it under another text
 */
export function prefixedKey(key: string, prefix = ""): string {
  if (typeof key !== "string") {
    throw new RateLimiterError("INVALID_KEY", `Rate limit key must be a string, got ${typeof key}`);
  }
  const prefixed = prefix + key;
  if (!prefixed.isWellFormed()) {
    throw new RateLimiterError("INVALID_KEY", "Rate limit key must not have half of a surrogate pair");
  }
  // A unit of UTF-16 has at most three bytes in UTF-8.
  const isShort = prefixed.length * 3 <= MAX_KEY_BYTES;
  const bytes = isShort ? prefixed.length : new TextEncoder().encode(prefixed).length;
  if (bytes < 1 || bytes > MAX_KEY_BYTES) {
    const message = `Rate limit key must have 1 to ${MAX_KEY_BYTES} bytes with its prefix, got ${bytes}`;
    throw new RateLimiterError("INVALID_KEY", message);
  }
  return prefixed;
}

/** Returns the shortest decimal of a positive number, without an exponent. */
export function decimalText(value: number): string {
  const text = String(value);
  const parts = /^(\d+)(?:\.(\d+))?e([+-]\d+)$/.exec(text);
  if (parts === null) return text;
  const [, whole = "", fraction = "", exponent = "0"] = parts;
  const digits = whole + fraction;
  const point = whole.length + Number(exponent);
  if (point <= 0) return `0.${"0".repeat(-point)}${digits}`;
  if (point >= digits.length) return digits + "0".repeat(point - digits.length);
  return `${digits.slice(0, point)}.${digits.slice(point)}`;
}
