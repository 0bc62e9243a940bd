// The Worker on a real workerd: paths, secret, storage, sweep.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { workerDir } from "./tools.mjs";
import { SECRET, startWorker, T0 } from "./workerd.mjs";

const HOUR = 3_600_000;

describe("the Worker", () => {
  let worker: any;
  before(async () => (worker = await startWorker({ bindings: { TIDEGATE_MANUAL_CLOCK: "1" } })));
  after(() => worker.stop());

  test("consume answers as its clients expect", async () => {
    const first = await worker.consume("user:1", { now: T0 });
    assert.deepEqual(first.json, { allowed: true, remaining: 9 });
    assert.deepEqual((await worker.consume("user:1", { cost: 9, now: T0 })).json, { allowed: true, remaining: 0 });
    assert.deepEqual((await worker.consume("user:1", { now: T0 + 250 })).json, { allowed: false, remaining: 0, retryAfterMs: 750 });
    assert.deepEqual((await worker.consume("user:1", { cost: 11, now: T0 + 250 })).json, { allowed: false, remaining: 0, retryAfterMs: null });
  });

  test("15 concurrent requests on a capacity of 10 admit 10", async () => {
    const answers = await Promise.all(Array.from({ length: 15 }, () => worker.consume("crowd", { now: T0 })));
    assert.equal(answers.filter((answer) => answer.json.allowed).length, 10);
  });

  test("bad bodies are 400, other paths and methods 404, large bodies 413", async () => {
    for (const body of ["", "[]", "{", '{"key":"a"}', '{"key":"a","cost":0,"capacity":1,"tokensPerSecond":1}', '{"key":7}']) {
      const answer = await worker.post("/consume", body);
      assert.equal(answer.status, 400, body);
      assert.match(answer.text, /^Error: /, body);
    }
    for (const path of ["/", "/consumed", "/v1/take", "/shards/65536/operations", "/shards/1/take"]) {
      const answer = await worker.post(path, "{}");
      assert.deepEqual([answer.status, answer.text], [404, "Not found"], path);
    }
    const get = await fetch(`${worker.url}/consume`, { headers: { authorization: `Bearer ${SECRET}` } });
    assert.equal(get.status, 404);
    assert.equal((await worker.post("/consume", "x".repeat(300_000))).status, 413);
  });

  test("a wrong or missing secret is 401, and health needs none", async () => {
    for (const authorization of ["", "Bearer wrong", SECRET, `Basic ${SECRET}`]) {
      const answer = await worker.post("/consume", "{}", { headers: { authorization } });
      assert.equal(answer.status, 401, authorization);
    }
    assert.equal(await (await fetch(`${worker.url}/healthz`)).text(), "ok");
  });

  test("a list across shards is charged as a whole or not at all", async () => {
    const policy = { capacity: 5, tokens_per_second: 1 };
    const list = { charges: [{ policy, key: "user:1", cost: 2 }, { policy, key: "user:2", cost: 3 }] };
    const first = await worker.post("/take", list, { now: T0 });
    assert.equal(first.json.allowed, true, first.text);
    const second = await worker.post("/take", list, { now: T0 });
    assert.equal(second.json.allowed, false);
    assert.equal(second.json.by_index, 1);
    assert.deepEqual(second.json.charges.map((charge: any) => charge.remaining), [3, 2]);
  });

  test("a caller that assumes another number of shards is refused", async () => {
    const batch = { format: 1, operations: [] };
    for (const path of ["/shards/3/operations", "/operations"]) {
      assert.equal((await worker.post(`${path}?shards=128`, batch)).status, 200, path);
      for (const shards of ["64", "1280", "x", "0128"]) {
        const answer = await worker.post(`${path}?shards=${shards}`, batch);
        assert.equal(answer.status, 409, path);
        assert.match(answer.text, /has 128 shards, but the request assumes /);
      }
    }
    assert.equal((await worker.post("/shards/128/operations", batch)).status, 404);
  });

  test("an unknown format of a batch is refused", async () => {
    const answer = await worker.post("/shards/3/operations", { format: 2, operations: [] });
    assert.deepEqual([answer.status, answer.text], [400, "Error: the batch has format 2, but this version reads format 1"]);
  });

  test("state survives a kill and a restart", async () => {
    await worker.consume("kept", { cost: 4, now: T0 });
    await worker.restart("SIGKILL");
    assert.equal((await worker.consume("kept", { now: T0 })).json.remaining, 5);
    await worker.restart("SIGTERM");
    assert.equal((await worker.consume("kept", { now: T0 })).json.remaining, 4);
  });
});

test("one sweep deletes 10,500 idle buckets and keeps recent ones", async () => {
  const entry = join(workerDir, "test/fixture.ts");
  const worker: any = await startWorker({ entry, bindings: { TIDEGATE_MANUAL_CLOCK: "1" } });
  try {
    // One shard, by a group, in batches.
    const limit = { policy: { capacity: 10, per_ns: [1, 1_000_000_000] } };
    const take = (key: string) => ({ take: { charges: [{ on: { limit, key, group: "sweep" }, cost: 1 }] } });
    const post = async (operations: object[], now: number) => {
      const answer = await worker.post("/shards/9/operations", { format: 1, operations }, { now });
      assert.equal(answer.status, 200, answer.text);
    };
    for (let start = 0; start < 10_500; start += 60) {
      await post(Array.from({ length: Math.min(60, 10_500 - start) }, (_, at) => take(`old ${start + at}`)), T0);
    }
    await post([take("recent"), take("old 7")], T0 + 24 * HOUR);
    const keys = async () => {
      const ids: string[] = (await worker.post("/test/9/test/ids", "buckets")).json;
      return ids.map((id) => id.slice(id.indexOf("sweep") + "sweep".length));
    };
    assert.equal((await keys()).length, 10_501);
    const swept = await worker.post("/shards/9/sweep", "", { now: T0 + 25 * HOUR });
    assert.deepEqual(swept.json, {}, swept.text);
    assert.deepEqual(await keys(), ["old 7", "recent"]);
  } finally {
    await worker.stop();
  }
});

test("without a secret nothing is answered from outside", async () => {
  const worker: any = await startWorker({ bindings: { TIDEGATE_SECRET: undefined } });
  try {
    const answer = await worker.consume("a");
    assert.equal(answer.status, 503);
    assert.match(answer.text, /TIDEGATE_SECRET/);
  } finally {
    await worker.stop();
  }
});

test("without the manual clock the time of a request is ignored", async () => {
  const worker: any = await startWorker();
  try {
    for (let at = 0; at < 10; at++) await worker.consume("a", { tokensPerSecond: 0.001, now: T0 });
    const later = await worker.consume("a", { tokensPerSecond: 0.001, now: T0 + 1_000_000_000 });
    assert.equal(later.json.allowed, false);
    assert.equal((await worker.post("/shards/1/sweep", "")).status, 404);
  } finally {
    await worker.stop();
  }
});
