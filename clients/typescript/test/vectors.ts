/** The committed vectors of the Rust stores, as far as a limiter has their operations. */
import { readFileSync } from "node:fs";

import type { RateLimitDecision } from "../src/index.js";
import { REPOSITORY } from "./backends.js";

interface Vectors {
  origin_ns: number;
  scenarios: {
    name: string;
    limits: { revisions: { policy: { kind: string; tokens: number; period_ns: number; capacity: number } }[] }[];
    steps: { at_ns: number; op: string; charges?: [number, string, number][]; expect: Record<string, any> }[];
  }[];
}

/** Takes from single buckets. */
export interface Scenario {
  readonly name: string;
  readonly policies: { readonly capacity: number; readonly tokens: number; readonly periodNs: number }[];
  readonly steps: Step[];
}

export interface Step {
  /** Nanoseconds since the start. */
  readonly atNs: number;
  /** Index of the policy. */
  readonly policy: number;
  readonly key: string;
  readonly cost: number;
  readonly expected: RateLimitDecision;
}

/** Reads the vectors. Returns the time of their start, too. */
export function readVectors(): { originNs: number; scenarios: Scenario[] } {
  const path = new URL("crates/tidegate-testkit/vectors/vectors.json", REPOSITORY);
  const vectors = JSON.parse(readFileSync(path, "utf8")) as Vectors;
  const isPlain = ({ limits, steps }: Vectors["scenarios"][number]) =>
    limits.every((limit) => limit.revisions.length === 1 && limit.revisions[0]?.policy.kind === "bucket") &&
    steps.every((step) => step.op === "take" && step.charges?.length === 1);
  const scenarios = vectors.scenarios.filter(isPlain).map(({ name, limits, steps }) => ({
    name,
    policies: limits.map(({ revisions }) => {
      const { capacity, tokens, period_ns: periodNs } = revisions[0]!.policy;
      return { capacity, tokens, periodNs };
    }),
    steps: steps
      .map(({ at_ns: atNs, charges, expect }) => {
        const [policy, key, cost] = charges![0]!;
        return { atNs, policy, key, cost, expected: decision(expect) };
      })
      // A look at a bucket, which a limiter does not have.
      .filter((step) => step.cost > 0),
  }));
  return { originNs: vectors.origin_ns, scenarios };
}

function decision(expect: Record<string, any>): RateLimitDecision {
  if (expect["allowed"]) return { allowed: true, remaining: expect["allowed"].charges[0].remaining };
  const { retry_ns, charges } = expect["denied"];
  const retryAfterMs = retry_ns === "never" ? null : Math.ceil(retry_ns / 1_000_000);
  return { allowed: false, remaining: charges[0].remaining, retryAfterMs };
}

/** Returns a rate as tokens per second; undefined if it is no decimal number. */
export function decimalRate(tokens: number, periodNs: number): number | undefined {
  for (let digits = 0; digits <= 9; digits += 1) {
    const scaled = BigInt(tokens) * 10n ** BigInt(9 + digits);
    if (scaled % BigInt(periodNs) === 0n) return Number(`${scaled / BigInt(periodNs)}e-${digits}`);
  }
  return undefined;
}
