/** The order and the number of the messages of a connection in the gate. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { type MessageGateOptions, messageGate, rateLimit, type RateLimiter, type RawMessage } from "../src/index.js";

const POLICY = { capacity: 1_000, tokensPerSecond: 1 };
const turn = () => new Promise((resolve) => setImmediate(resolve));
const message = (type: string | number) => JSON.stringify({ type: String(type) });

/** A limiter that allows each call when `decide` is fulfilled. */
function limiter(decide: (call: number) => unknown): RateLimiter & { calls: number } {
  return {
    calls: 0,
    getPolicy: () => POLICY,
    async consume() {
      this.calls += 1;
      await decide(this.calls);
      return { allowed: true, remaining: 1 };
    },
  };
}

/** A gate whose handled types are recorded, with a function that connects sockets to it. */
function open(limiter: RateLimiter, options: Partial<MessageGateOptions> = {}) {
  const handled: string[] = [];
  const middleware = [rateLimit({ limiter })];
  const gate = messageGate({ types: "any", middleware, onMessage: (_, { type }) => handled.push(type), ...options });
  const connect = () => {
    const sent: string[] = [];
    const closed: unknown[] = [];
    const socket = { send: (text: string) => sent.push(text), close: (code?: number) => closed.push(code) };
    const connection = { id: "c", data: {} };
    return { sent, closed, receive: (raw: RawMessage) => gate.handle(socket, raw, connection) };
  };
  return { handled, connect };
}

test("messages of a connection are handled in their order, however long a decision or a Blob takes", async () => {
  // The first decision takes the most turns of the event loop.
  const slow = limiter(async (call) => { for (let turns = 10; turns > call; turns -= 1) await turn(); });
  const { handled, connect } = open(slow);
  const { receive } = connect();
  const raw = [new Blob([message(1)]), message(2), Buffer.from(message(3)), new Blob([message(4)]), message(5)];
  await Promise.all(raw.map(receive));
  assert.deepEqual(handled, ["1", "2", "3", "4", "5"]);
});

test("a connection does not wait for another one", async () => {
  const { handled, connect } = open(limiter((call) => (call === 1 ? new Promise(() => {}) : undefined)));
  void connect().receive(message("stuck"));
  await turn();
  await connect().receive(message("other"));
  assert.deepEqual(handled, ["other"]);
});

test("a message that fails rejects for itself only", async () => {
  const { handled, connect } = open(limiter((call) => { if (call === 2) throw new Error("away"); }));
  const { receive } = connect();
  const results = await Promise.allSettled([1, 2, 3].map((type) => receive(message(type))));
  assert.deepEqual(results.map((result) => result.status), ["fulfilled", "rejected", "fulfilled"]);
  assert.deepEqual(handled, ["1", "3"]);
});

for (const maxInFlight of [undefined, 1, 3]) {
  const limit = maxInFlight ?? 64;
  test(`more than ${limit} messages in flight get an error frame, and are neither charged nor handled`, async () => {
    let decide = () => {};
    const decided = new Promise<void>((resolve) => { decide = resolve; });
    const waiting = limiter(() => decided);
    const { handled, connect } = open(waiting, maxInFlight === undefined ? {} : { maxInFlight });
    const { receive, sent } = connect();
    const first = Array.from({ length: limit }, (_, index) => receive(message(index)));
    await Promise.all([receive(message("a")), receive("{")]);
    const frame = `{"type":"ERROR","payload":{"code":"RESOURCE_EXHAUSTED","message":"Too many messages in flight","details":{"type":"in_flight","observed":${limit + 1},"limit":${limit}},"retryable":true,"retryAfterMs":1000}}`;
    assert.deepEqual([sent, waiting.calls, handled], [[frame, frame], 1, []]);
    decide();
    await Promise.all(first);
    await receive(message("later"));
    assert.deepEqual([handled.length, handled.at(-1), sent.length], [limit + 1, "later", 2]);
    assert.equal(waiting.calls, limit + 1);
  });
}

test("messages after a close are dropped", async () => {
  const free = limiter(() => {});
  const { connect } = open(free, { onMessage: (ctx) => ctx.ws.close(4_000) });
  const { receive, closed } = connect();
  await Promise.all([receive(message(1)), receive(message(2))]);
  await receive(message(3));
  assert.deepEqual([closed, free.calls], [[4_000], 1]);
});

test("a Blob that cannot be read is a message without a type", async () => {
  const { connect, handled } = open(limiter(() => {}));
  const { receive, sent } = connect();
  await receive({ arrayBuffer: () => Promise.reject(new Error("gone")) });
  assert.deepEqual([JSON.parse(sent[0]!).payload.code, handled], ["PARSE_ERROR", []]);
});

test("options are checked when the gate is created", () => {
  const valid = { types: "any", middleware: [], onMessage() {} };
  const wrong = [{ types: "PING" }, { middleware: undefined }, { middleware: [null] }, { onMessage: undefined }, { maxInFlight: 0 }, { maxInFlight: null }];
  for (const option of wrong) {
    assert.throws(() => messageGate({ ...valid, ...option } as unknown as MessageGateOptions), { code: "INVALID_OPTION" });
  }
});
