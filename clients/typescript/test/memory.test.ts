import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";

import { BUCKET_WASM } from "../src/bucket-wasm.js";
import { bucketMemory } from "../src/embedded-memory.js";
import { memoryRateLimiter } from "../src/index.js";
import { BucketTable } from "../src/memory-limiter.js";
import { decimalText } from "../src/policy.js";
import { PACKAGE } from "./backends.js";
import { readVectors } from "./vectors.js";

/** A clock that only the test moves. */
function fakeClock(start = 1_700_000_000_000) {
  return { current: start, now(): number { return this.current; } };
}

describe("time", () => {
  test("a fake clock refills", async () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 10, tokensPerSecond: 1 }, { clock });
    await limiter.consume("user:1", 10);
    assert.deepEqual(await limiter.consume("user:1", 1), { allowed: false, remaining: 0, retryAfterMs: 1_000 });
    clock.current += 5_000;
    assert.deepEqual(await limiter.consume("user:1", 1), { allowed: true, remaining: 4 });
  });

  test("the example of the proposal: 15 calls, 100 ms apart, on ten tokens", async () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 10, tokensPerSecond: 1 }, { clock });
    const hints: (number | null)[] = [];
    for (let index = 0; index < 15; index += 1) {
      clock.current += 100;
      const decision = await limiter.consume("user:1", 1);
      if (!decision.allowed) hints.push(decision.retryAfterMs);
    }
    // A token has refilled before the eleventh call. The proposal forgets it.
    assert.deepEqual(hints, [900, 800, 700, 600]);
  });

  test("the hint is exact: a millisecond earlier is too early", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 3, tokensPerSecond: 0.7 }, { clock });
    limiter.consumeSync("a", 3);
    const denied = limiter.consumeSync("a", 2);
    // 2 / 0.7 s = 2857.14 ms, rounded up.
    assert.deepEqual(denied, { allowed: false, remaining: 0, retryAfterMs: 2_858 });
    clock.current += 2_857;
    assert.deepEqual(limiter.consumeSync("a", 2), { allowed: false, remaining: 1, retryAfterMs: 1 });
    clock.current += 1;
    assert.deepEqual(limiter.consumeSync("a", 2), { allowed: true, remaining: 0 });
  });

  test("no fraction of a token is lost at any polling rate", () => {
    for (const [rate, step, expected] of [[1.5, 1, 250], [0.7, 1, 170], [1.999, 7, 299]] as const) {
      const clock = fakeClock();
      const limiter = memoryRateLimiter({ capacity: 100, tokensPerSecond: rate }, { clock });
      let allowed = 0;
      for (let at = 0; at <= 100_000; at += step) {
        clock.current = 1_700_000_000_000 + at;
        if (limiter.consumeSync("a", 1).allowed) allowed += 1;
      }
      assert.equal(allowed, expected, `${rate} per second`);
    }
  });

  test("a clock that steps back grants nothing and blocks no longer than one fill time", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 10, tokensPerSecond: 1 }, { clock });
    limiter.consumeSync("a", 10);
    clock.current -= 365 * 86_400_000;
    assert.deepEqual(limiter.consumeSync("a", 1), { allowed: false, remaining: 0, retryAfterMs: 1_000 });
    clock.current += 999;
    assert.equal(limiter.consumeSync("a", 1).allowed, false);
    clock.current += 1;
    assert.deepEqual(limiter.consumeSync("a", 1), { allowed: true, remaining: 0 });
    // A small step leaves the bucket as it is.
    clock.current += 5_000;
    limiter.consumeSync("a", 1);
    clock.current -= 2_000;
    assert.deepEqual(limiter.consumeSync("a", 1), { allowed: true, remaining: 1 });
  });

  test("fractions of a millisecond count", () => {
    const clock = fakeClock(5);
    const limiter = memoryRateLimiter({ capacity: 1, tokensPerSecond: 1_000_000 }, { clock });
    assert.equal(limiter.consumeSync("a", 1).allowed, true);
    clock.current = 5.000_999;
    assert.equal(limiter.consumeSync("a", 1).allowed, false);
    clock.current = 5.001;
    assert.equal(limiter.consumeSync("a", 1).allowed, true);
  });

  test("a clock that does not count milliseconds fails its call and spends nothing", () => {
    const clock = fakeClock(0);
    const limiter = memoryRateLimiter({ capacity: 2, tokensPerSecond: 1 }, { clock });
    for (const wrong of [-1, -Infinity, Number.NaN, 1.7e15, 1.7e18, Infinity, 5n, "5", null, undefined] as number[]) {
      clock.current = wrong;
      assert.throws(() => limiter.consumeSync("a", 1), { code: "INVALID_OPTION", message: /milliseconds.* got / });
    }
    clock.current = 14_999_999_999_999.5;
    assert.deepEqual(limiter.consumeSync("a", 2), { allowed: true, remaining: 0 });
    assert.deepEqual(limiter.consumeSync("a", 1), { allowed: false, remaining: 0, retryAfterMs: 1_000 });
    assert.deepEqual(limiter.consumeSync("a", 3), { allowed: false, remaining: 0, retryAfterMs: null });
  });

  test("a clock without a function now is refused when the limiter is created", () => {
    for (const clock of [null, 7, {}, { now: 7 }, () => 7]) {
      assert.throws(() => memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { clock: clock as { now(): number } }), {
        code: "INVALID_OPTION",
        message: /^clock must have a method now, got /,
      });
    }
  });

  test("whole and fractional milliseconds are one scale", () => {
    const step = (millis: number) => {
      const clock = fakeClock(1_000);
      const limiter = memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { clock });
      limiter.consumeSync("a", 1);
      clock.current += millis;
      return limiter.consumeSync("a", 1);
    };
    assert.deepEqual(step(0), { allowed: false, remaining: 0, retryAfterMs: 1_000 });
    assert.deepEqual(step(0.000_001), { allowed: false, remaining: 0, retryAfterMs: 1_000 });
    assert.deepEqual(step(1), { allowed: false, remaining: 0, retryAfterMs: 999 });
    assert.deepEqual(step(998.999_999), { allowed: false, remaining: 0, retryAfterMs: 2 });
    assert.deepEqual(step(999), { allowed: false, remaining: 0, retryAfterMs: 1 });
    assert.deepEqual(step(999.999_999), { allowed: false, remaining: 0, retryAfterMs: 1 });
    assert.deepEqual(step(1_000), { allowed: true, remaining: 0 });
  });
});

