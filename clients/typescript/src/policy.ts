import { RateLimiterError } from "./errors.js";
import type { Policy } from "./types.js";

/** The text of an invalid cost, on both sides of the wire. */
export const INVALID_COST = "Rate limit cost must be a positive integer";

const MAX_KEY_BYTES = 1_024;

/** Checks an option that counts something and returns it. */
export function positiveInteger(name: string, value: number): number {
  if (Number.isSafeInteger(value) && value >= 1) return value;
  throw invalidOption(name, "must be a positive integer", value);
}

/** Checks the options of a limiter and returns them: `null` has no default. */
export function checkOptions<Options extends object>(options: Options): Options {
  if (typeof options === "object" && options !== null) return options;
  throw invalidOption("options", "must be an object", options);
}

/** Checks an option that is called, or an object whose method is. */
export function checkFunction<Value>(name: string, value: Value, method?: keyof Value & string): void {
  const called: unknown = method === undefined ? value : value?.[method];
  if (typeof called === "function") return;
  throw invalidOption(name, method === undefined ? "must be a function" : `must have a method ${method}`, value);
}

/** Returns the error for an option. Objects are not shown: not all of them have a text. */
export function invalidOption(name: string, rule: string, value: unknown): RateLimiterError {
  const isObject = (typeof value === "object" && value !== null) || typeof value === "function";
  const shown = isObject ? `a value of type ${typeof value}` : String(value);
  return new RateLimiterError("INVALID_OPTION", `${name} ${rule}, got ${shown}`);
}

/** The text of a fractional capacity, on both sides of the wire. */
export const FRACTIONAL_CAPACITY =
  "Rate limit capacity must be a whole number; to limit in fractions, count smaller units: " +
  "a capacity of 5, 2 per second and a cost of 2 are 2.5, 1 per second and a cost of 1";

/** Checks a policy and returns a copy that cannot change. */
export function checkPolicy(policy: Policy): Policy {
  if (typeof policy !== "object" || policy === null) {
    throw new RateLimiterError("INVALID_POLICY", "policy must be an object with capacity and tokensPerSecond");
  }
  const { capacity, tokensPerSecond, prefix } = policy;
  for (const [name, value] of Object.entries({ capacity, tokensPerSecond })) {
    if (typeof value !== "number") {
      throw new RateLimiterError("INVALID_POLICY", `${name} must be a number, got ${typeof value}`);
    }
  }
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
  if (prefix !== undefined) checkPrefix(prefix);
  return Object.freeze({ capacity, tokensPerSecond, ...(prefix === undefined ? {} : { prefix }) });
}

/** Refuses a prefix with which no key would be valid. */
function checkPrefix(prefix: string): void {
  if (!prefix.isWellFormed()) {
    throw new RateLimiterError("INVALID_POLICY", "prefix must not have half of a surrogate pair");
  }
  const bytes = new TextEncoder().encode(prefix).length;
  if (bytes >= MAX_KEY_BYTES) {
    throw new RateLimiterError("INVALID_POLICY", `prefix must have less than ${MAX_KEY_BYTES} bytes, got ${bytes}`);
  }
}

/** Returns whether a cost is a whole number of at least 1. */
export function isCost(cost: number): boolean {
  return Number.isSafeInteger(cost) && cost >= 1;
}

/** Throws unless the cost is a whole number of at least 1. */
export function checkCost(cost: number): void {
  if (!isCost(cost)) throw new RateLimiterError("INVALID_COST", INVALID_COST);
}

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
