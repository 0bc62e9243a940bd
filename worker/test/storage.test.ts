// What an object stores, when it sets its alarm, and what a failure leaves.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { workerDir } from "./tools.mjs";
import { startWorker, T0 } from "./workerd.mjs";

const HOUR = 3_600_000;
const entry = join(workerDir, "test/fixture.ts");

// Shards of 128 of these keys.
const KEYS: Record<string, number> = { "user:1": 75, "user:2": 94, "rl:public:anon:PING": 60 };

/** Idle buckets for a sweep of many steps. */
const COPIES = 50_000;

async function state(worker: any, shard: number) {
  return (await worker.post(`/test/${shard}/test/state`, "")).json;
}

describe("the storage of an object", () => {
  let worker: any;
  before(async () => (worker = await startWorker({ entry, bindings: { TIDEGATE_MANUAL_CLOCK: "1" } })));
  after(() => worker.stop());

  test("requests that change nothing store nothing and set no alarm", async () => {
    const denied = await worker.consume("user:1", { cost: 11, now: T0 });
    assert.equal(denied.json.allowed, false);
    await worker.post("/peek", { policy: { capacity: 1, tokens_per_second: 1 }, key: "user:1" }, { now: T0 });
    await worker.post("/consume", { key: "user:1", cost: 0, capacity: 1, tokensPerSecond: 1 });
    const { tables, alarm } = await state(worker, KEYS["user:1"]!);
    assert.deepEqual({ tables, alarm }, { tables: [], alarm: null });
  });

  test("the first write sets the alarm, later ones and restarts do not", async () => {
    const before = Date.now();
    await worker.consume("user:2", { now: T0 });
    const first = await state(worker, KEYS["user:2"]!);
    assert.ok(first.alarm >= before + HOUR && first.alarm <= Date.now() + HOUR, `${first.alarm}`);
    assert.deepEqual([first.tables, first.buckets, first.armed], [["buckets", "limits", "tidegate_meta"], 1, 1]);
    await worker.consume("user:2", { now: T0 });
    await worker.consume("user:2", { cost: 10, now: T0 });
    assert.deepEqual(await state(worker, KEYS["user:2"]!), first);
    await worker.restart("SIGKILL");
    await worker.consume("user:2", { now: T0 });
    assert.deepEqual(await state(worker, KEYS["user:2"]!), { ...first, armed: 0 });
  });

  test("a bucket that is not full is kept, however idle", async () => {
    const body = { key: "user:1", cost: 10, capacity: 10, tokensPerSecond: 0.0001 };
    await worker.post("/consume", body, { now: T0 });
    await worker.post("/shards/75/sweep", "", { now: T0 + 27 * HOUR });
    assert.equal((await state(worker, 75)).buckets, 1, "full after 27 h 47 min");
    await worker.post("/shards/75/sweep", "", { now: T0 + 28 * HOUR });
    assert.equal((await state(worker, 75)).buckets, 0);
  });

  test("a full bucket is kept for 24 hours after its last write", async () => {
    await worker.consume("user:1", { now: T0 });
    await worker.post("/shards/75/sweep", "", { now: T0 + 24 * HOUR });
    assert.equal((await state(worker, 75)).buckets, 1);
    await worker.post("/shards/75/sweep", "", { now: T0 + 24 * HOUR + 1 });
    assert.equal((await state(worker, 75)).buckets, 0);
  });

  test("a sweep forgets limits without buckets and keeps those with", async () => {
    const post = async (limit: string, policy: object, now: number) => {
      const body = { format: 1, node: 1, operations: [{ take: { charges: [{ on: { limit: { name: limit, ...policy }, key: "k", group: "limits" }, cost: 1 }] } }] };
      const answer = await worker.post("/shards/11/operations", body, { now });
      return answer.json.replies[0].allowed.outcomes[0].remaining;
    };
    const bucket = (capacity: number, more: object = {}) => ({ policy: { capacity, rate: "1/s" }, ...more });
    const limits = async () => (await worker.post("/test/11/test/ids", "limits")).json;
    // More limits than one step looks at, with names that begin like that of a limit with a bucket.
    await post("kept", { policy: { allowance: 5 } }, T0);
    await post("kept-not", bucket(10), T0);
    const rows = `WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 2500)
      INSERT INTO limits SELECT CAST('other' || n AS BLOB), x'00' FROM number`;
    await worker.post("/test/11/test/sql", rows);
    assert.equal((await limits()).length, 2_503);
    await worker.post("/shards/11/sweep", "", { now: T0 + 25 * HOUR });
    assert.deepEqual(await limits(), ["", "kept"], "and the number of the shard");
    // The history of a forgotten limit starts anew, and is stored with its next bucket.
    const revised = bucket(4, { generation: 1, past: [["keep_tokens", { capacity: 10, rate: "1/s" }]] });
    assert.equal(await post("kept-not", revised, T0 + 25 * HOUR), 3);
    assert.deepEqual(await limits(), ["", "kept", "kept-not"]);
    await worker.restart("SIGKILL");
    assert.equal(await post("kept-not", revised, T0 + 25 * HOUR), 2);
    assert.equal(await post("kept", { policy: { allowance: 5 } }, T0 + 25 * HOUR), 3);
  });

  test("the real alarm sweeps, forgets limits and is not set again on an empty shard", async () => {
    const past = Date.now() - 25 * HOUR;
    const key = "rl:public:anon:PING";
    const take = (now: number) => worker.post("/take", { limit: "ping", policy: { capacity: 9, tokens_per_second: 1 }, key }, { now });
    await take(past);
    const filled = await state(worker, KEYS[key]!);
    assert.ok(filled.buckets === 1 && filled.limits > 0, JSON.stringify(filled));
    await worker.post("/test/60/test/alarm-now", "");
    let swept = filled;
    for (let tries = 0; swept.buckets > 0 && tries < 100; tries++) {
      await new Promise((done) => setTimeout(done, 20));
      swept = await state(worker, KEYS[key]!);
    }
    assert.deepEqual([swept.buckets, swept.limits, swept.alarm], [0, 0, null]);
    const next = await take(Date.now());
    assert.equal(next.json.remaining, 8, next.text);
    const again = await state(worker, KEYS[key]!);
    assert.ok(again.alarm > Date.now() && again.limits > 0, "the next write sets the alarm again");
  });

  test("a sweep of a shard that keeps buckets sets the next alarm", async () => {
    await worker.post("/test/94/test/alarm-now", "");
    let next = { alarm: null as number | null };
    for (let tries = 0; (next.alarm ?? 0) < Date.now() + HOUR / 2 && tries < 100; tries++) {
      await new Promise((done) => setTimeout(done, 20));
      next = await state(worker, 94);
    }
    assert.ok(next.alarm! > Date.now() + HOUR - 10_000, `${next.alarm}`);
  });

  test("storage of a newer format is refused and not changed", async () => {
    await worker.consume("user:1", { now: T0 });
    await worker.post("/test/75/test/sql", "UPDATE tidegate_meta SET value = 2 WHERE name = 'format'");
    await worker.restart("SIGTERM");
    const before = await state(worker, 75);
    const answer = await worker.consume("user:1", { now: T0 });
    assert.equal(answer.status, 500);
    assert.match(answer.text, /^Error: the storage of this object has format 2, but this version reads format 1/);
    assert.deepEqual(await state(worker, 75), before);
  });
});

