// The Worker can be packaged for deployment. This needs no account and no network.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { command, workerDir } from "./tools.mjs";

test("wrangler packages the Worker", () => {
  const out = mkdtempSync(join(tmpdir(), "tidegate-deploy-"));
  try {
    const env = { ...process.env, WRANGLER_SEND_METRICS: "false", XDG_CONFIG_HOME: out, WRANGLER_LOG_PATH: out };
    const packed = join(out, "packed");
    const run = spawnSync(command("wrangler"), ["deploy", "--dry-run", "--outdir", packed], { cwd: workerDir, env, encoding: "utf8", timeout: 60_000 });
    assert.equal(run.status, 0, run.stdout + run.stderr);
    assert.match(run.stdout, /RATE_LIMITER/);
    const files = readdirSync(packed);
    assert.ok(files.some((file) => file.endsWith(".wasm")), files.join());
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
});
