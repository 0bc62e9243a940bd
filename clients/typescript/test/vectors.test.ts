/** The Durable Object limiter on the committed vectors, in the real runtime with a clock of the test. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { durableObjectRateLimiter } from "../src/index.js";
import { startWorkerd, type Workerd } from "./backends.js";
import { decimalRate, readVectors } from "./vectors.js";

let workerd: Workerd;

before(async () => {
  workerd = await startWorkerd(undefined, { TIDEGATE_MANUAL_CLOCK: "1" });
});
after(() => workerd?.close());

test("Durable Objects decide as the committed vectors of takes from single buckets", async () => {
  const { originNs, scenarios } = readVectors();
  let nowNs = 0n;
  const { namespace } = workerd;
  const clocked: typeof namespace = {
    idFromName: (name) => namespace.idFromName(name),
    get: (id) => ({
      fetch: (url, init) => {
        const headers = { ...init.headers, "x-tidegate-now-ns": String(nowNs) };
        return namespace.get(id).fetch(url, { ...init, headers });
      },
    }),
  };
  let [count, steps] = [0, 0];
  for (const { name, policies, steps: all } of scenarios) {
    const rates = policies.map(({ tokens, periodNs }) => decimalRate(tokens, periodNs));
    // A policy in numbers cannot express the others; the memory limiter runs them.
    if (rates.includes(undefined)) continue;
    const limiters = policies.map(({ capacity }, index) =>
      durableObjectRateLimiter(clocked, { capacity, tokensPerSecond: rates[index]!, prefix: `${name}:${index}:` }),
    );
    for (const { atNs, policy, key, cost, expected } of all) {
      nowNs = BigInt(originNs) + BigInt(atNs);
      assert.deepEqual(await limiters[policy]!.consume(key, cost), expected, `${name} at ${atNs} ns`);
      steps += 1;
    }
    count += 1;
  }
  assert.ok(count >= 5 && steps >= 80, `only ${count} scenarios and ${steps} steps`);
});
