// The example on the real runtime, as wrangler packages it for deployment.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Miniflare } from "miniflare";

const folder = fileURLToPath(new URL("../", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "tidegate-example-"));
const [, compatibilityDate] = /^compatibility_date = "(.*)"$/m.exec(readFileSync(join(folder, "wrangler.toml"), "utf8"));
const digest = (token) => createHash("sha256").update(token).digest("hex");
const TOKENS = JSON.stringify({ [digest("a1")]: "ann", [digest("b1")]: "bob" });
let worker;

before(async () => {
  const env = { ...process.env, WRANGLER_SEND_METRICS: "false", XDG_CONFIG_HOME: out, WRANGLER_LOG_PATH: out };
  const wrangler = join(folder, "node_modules/.bin/wrangler");
  const args = ["deploy", "--dry-run", "--outdir", join(out, "packed")];
  const run = spawnSync(wrangler, args, { cwd: folder, env, encoding: "utf8", timeout: 120_000 });
  assert.equal(run.status, 0, run.stdout + run.stderr);
  assert.match(run.stdout, /RATE_LIMITER/);
  await start();
});
after(async () => {
  await worker?.dispose();
  rmSync(out, { recursive: true, force: true });
});

/** Starts the packaged Worker on the storage of the last one. */
function start() {
  const packed = join(out, "packed");
  const wasm = readdirSync(packed).filter((name) => name.endsWith(".wasm"));
  assert.ok(wasm.length > 0, readdirSync(packed).join());
  worker = new Miniflare({
    modulesRoot: packed,
    modules: [
      { type: "ESModule", path: join(packed, "index.js") },
      ...wasm.map((name) => ({ type: "CompiledWasm", path: join(packed, name) })),
    ],
    compatibilityDate,
    durableObjects: { RATE_LIMITER: { className: "RateLimiterDO", useSQLite: true } },
    durableObjectsPersist: join(out, "data"),
    bindings: { TOKENS },
    cf: false,
  });
  return worker.ready;
}

const get = (path, headers = {}) => worker.dispatchFetch(`http://worker${path}`, { headers });
const as = (token) => ({ authorization: `Bearer ${token}` });

/** Opens a WebSocket whose messages can be awaited one by one. */
async function open(token) {
  const response = await get("/chat", { upgrade: "websocket", ...as(token) });
  assert.equal(response.status, 101);
  const socket = response.webSocket;
  const waiting = [];
  socket.addEventListener("message", ({ data }) => waiting.shift()(JSON.parse(data)));
  socket.accept();
  const send = (message) => new Promise((resolve) => { waiting.push(resolve); socket.send(message); });
  return { send, say: (type) => send(JSON.stringify({ type })), close: () => socket.close() };
}

test("the route has a limit per caller, with the time to retry in seconds", async () => {
  for (let remaining = 4; remaining >= 0; remaining -= 1) {
    assert.deepEqual(await (await get("/report", as("a1"))).json(), { client: "caller ann", remaining });
  }
  const denied = await get("/report", as("a1"));
  assert.equal(denied.status, 429);
  assert.match(denied.headers.get("retry-after"), /^([6-9]\d|100)$/);
  await denied.text();
  assert.equal((await (await get("/report", as("b1"))).json()).remaining, 4);
});

test("headers that a client chooses do not change who it is", async () => {
  const address = (ip, rest) => get("/report", { "cf-connecting-ip": ip, ...rest }).then((response) => response.json());
  const first = await address("2001:db8::1", {});
  assert.deepEqual(first, { client: "address 2001:db8::", remaining: 4 });
  const headers = { "x-forwarded-for": "203.0.113.77", "x-real-ip": "203.0.113.78", "x-user": "bob" };
  assert.equal((await address("2001:db8::2", headers)).remaining, 3);
  assert.equal((await address("203.0.113.9", {})).remaining, 4);
  for (const authorization of ["Bearer wrong", "Bearer ", "Basic a1", "constructor"]) {
    const response = await get("/report", { authorization });
    assert.equal(response.status, 401, authorization);
    await response.text();
  }
});

test("two sockets of one caller share a limit per type, and get error frames", async () => {
  const [one, two, other] = [await open("a1"), await open("a1"), await open("b1")];
  assert.deepEqual(await one.say("SAY"), { type: "DONE", payload: { type: "SAY" } });
  // Binary messages count like texts.
  const binary = await two.send(new TextEncoder().encode('{"type":"SAY"}'));
  assert.deepEqual(binary, { type: "DONE", payload: { type: "SAY" } });
  for (const socket of [one, two]) assert.equal((await socket.say("SAY")).type, "DONE");
  const { type, payload } = await one.say("SAY");
  assert.deepEqual([type, payload.code, payload.retryable], ["ERROR", "RESOURCE_EXHAUSTED", true]);
  assert.ok(payload.retryAfterMs > 60_000 && payload.retryAfterMs <= 100_000);
  assert.equal((await two.say("SAY")).payload.code, "RESOURCE_EXHAUSTED");
  assert.equal((await two.say("PING")).type, "DONE", "another type");
  assert.equal((await other.say("SAY")).type, "DONE", "another caller");
  // Invented types and broken messages share one bucket.
  for (const type of ["x1", "x2", "x3"]) assert.equal((await one.say(type)).type, "DONE");
  assert.equal((await two.send("{")).payload.code, "PARSE_ERROR");
  assert.equal((await two.send("{")).payload.code, "RESOURCE_EXHAUSTED");
  assert.equal((await one.say("x4")).payload.code, "RESOURCE_EXHAUSTED");
  for (const socket of [one, two, other]) socket.close();
});

test("what was spent survives a restart", async () => {
  await worker.dispose();
  await start();
  const denied = await get("/report", as("a1"));
  assert.equal(denied.status, 429);
  await denied.text();
  const socket = await open("a1");
  assert.equal((await socket.say("SAY")).payload.code, "RESOURCE_EXHAUSTED");
  socket.close();
});

test("other paths and plain requests to the socket are refused", async () => {
  for (const [path, status] of [["/", 404], ["/chat", 426]]) {
    const response = await get(path);
    assert.equal(response.status, status);
    await response.text();
  }
});