// A sweep looks at 1,000 rows at a time, and pauses: no request waits for more than that.
test("a shard answers requests during a sweep", async () => {
  const worker: any = await startWorker({ entry, bindings: { TIDEGATE_MANUAL_CLOCK: "1" } });
  try {
    await worker.consume("user:1", { now: T0 });
    const copies = `WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ${COPIES})
      INSERT INTO buckets SELECT CAST(n AS BLOB), value, full_at, written_at FROM buckets, number`;
    await worker.post("/test/75/test/sql", copies);
    // In each pause, the fixture counts the rows and lets the shard decide.
    const consume = { key: "user:1", cost: 1, capacity: 1_000_000, tokensPerSecond: 1 };
    const swept = await worker.post("/test/75/test/sweep", consume, { now: T0 + 25 * HOUR });
    const { pauses } = swept.json as { pauses: { buckets: number; answer: { allowed: boolean; remaining: number } }[] };
    // The first decision makes a bucket of another policy.
    const left = pauses.map(({ buckets }) => buckets);
    const expected = Array.from({ length: COPIES / 1_000 }, (_, step) => COPIES + 1 - (step + 1) * 1_000 + Math.min(step, 1));
    assert.deepEqual(left, expected);
    const remaining = pauses.map(({ answer }) => answer.allowed && answer.remaining);
    assert.deepEqual(remaining, pauses.map((_, step) => 999_999 - step));
    assert.equal((await state(worker, 75)).buckets, 1, "what was used meanwhile is left");
  } finally {
    await worker.stop();
  }
});

