// Latency of a shard while it sweeps 100,000 buckets, next to the same shard without a sweep.
// Prints one line of JSON.
import { performance } from "node:perf_hooks";
import { join } from "node:path";
import { workerDir } from "../test/tools.mjs";
import { SECRET, startWorker, T0 } from "../test/workerd.mjs";

const BUCKETS = Number(process.argv[2] ?? 100_000);
const CONNECTIONS = 4;
const HOUR = 3_600_000;
const limit = { policy: { capacity: 10, per_ns: [1, 1_000_000_000] } };

const ROUNDS = 8;

// The fixture of the tests counts buckets, which shows that the sweep did its work.
const worker = await startWorker({ entry: join(workerDir, "test/fixture.ts"), bindings: { TIDEGATE_MANUAL_CLOCK: "1" } });
try {
  await fill();
  await measure(lasts(3_000));
  const [normal, during, sweeps] = [[], [], []];
  // Rounds alternate, so that noise of the machine and of this client is in both. One sweep is
  // short, and a percentile needs enough requests.
  for (let round = 0; round < ROUNDS; round++) {
    await fill();
    await measure(lasts(300));
    normal.push(...(await measure(lasts(sweeps[0] ?? 300))));
    const before = await buckets();
    let running = true;
    const start = performance.now();
    const sweep = worker.post("/shards/9/sweep", "", { now: T0 + 25 * HOUR }).then((answer) => {
      running = false;
      sweeps.push(performance.now() - start);
      if (answer.status !== 200) throw new Error(answer.text);
    });
    during.push(...(await measure(() => running)));
    await sweep;
    const deleted = before - (await buckets());
    if (deleted !== BUCKETS) throw new Error(`the sweep deleted ${deleted} of ${BUCKETS} buckets`);
  }
  const result = { buckets: BUCKETS, sweep_ms: percentile(sweeps, 0.5), normal: summary(normal), during: summary(during) };
  console.log(JSON.stringify({ ...result, p99_ratio: round2(result.during.p99_ms / result.normal.p99_ms) }));
} finally {
  await worker.stop();
}

function lasts(span) {
  const start = performance.now();
  return () => performance.now() - start < span;
}

async function buckets() {
  return (await worker.post("/test/9/test/state", "")).json.buckets;
}

async function fill() {
  const take = (at) => ({ take: { charges: [{ on: { limit, key: `idle ${at}`, group: "sweep" }, cost: 1 }] } });
  for (let start = 0; start < BUCKETS; start += 64) {
    const operations = Array.from({ length: Math.min(64, BUCKETS - start) }, (_, at) => take(start + at));
    const answer = await worker.post("/shards/9/operations", { format: 1, operations }, { now: T0 });
    if (answer.status !== 200) throw new Error(answer.text);
  }
}

/** Decides on other keys of the same shard, over several connections, and returns all latencies. */
async function measure(goesOn) {
  const latencies = [];
  const lane = async (id) => {
    for (let n = 0; goesOn(); n++) {
      const operations = [{ take: { charges: [{ on: { limit, key: `busy ${id} ${n % 50}`, group: "sweep" }, cost: 1 }] } }];
      const start = performance.now();
      const response = await fetch(`${worker.url}/shards/9/operations`, {
        method: "POST",
        headers: { authorization: `Bearer ${SECRET}`, "x-tidegate-now-ns": `${BigInt(T0 + 25 * HOUR) * 1_000_000n}` },
        body: JSON.stringify({ format: 1, operations }),
      });
      await response.arrayBuffer();
      latencies.push(performance.now() - start);
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, (_, id) => lane(id)));
  return latencies;
}

function summary(latencies) {
  return { requests: latencies.length, p50_ms: percentile(latencies, 0.5), p99_ms: percentile(latencies, 0.99), max_ms: percentile(latencies, 1) };
}

function percentile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return round2(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]);
}

function round2(value) {
  return Math.round(value * 100) / 100;
}
