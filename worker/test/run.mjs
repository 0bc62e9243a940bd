// Bundles the tests, because Node 20 does not read TypeScript, and runs them.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { load, rootDir, workerDir } from "./tools.mjs";

const out = join(rootDir, "target/worker-test");
mkdirSync(out, { recursive: true });
const tests = readdirSync(join(workerDir, "test")).filter((name) => name.endsWith(".test.ts"));
await load("esbuild").build({
  entryPoints: tests.map((name) => join(workerDir, "test", name)),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  logLevel: "error",
});
const only = process.argv.slice(2);
const files = tests.map((name) => name.replace(/\.ts$/, ".mjs")).filter((name) => only.length === 0 || only.some((part) => name.includes(part)));
const env = { ...process.env, TIDEGATE_WORKER_TEST: join(workerDir, "test/tools.mjs") };
const run = spawnSync(process.execPath, ["--test", "--test-concurrency=2", ...files.map((name) => join(out, name))], { stdio: "inherit", env });
process.exit(run.status ?? 1);