describe("exactness", () => {
  test("equals the committed vectors of takes from single buckets", () => {
    const { originNs, scenarios } = readVectors();
    let steps = 0;
    for (const scenario of scenarios) {
      const clock = fakeClock();
      const limiters = scenario.policies.map(({ capacity, tokens, periodNs }) => {
        // Some rates are no decimal number of tokens per second.
        const rate = `${tokens}/${periodNs / 1_000_000}ms`;
        return new BucketTable(bucketMemory(), { capacity, tokensPerSecond: 1 }, { clock }, rate);
      });
      for (const { atNs, policy, key, cost, expected } of scenario.steps) {
        clock.current = originNs / 1_000_000 + atNs / 1_000_000;
        assert.deepEqual(limiters[policy]!.consumeSync(key, cost), expected, `${scenario.name} at ${atNs} ns`);
        steps += 1;
      }
    }
    assert.ok(scenarios.length >= 9, `only ${scenarios.length} scenarios`);
    assert.ok(steps >= 150, `only ${steps} steps`);
  });

  /** Tokens are counted in units of 10^-18, in which every rate below is whole per millisecond. */
  test("equals a model in whole numbers for random policies, costs and times", () => {
    const UNIT = 10n ** 18n;
    let seed = 20_261_118;
    const random = (below: number) => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      return Math.floor((seed / 4_294_967_296) * below);
    };
    for (let round = 0; round < 300; round += 1) {
      const capacity = 1 + random(20);
      const digits = random(7);
      const mantissa = 1 + random(5_000);
      const tokensPerSecond = Number(`${mantissa}e-${digits}`);
      const perMs = (BigInt(mantissa) * UNIT) / 10n ** BigInt(digits) / 1_000n;
      const clock = fakeClock();
      const limiter = memoryRateLimiter({ capacity, tokensPerSecond }, { clock });
      const full = BigInt(capacity) * UNIT;
      let tokens = full;
      for (let step = 0; step < 60; step += 1) {
        const elapsed = random(3) === 0 ? 0 : random(Math.ceil(4_000 / tokensPerSecond));
        clock.current += elapsed;
        tokens += perMs * BigInt(elapsed);
        if (tokens > full) tokens = full;
        const cost = 1 + random(capacity + 2);
        const wanted = BigInt(cost) * UNIT;
        const context = `${capacity} at ${tokensPerSecond}/s, cost ${cost}, step ${step}`;
        if (wanted <= tokens) {
          tokens -= wanted;
          const remaining = Number(tokens / UNIT);
          assert.deepEqual(limiter.consumeSync("a", cost), { allowed: true, remaining }, context);
        } else {
          const wait = (wanted - tokens + perMs - 1n) / perMs;
          const retryAfterMs = cost > capacity ? null : Number(wait);
          const remaining = Number(tokens / UNIT);
          assert.deepEqual(limiter.consumeSync("a", cost), { allowed: false, remaining, retryAfterMs }, context);
        }
      }
    }
  });

  test("numbers are read as their shortest decimal", () => {
    const texts = [[0.1, "0.1"], [1e-7, "0.0000001"], [1.25e-9, "0.00000000125"], [1e21, "1000000000000000000000"], [1.5e22, "15000000000000000000000"], [50.5, "50.5"]] as const;
    for (const [value, text] of texts) assert.equal(decimalText(value), text);
  });

  test("what the core cannot represent is refused with its text", () => {
    assert.throws(() => memoryRateLimiter({ capacity: 1, tokensPerSecond: 1e-15 }), {
      code: "INVALID_POLICY",
      message: /at most 100 years|cannot be represented/,
    });
    assert.throws(() => memoryRateLimiter({ capacity: 1, tokensPerSecond: 4_294_967_297 }), {
      code: "INVALID_POLICY",
      message: /cannot be represented/,
    });
    assert.throws(() => memoryRateLimiter({ capacity: 1.5, tokensPerSecond: 1 }), {
      message: /^Rate limit capacity must be a whole number; to limit in fractions, count smaller/,
    });
  });

  test("the embedded module equals the built one", () => {
    const built = readFileSync(new URL("src/bucket.wasm", PACKAGE));
    assert.equal(Buffer.from(BUCKET_WASM, "base64").equals(built), true);
  });
});

