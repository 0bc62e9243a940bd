import assert from "node:assert/strict";
import { describe, test } from "node:test";

import {
  type IngressContext,
  type LimitExceededInfo,
  memoryRateLimiter,
  perUserKey,
  rateLimit,
  type RateLimitDecision,
  type RateLimiter,
  type RateLimitOptions,
  RateLimiterError,
} from "../src/index.js";

interface Peer {
  readonly sent: string[];
  readonly closed: [number | undefined, string | undefined][];
  handled: number;
}

/** A connection that records what happens to it. */
function connect(data: unknown = { userId: "ann" }) {
  const peer: Peer = { sent: [], closed: [], handled: 0 };
  const receive = (type = "PING"): IngressContext => ({
    type,
    id: "c1",
    ip: "203.0.113.9",
    ws: {
      data,
      send: (text) => peer.sent.push(text),
      close: (code, reason) => peer.closed.push([code, reason]),
    },
    meta: { receivedAt: 1 },
  });
  return { peer, receive, next: () => { peer.handled += 1; } };
}

/** A limiter with a fixed decision that counts its calls. */
function fixed(decision: RateLimitDecision) {
  const calls: [string, number][] = [];
  const limiter: RateLimiter = {
    getPolicy: () => ({ capacity: 10, tokensPerSecond: 1 }),
    consume: async (key, cost) => {
      calls.push([key, cost]);
      return decision;
    },
  };
  return { limiter, calls };
}

const deny = (retryAfterMs: number | null) => fixed({ allowed: false, remaining: 0, retryAfterMs }).limiter;

describe("decisions", () => {
  test("an allowed message continues once, with the default key and a cost of one", async () => {
    const { limiter, calls } = fixed({ allowed: true, remaining: 3 });
    const { peer, receive, next } = connect();
    await rateLimit({ limiter })(receive(), next);
    assert.equal(peer.handled, 1);
    assert.deepEqual(calls, [["rl:public:ann:PING", 1]]);
    assert.deepEqual([peer.sent, peer.closed], [[], []]);
  });

  test("frames equal those of tidegate-ws", async () => {
    const golden: [number | null, string][] = [
      [1_250, '{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":10},"retryable":true,"retryAfterMs":1250}}'],
      [0, '{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Rate limit exceeded","details":{"type":"rate","observed":1,"limit":10},"retryable":true,"retryAfterMs":0}}'],
      [null, '{"type":"ERROR","payload":{"code":"FAILED_PRECONDITION","message":"Operation cost exceeds rate limit capacity","details":{"type":"rate","observed":1,"limit":10},"retryable":false}}'],
    ];
    for (const [retryAfterMs, frame] of golden) {
      const { peer, receive, next } = connect();
      await rateLimit({ limiter: deny(retryAfterMs) })(receive(), next);
      assert.deepEqual(peer.sent, [frame]);
      assert.equal(peer.handled, 0);
    }
  });

  test("an invalid cost is reported, and nothing is consumed or handled", async () => {
    for (const cost of [0, -1, 0.5, Number.NaN, 1n, Symbol()] as number[]) {
      const { limiter, calls } = fixed({ allowed: true, remaining: 1 });
      const { peer, receive, next } = connect();
      await rateLimit({ limiter, cost: () => cost })(receive(), next);
      assert.deepEqual(peer.sent, ['{"type":"ERROR","payload":{"code":"INVALID_ARGUMENT","message":"Rate limit cost must be a positive integer","details":{},"retryable":false}}']);
      assert.deepEqual([calls, peer.handled], [[], 0]);
    }
  });

  test("a failure of the limiter reaches the caller and admits nothing", async () => {
    const failure = new RateLimiterError("UNAVAILABLE", "store away", { status: 503 });
    const limiter: RateLimiter = {
      getPolicy: () => ({ capacity: 10, tokensPerSecond: 1 }),
      consume: () => Promise.reject(failure),
    };
    let hooks = 0;
    const { peer, receive, next } = connect();
    const step = rateLimit({ limiter, onLimitExceeded: () => { hooks += 1; } });
    await assert.rejects(step(receive(), next), failure);
    assert.deepEqual([peer.handled, peer.sent, hooks], [0, [], 0]);
  });

  test("a failure of the handler reaches the caller", async () => {
    const { limiter } = fixed({ allowed: true, remaining: 1 });
    const { receive } = connect();
    const step = rateLimit({ limiter });
    await assert.rejects(step(receive(), () => Promise.reject(new Error("handler"))), /handler/);
  });
});