test("the time of a request is that of its decision, not of its first byte", async () => {
  const worker: any = await startWorker({ entry });
  try {
    const body = JSON.stringify({ key: "user:1", cost: 1, capacity: 1, tokensPerSecond: 4 });
    assert.equal((await worker.consume("user:1", { capacity: 1, tokensPerSecond: 4 })).json.allowed, true);
    // The path of the fixture hands the body on as it comes; the Worker would collect it first.
    const slow = new ReadableStream({
      async start(stream) {
        stream.enqueue(Buffer.from(body.slice(0, 10)));
        await new Promise((done) => setTimeout(done, 350));
        stream.enqueue(Buffer.from(body.slice(10)));
        stream.close();
      },
    });
    const init = { method: "POST", body: slow, duplex: "half" } as RequestInit;
    const response = await fetch(`${worker.url}/test/${KEYS["user:1"]}/consume`, init);
    assert.deepEqual(await response.json(), { allowed: true, remaining: 0 });
  } finally {
    await worker.stop();
  }
});

test("a trap rolls back, and the next request gets a new instance", async () => {
  const wasm = join(tmpdir(), `tidegate-trap-${process.pid}.wasm`);
  writeFileSync(wasm, trappingModule());
  const worker: any = await startWorker({ entry, wasm });
  try {
    // The body's length says what the module does: 1 writes and traps, 2 writes, 3 writes and fails.
    const post = (body: string) => worker.post("/shards/0/operations", body);
    const trapped = await post("1");
    assert.equal(trapped.status, 500);
    assert.match(trapped.text, /^Error: the shard failed and rolled the request back: /);
    assert.deepEqual((await state(worker, 0)).tables, []);
    assert.equal((await post("22")).status, 200);
    assert.equal((await state(worker, 0)).buckets, 1);
    assert.equal((await post("1")).status, 500);
    assert.equal((await post("333")).status, 400);
    assert.equal((await post("22")).status, 200);
    assert.equal((await state(worker, 0)).buckets, 2, "one per successful request");
  } finally {
    await worker.stop();
  }
});

/**
 * A module with the interface of the shard. `handle` writes a bucket whose id is a random byte and
 * the number of requests of this instance.
 */
function trappingModule(): Uint8Array {
  const name = (text: string) => [text.length, ...Buffer.from(text)];
  const section = (id: number, ...items: number[][]) => {
    const body = [items.length, ...items.flat()];
    return [id, ...leb(body.length), ...body];
  };
  const leb = (value: number) => (value < 128 ? [value] : [(value & 127) | 128, value >> 7]);
  const I32 = 0x7f, I64 = 0x7e, F64 = 0x7c;
  const type = (from: number[], to: number[]) => [0x60, from.length, ...from, to.length, ...to];
  const code = (...body: number[]) => [...leb(body.length + 2), 0, ...body, 0x0b];
  const constant = (value: number) => (value < 64 ? [0x41, value] : [0x41, (value & 127) | 128, value >> 7]);
  const store8 = [0x3a, 0, 0];
  const handle = [
    // memory[8] = seed() (the low byte), then memory[9] += 1
    ...constant(8), 0x10, 3, 0xa7, ...store8,
    ...constant(9), ...constant(9), 0x2d, 0, 0, ...constant(1), 0x6a, ...store8,
    // write(0, 8, 2, 8, 2, 0.0)
    ...constant(0), ...constant(8), ...constant(2), ...constant(8), ...constant(2), 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 1,
    // if (body_len == 1) unreachable
    0x20, 1, ...constant(1), 0x46, 0x04, 0x40, 0x00, 0x0b,
    // body_len == 3 ? 400 : 200
    ...constant(400), ...constant(200), 0x20, 1, ...constant(3), 0x46, 0x1b,
  ];
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, type([I32, I32, I32], [I32]), type([I32, I32, I32, I32, I32, F64], []), type([I32, I32, I32], []), type([], [I64]), type([I32], [I32]), type([I32, I32, I64], [I32]), type([], [I32])),
    ...section(2, ...["read", "write", "remove", "seed"].map((field, at) => [...name("host"), ...name(field), 0, at])),
    ...section(3, [4], [4], [5], [4], [6], [6]),
    ...section(5, [0, 1]),
    ...section(7, [...name("memory"), 2, 0], ...["input", "entry", "handle", "coordinate", "output_ptr", "output_len"].map((field, at) => [...name(field), 0, at + 4])),
    ...section(10, code(...constant(64)), code(...constant(64)), code(...handle), code(...constant(200)), code(...constant(16)), code(...constant(2))),
    // The output is always "{}".
    ...section(11, [0, ...constant(16), 0x0b, ...name("{}")]),
  ]);
}