describe("memory", () => {
  test("keys that are full again are forgotten on the way", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { clock, maxKeys: 50_000 });
    let largest = 0;
    // A million keys that come once, 10,000 per second; each bucket is full after a second.
    for (let index = 0; index < 1_000_000; index += 1) {
      if (index % 10 === 0) clock.current += 1;
      assert.equal(limiter.consumeSync(`one-shot-${index}`, 1).allowed, true);
      largest = Math.max(largest, limiter.size);
    }
    assert.ok(largest < 25_000, `the table grew to ${largest} keys`);
  });

  test("a flood stays below the maximum and keeps the keys in use", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 2, tokensPerSecond: 0.01 }, { clock, maxKeys: 1_000 });
    limiter.consumeSync("victim", 2);
    for (let index = 0; index < 100_000; index += 1) limiter.consumeSync(`flood-${index}`, 1);
    assert.equal(limiter.size, 1_000);
    assert.equal(limiter.consumeSync("victim", 1).allowed, false);
    assert.equal(limiter.consumeSync("flood-0", 1).allowed, true);
    assert.equal(limiter.consumeSync("flood-0", 1).allowed, false);
  });

  test("a key that found no room takes what it spent into its own bucket", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 2, tokensPerSecond: 1 }, { clock, maxKeys: 1 });
    limiter.consumeSync("first", 1);
    assert.deepEqual(limiter.consumeSync("second", 2), { allowed: true, remaining: 0 });
    assert.equal(limiter.size, 1);
    // The first bucket is full again, the shared one has one token.
    clock.current += 1_000;
    assert.deepEqual(limiter.consumeSync("second", 1), { allowed: true, remaining: 0 });
    assert.equal(limiter.consumeSync("second", 1).allowed, false);
    assert.equal(limiter.size, 1);
  });

  test("a clock that steps back does not fill the table", () => {
    const clock = fakeClock();
    const limiter = memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { clock, maxKeys: 100 });
    for (let index = 0; index < 100; index += 1) limiter.consumeSync(`old-${index}`, 1);
    clock.current -= 86_400_000;
    const use = (name: string) => {
      let allowed = 0;
      for (let index = 0; index < 100; index += 1) {
        if (limiter.consumeSync(`${name}-${index}`, 1).allowed) allowed += 1;
      }
      return allowed;
    };
    // The buckets of the time before are empty now, and the new keys share the overflow buckets.
    assert.ok(use("first") <= 64);
    // All of them are full after a second.
    clock.current += 2_000;
    use("second");
    clock.current += 2_000;
    assert.equal(use("third"), 100);
  });

  test("dispose forgets all keys and gives the memory to others", () => {
    const { memory } = bucketMemory().wasm;
    const use = () => {
      const limiter = memoryRateLimiter({ capacity: 10, tokensPerSecond: 0.01 });
      for (let index = 0; index < 20_000; index += 1) limiter.consumeSync(`user:${index}`, 10);
      assert.equal(limiter.consumeSync("user:1", 1).allowed, false);
      limiter.dispose();
      assert.equal(limiter.size, 0);
      assert.deepEqual(limiter.consumeSync("user:1", 1), { allowed: true, remaining: 9 });
    };
    use();
    const bytes = memory.buffer.byteLength;
    for (let round = 0; round < 20; round += 1) use();
    assert.ok(memory.buffer.byteLength - bytes <= 5 * 65_536, "memory grew");
  });

  test("many limiters share one instance", () => {
    const limiters = Array.from({ length: 500 }, (_, index) =>
      memoryRateLimiter({ capacity: index + 1, tokensPerSecond: 1 }),
    );
    limiters.forEach((limiter, index) => {
      assert.deepEqual(limiter.consumeSync("a", 1), { allowed: true, remaining: index });
    });
  });

  test("150,000 buckets need less than 50 MB", () => {
    const before = process.memoryUsage();
    const limiter = memoryRateLimiter({ capacity: 2, tokensPerSecond: 0.01 }, { maxKeys: 150_000 });
    for (let index = 0; index < 150_000; index += 1) limiter.consumeSync(`rl:public:user-${index}:PING`, 1);
    const after = process.memoryUsage();
    const used = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
    assert.equal(limiter.size, 150_000);
    assert.ok(used < 50_000_000, `${used} bytes`);
  });

  test("maxKeys must be a positive integer", () => {
    for (const maxKeys of [0, -1, 1.5, Number.NaN, "7" as unknown as number]) {
      assert.throws(() => memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { maxKeys }), {
        code: "INVALID_OPTION",
        message: `maxKeys must be a positive integer, got ${maxKeys}`,
      });
    }
  });

  test("a failing clock fails its call only", async () => {
    let broken = true;
    const clock = { now: () => { if (broken) throw new Error("no clock"); return 1; } };
    const limiter = memoryRateLimiter({ capacity: 1, tokensPerSecond: 1 }, { clock });
    await assert.rejects(limiter.consume("a", 1), /no clock/);
    broken = false;
    assert.equal((await limiter.consume("a", 1)).allowed, true);
  });
});