describe("behaviour when a limit is exceeded", () => {
  const sent = { RESOURCE_EXHAUSTED: 250, FAILED_PRECONDITION: null } as const;
  for (const [code, retryAfterMs] of Object.entries(sent)) {
    for (const onExceeded of [undefined, "send", "close", "custom"] as const) {
      test(`${code}, ${onExceeded ?? "default"}`, async () => {
        const infos: LimitExceededInfo[] = [];
        const { peer, receive, next } = connect();
        const step = rateLimit({
          limiter: deny(retryAfterMs),
          cost: () => 4,
          ...(onExceeded === undefined ? {} : { onExceeded }),
          onLimitExceeded: (info) => infos.push(info),
        });
        await step(receive(), next);
        await step(receive(), next);
        const info = { type: "rate", observed: 4, limit: 10, retryAfterMs, clientId: "c1" };
        assert.deepEqual(infos, [info, info]);
        assert.equal(peer.handled, 0);
        const frames = onExceeded === undefined || onExceeded === "send" ? 2 : 0;
        assert.deepEqual(peer.sent.map((text) => JSON.parse(text).payload.code), Array(frames).fill(code));
        const closes = onExceeded === "close" ? 2 : 0;
        assert.deepEqual(peer.closed.map(([status]) => status), Array(closes).fill(1013));
      });
    }
  }

  test("the close code can be set", async () => {
    const { peer, receive, next } = connect();
    await rateLimit({ limiter: deny(1), onExceeded: "close", closeCode: 4_029 })(receive(), next);
    assert.deepEqual(peer.closed, [[4_029, "Rate limit exceeded"]]);
  });

  test("invalid options are refused when the middleware is created", () => {
    const limiter = deny(1);
    const invalid: [object, RegExp][] = [
      [{ limiter, onExceeded: "drop" }, /^onExceeded must be "send", "close" or "custom", got drop$/],
      [{ limiter, closeCode: 999 }, /^closeCode must be 1000 to 1003, 1007 to 1014, or 3000 to 4999, got 999$/],
      [{ limiter, closeCode: null }, /^closeCode .* got null$/],
      [{ limiter: undefined }, /^limiter must have a method consume, got undefined$/],
      [{ limiter, key: "a" }, /^key must be a function, got a$/],
      [{ limiter, cost: 5 }, /^cost must be a function, got 5$/],
      [{ limiter, onLimitExceeded: Object.create(null) }, /^onLimitExceeded must be a function, got a value of type object$/],
    ];
    for (const closeCode of [0, 1_004, 1_005, 1_006, 1_015, 2_999, 5_000, 1_000.5, Number.NaN, "1000", 1_000n]) {
      invalid.push([{ limiter, closeCode }, /^closeCode must be 1000 to 1003, /]);
    }
    for (const [options, message] of invalid) {
      assert.throws(() => rateLimit(options as RateLimitOptions), { code: "INVALID_OPTION", message });
    }
  });

  test("the hook is not awaited, and its failures are contained", async () => {
    const hooks = [
      () => { throw new Error("hook"); },
      () => Promise.reject(new Error("hook")),
      () => new Promise(() => {}),
    ];
    for (const onLimitExceeded of hooks) {
      const { peer, receive, next } = connect();
      await rateLimit({ limiter: deny(5), onLimitExceeded })(receive(), next);
      assert.equal(peer.sent.length, 1);
    }
    // An unhandled rejection would fail this file.
    await new Promise((resolve) => setImmediate(resolve));
  });

  test("a socket whose peer has gone is no error", async () => {
    const { receive } = connect();
    const ctx = receive();
    const broken = () => { throw new Error("closed"); };
    const gone = { ...ctx, ws: { ...ctx.ws, send: broken, close: broken } };
    await rateLimit({ limiter: deny(5) })(gone, () => {});
    await rateLimit({ limiter: deny(5), onExceeded: "close" })(gone, () => {});
  });
});

describe("examples of the proposal", () => {
  test("two policies on one route: the cheap one is used up first", async () => {
    const { peer, receive, next } = connect();
    const cheap = rateLimit({ limiter: memoryRateLimiter({ capacity: 20, tokensPerSecond: 0.01 }), cost: () => 1 });
    const expensive = rateLimit({ limiter: memoryRateLimiter({ capacity: 10, tokensPerSecond: 0.01 }), cost: () => 5 });
    for (let index = 0; index < 4; index += 1) {
      const ctx = receive();
      await cheap(ctx, () => expensive(ctx, next));
    }
    assert.equal(peer.handled, 2);
    assert.deepEqual(peer.sent.map((text) => JSON.parse(text).payload.details.limit), [10, 10]);
  });

  test("weighted operations under a shared budget", async () => {
    const limiter = memoryRateLimiter({ capacity: 12, tokensPerSecond: 0.01 });
    const step = rateLimit({ limiter, key: perUserKey, cost: (ctx) => (ctx.type === "Compute" ? 5 : 1) });
    const { peer, receive, next } = connect();
    for (const type of ["Compute", "Compute", "Compute", "Ping", "Ping", "Ping"]) await step(receive(type), next);
    assert.equal(peer.handled, 4);
  });

  test("types do not starve each other with the default key", async () => {
    const step = rateLimit({ limiter: memoryRateLimiter({ capacity: 1, tokensPerSecond: 0.01 }) });
    const { peer, receive, next } = connect();
    for (const type of ["A", "A", "A", "B"]) await step(receive(type), next);
    assert.equal(peer.handled, 2);
  });

  test("costs by tier", async () => {
    const tiers: Record<string, number> = { free: 2, basic: 1, pro: 1 };
    for (const [tier, handled] of [["free", 5], ["basic", 10], ["pro", 10]] as const) {
      const step = rateLimit<{ tier: string }>({
        limiter: memoryRateLimiter({ capacity: 10, tokensPerSecond: 0.01 }),
        key: (ctx) => `rl:${ctx.ws.data.tier}:${ctx.id}`,
        cost: (ctx) => tiers[ctx.ws.data.tier] ?? 1,
      });
      const { peer, receive, next } = connect({ tier });
      for (let index = 0; index < 12; index += 1) await step(receive() as IngressContext<{ tier: string }>, next);
      assert.equal(peer.handled, handled, tier);
    }
  });
});
