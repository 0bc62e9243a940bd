// Nanoseconds per decision of limiters in one process. Prints JSON to stdout.
//
// Run `npm run bench`, or this file after `npm run build`. The subjects take turns within each
// round, so that a slow phase of the machine affects all of them; the median of the rounds counts.
// A decision includes finding the bucket of its key: peers without keys get a `Map`.
import { RateLimiter as PeerLimiter } from "limiter";
import flexible from "rate-limiter-flexible";

import { memoryRateLimiter } from "../dist/index.js";

const DECISIONS = 200_000;
const ROUNDS = 7;
const HOUR_MS = 3_600_000;

/** A map of limiters of the package `limiter`, which has no keys. */
function limiterByKey(capacity) {
  const limiters = new Map();
  return (key) => {
    let found = limiters.get(key);
    if (found === undefined) {
      found = new PeerLimiter({ tokensPerInterval: capacity, interval: HOUR_MS, fireImmediately: true });
      limiters.set(key, found);
    }
    return found;
  };
}

/** Each creates a function that decides once. They refill `capacity` within an hour. */
const subjects = {
  async: {
    "tidegate consume": (capacity) => {
      const limiter = memoryRateLimiter({ capacity, tokensPerSecond: perSecond(capacity) });
      return async (key) => (await limiter.consume(key, 1)).allowed;
    },
    "rate-limiter-flexible consume": (capacity) => {
      const limiter = new flexible.RateLimiterMemory({ points: capacity, duration: HOUR_MS / 1_000 });
      return async (key) => {
        try {
          await limiter.consume(key, 1);
          return true;
        } catch {
          return false;
        }
      };
    },
    "limiter removeTokens": (capacity) => {
      const find = limiterByKey(capacity);
      return async (key) => (await find(key).removeTokens(1)) >= 0;
    },
  },
  sync: {
    "tidegate consumeSync": (capacity) => {
      const limiter = memoryRateLimiter({ capacity, tokensPerSecond: perSecond(capacity) });
      return (key) => limiter.consumeSync(key, 1).allowed;
    },
    "limiter tryRemoveTokens": (capacity) => {
      const find = limiterByKey(capacity);
      return (key) => find(key).tryRemoveTokens(1);
    },
  },
};

/** Tokens per second that refill `capacity` in about an hour, with few digits. */
function perSecond(capacity) {
  return Number((capacity / 3_600).toPrecision(3));
}

/** Capacity of a bucket, from the number of decisions per key. */
const mixes = {
  allowed: (visits) => visits * 10,
  denied: () => 1,
  mixed: (visits) => visits / 2,
};

async function nanosPerDecision(kind, decide, keys) {
  const start = process.hrtime.bigint();
  let allowed = 0;
  for (let index = 0; index < DECISIONS; index += 1) {
    const key = keys[index % keys.length];
    if (kind === "async" ? await decide(key) : decide(key)) allowed += 1;
  }
  const nanos = Number(process.hrtime.bigint() - start);
  return { nanos: nanos / DECISIONS, allowed };
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

const results = [];
for (const keyCount of [1, 10_000]) {
  const keys = Array.from({ length: keyCount }, (_, index) => `rl:public:user-${index}:PING`);
  for (const [mix, capacityFor] of Object.entries(mixes)) {
    const capacity = capacityFor(DECISIONS / keyCount);
    for (const [kind, creators] of Object.entries(subjects)) {
      const times = new Map(Object.keys(creators).map((name) => [name, []]));
      const allowed = new Map();
      for (let round = 0; round <= ROUNDS; round += 1) {
        for (const [name, create] of Object.entries(creators)) {
          const result = await nanosPerDecision(kind, create(capacity), keys);
          // The first round compiles.
          if (round > 0) times.get(name).push(result.nanos);
          allowed.set(name, result.allowed);
        }
      }
      for (const [name, list] of times) {
        const ns = Math.round(median(list) * 10) / 10;
        results.push({ keys: keyCount, mix, kind, name, ns, allowed: allowed.get(name) });
      }
    }
  }
}
const { version } = process;
console.log(JSON.stringify({ node: version, decisions: DECISIONS, rounds: ROUNDS, results }, null, 2));
