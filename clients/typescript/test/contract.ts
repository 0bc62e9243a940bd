/** The suite that every limiter passes. Backends with a real clock refill slowly here. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";

import type { Policy, RateLimitDecision, RateLimiter } from "../src/index.js";

const POLICY: Policy = { capacity: 10, tokensPerSecond: 1 };
/** One token in a hundred seconds: none refills during a test. */
const SLOW: Policy = { capacity: 10, tokensPerSecond: 0.01 };

/** Creates a limiter. Limiters with equal policies and prefixes may share their buckets. */
export type Create = (policy: Policy) => RateLimiter | Promise<RateLimiter>;

let tests = 0;

/** Describes the contract for one backend. */
export function describeRateLimiter(name: string, create: Create): void {
  /** A limiter whose keys no other test uses. */
  const fresh = (policy: Policy) => {
    tests += 1;
    return create({ ...policy, prefix: `test-${tests}:${policy.prefix ?? ""}` });
  };
  const times = async (limiter: RateLimiter, key: string, count: number, cost = 1) => {
    const decisions: RateLimitDecision[] = [];
    for (let index = 0; index < count; index += 1) decisions.push(await limiter.consume(key, cost));
    return decisions;
  };
  const allowed = (decisions: RateLimitDecision[]) => decisions.filter((d) => d.allowed).length;

  describe(`contract of RateLimiter: ${name}`, () => {
    test("an allowed call has the remaining tokens and no retry hint", async () => {
      const decision = await (await fresh(POLICY)).consume("user:1", 1);
      assert.deepEqual(decision, { allowed: true, remaining: 9 });
      assert.equal("retryAfterMs" in decision, false);
    });

    test("the eleventh call on ten tokens is denied with a positive hint", async () => {
      const limiter = await fresh(SLOW);
      assert.equal(allowed(await times(limiter, "user:1", 10)), 10);
      const decision = await limiter.consume("user:1", 1);
      assert.equal(decision.allowed, false);
      assert.equal(decision.remaining, 0);
      assert.ok(!decision.allowed && decision.retryAfterMs !== null);
      assert.ok(decision.retryAfterMs > 0 && decision.retryAfterMs <= 100_000);
    });

    test("a denial spends nothing", async () => {
      const limiter = await fresh(SLOW);
      await limiter.consume("user:1", 8);
      assert.deepEqual(allowed(await times(limiter, "user:1", 5, 3)), 0);
      assert.deepEqual(await limiter.consume("user:1", 2), { allowed: true, remaining: 0 });
    });

    test("a weighted call spends its cost", async () => {
      const limiter = await fresh(SLOW);
      assert.deepEqual(await limiter.consume("user:1", 3), { allowed: true, remaining: 7 });
    });

    test("fifteen concurrent calls on ten tokens: exactly ten are allowed", async () => {
      const limiter = await fresh(SLOW);
      const calls = Array.from({ length: 15 }, () => limiter.consume("user:1", 1));
      const decisions = await Promise.all(calls);
      assert.equal(allowed(decisions), 10);
      const remaining = decisions.filter((d) => d.allowed).map((d) => d.remaining);
      assert.deepEqual(remaining.sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });

    test("a cost above the capacity never fits", async () => {
      const limiter = await fresh(SLOW);
      const never = { allowed: false, remaining: 10, retryAfterMs: null };
      assert.deepEqual(await limiter.consume("user:1", 11), never);
      assert.deepEqual(await limiter.consume("user:1", 10), { allowed: true, remaining: 0 });
    });

    test("keys do not affect each other", async () => {
      const limiter = await fresh(SLOW);
      await times(limiter, "user:1", 11);
      assert.deepEqual(await limiter.consume("user:2", 1), { allowed: true, remaining: 9 });
      assert.equal((await limiter.consume("user:1", 1)).allowed, false);
    });

    test("keys may have any characters", async () => {
      const limiter = await fresh(SLOW);
      for (const key of ["", " ", "a\u0000b", "\u00fc\u{1f600}", '"quoted"\\', "x".repeat(200), "100%:"]) {
        assert.deepEqual(await limiter.consume(key, 1), { allowed: true, remaining: 9 }, key);
        assert.deepEqual(await limiter.consume(key, 1), { allowed: true, remaining: 8 }, key);
      }
    });

    test("two policies for one key are independent", async () => {
      const cheap = await fresh({ ...SLOW, prefix: "cheap:" });
      const expensive = await fresh({ ...SLOW, capacity: 5, prefix: "expensive:" });
      await times(cheap, "user:1", 11);
      assert.deepEqual(await expensive.consume("user:1", 1), { allowed: true, remaining: 4 });
    });

    test("premium and free users have policies of their own, chosen per request", async () => {
      const free = await fresh({ capacity: 100, tokensPerSecond: 0.01, prefix: "free:" });
      const premium = await fresh({ capacity: 1_000, tokensPerSecond: 0.01, prefix: "premium:" });
      const choose = (isPremium: boolean) => (isPremium ? premium : free);
      assert.deepEqual(await choose(false).consume("user:1", 1), { allowed: true, remaining: 99 });
      assert.deepEqual(await choose(true).consume("user:1", 1), { allowed: true, remaining: 999 });
    });

    test("tokens refill at a fractional rate", async () => {
      // A token in 16 s: none refills between two calls.
      const slow = await fresh({ capacity: 2, tokensPerSecond: 0.0625 });
      assert.deepEqual(await slow.consume("user:1", 2), { allowed: true, remaining: 0 });
      const denied = await slow.consume("user:1", 1);
      assert.ok(!denied.allowed && denied.retryAfterMs !== null, JSON.stringify(denied));
      assert.ok(denied.retryAfterMs > 0 && denied.retryAfterMs <= 16_000, JSON.stringify(denied));
      // A token in 1.6 s.
      const limiter = await fresh({ capacity: 2, tokensPerSecond: 0.625, prefix: "faster:" });
      assert.deepEqual(await limiter.consume("user:1", 2), { allowed: true, remaining: 0 });
      await new Promise((resolve) => setTimeout(resolve, 1_620));
      assert.ok((await limiter.consume("user:1", 1)).allowed);
    });

    test("a limiter can be disposed of twice, and used again", async () => {
      const limiter = await fresh(SLOW);
      await limiter.consume("user:1", 1);
      limiter.dispose?.();
      limiter.dispose?.();
      // Only the memory limiter forgets its buckets.
      const remaining = limiter.dispose === undefined ? 8 : 9;
      assert.deepEqual(await limiter.consume("user:1", 1), { allowed: true, remaining });
      assert.deepEqual(limiter.getPolicy().capacity, SLOW.capacity);
    });

    test("an invalid cost is an error and spends nothing", async () => {
      const limiter = await fresh(SLOW);
      for (const cost of [0, -1, 0.5, Number.NaN, Infinity, "1" as unknown as number]) {
        await assert.rejects(limiter.consume("user:1", cost), {
          name: "RateLimiterError",
          code: "INVALID_COST",
          message: "Rate limit cost must be a positive integer",
        });
      }
      assert.deepEqual(await limiter.consume("user:1", 1), { allowed: true, remaining: 9 });
    });

    test("a key that is no text is an error", async () => {
      const limiter = await fresh(SLOW);
      for (const key of [undefined, null, 7, {}]) {
        await assert.rejects(limiter.consume(key as unknown as string, 1), {
          code: "INVALID_KEY",
          message: `Rate limit key must be a string, got ${typeof key}`,
        });
      }
      for (const key of ["\ud800", "a\udc00b", "\udc00\ud800"]) {
        await assert.rejects(limiter.consume(key, 1), { code: "INVALID_KEY", message: /surrogate/ });
      }
      await assert.rejects(limiter.consume("x".repeat(1_025), 1), { code: "INVALID_KEY", message: /1 to 1024 bytes/ });
      await assert.rejects((await create(SLOW)).consume("", 1), { code: "INVALID_KEY", message: /got 0$/ });
      const prefix = limiter.getPolicy().prefix?.length ?? 0;
      for (const longest of ["x".repeat(1_024 - prefix), "\u00fc".repeat((1_024 - prefix) >> 1)]) {
        assert.deepEqual(await limiter.consume(longest, 1), { allowed: true, remaining: 9 });
        await assert.rejects(limiter.consume(`${longest}\u00fc`, 1), { code: "INVALID_KEY" });
      }
      assert.deepEqual(await limiter.consume("7", 1), { allowed: true, remaining: 9 });
    });

    test("the policy is checked when the limiter is created", async () => {
      const rejects = (policy: Policy, message: string) =>
        assert.rejects(async () => fresh(policy), { code: "INVALID_POLICY", message });
      for (const capacity of [0, -1, -5, Number.NaN]) {
        await rejects({ ...POLICY, capacity }, "Rate limit capacity must be >= 1");
      }
      for (const tokensPerSecond of [0, -1, Number.NaN]) {
        await rejects({ ...POLICY, tokensPerSecond }, "tokensPerSecond must be > 0");
      }
      for (const policy of [undefined, null, 7, "10"]) {
        const message = "policy must be an object with capacity and tokensPerSecond";
        await assert.rejects(async () => create(policy as unknown as Policy), { code: "INVALID_POLICY", message });
      }
      for (const wrong of ["10", 10n, null, undefined, Symbol()] as unknown as number[]) {
        await rejects({ ...POLICY, capacity: wrong }, `capacity must be a number, got ${typeof wrong}`);
        await rejects({ ...POLICY, tokensPerSecond: wrong }, `tokensPerSecond must be a number, got ${typeof wrong}`);
      }
      assert.equal((await (await fresh({ capacity: 1, tokensPerSecond: 0.5 })).consume("a", 1)).allowed, true);
    });

    test("a prefix with which no key would be valid is refused when the limiter is created", async () => {
      const wrong: [unknown, RegExp][] = [
        [null, /^prefix must be a string$/],
        ["\ud800", /surrogate/],
        ["x".repeat(1_024), /^prefix must have less than 1024 bytes, got 1024$/],
        ["\u00fc".repeat(512), /got 1024$/],
      ];
      for (const [prefix, message] of wrong) {
        const policy = { ...SLOW, prefix } as Policy;
        await assert.rejects(async () => create(policy), { code: "INVALID_POLICY", message });
      }
      const longest = await create({ ...SLOW, prefix: "x".repeat(1_023) });
      assert.equal((await longest.consume("y", 1)).allowed, true);
    });

    test("the policy can be read and does not follow the object it came from", async () => {
      const policy = { capacity: 10, tokensPerSecond: 1, prefix: "own:" };
      const limiter = await create(policy);
      policy.capacity = 1;
      assert.deepEqual(limiter.getPolicy(), { capacity: 10, tokensPerSecond: 1, prefix: "own:" });
    });
  });
}
