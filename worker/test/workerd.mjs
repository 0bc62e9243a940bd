// A real workerd with the Worker, on a free port.
import { spawn } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundle, workerd, workerDir } from "./tools.mjs";

export const SECRET = "correct horse";

/** The time at which the tests with a manual clock start, in milliseconds. */
export const T0 = 1_800_000_000_000;

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/**
 * Starts workerd. `bindings` are texts; `entry` replaces the Worker, `wasm` the module.
 * @param {{ bindings?: Record<string, string | undefined>, entry?: string, wasm?: string, script?: string }} options
 */
export async function startWorker({ bindings = {}, entry = join(workerDir, "src/index.ts"), wasm, script } = {}) {
  const dir = mkdtempSync(join(tmpdir(), "tidegate-worker-"));
  mkdirSync(join(dir, "data"));
  const bundled = script ? { script, wasm: wasm ?? join(workerDir, "src/shard.wasm") } : await bundle(entry, join(dir, "bundle.js"), wasm);
  if (bundled.script !== join(dir, "bundle.js")) copyFileSync(bundled.script, join(dir, "bundle.js"));
  copyFileSync(bundled.wasm, join(dir, "shard.wasm"));
  const texts = { TIDEGATE_SECRET: SECRET, ...bindings };
  const port = await freePort();
  const bound = Object.entries(texts)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `, (name = ${JSON.stringify(name)}, text = ${JSON.stringify(value)})`);
  writeFileSync(join(dir, "config.capnp"), config(port, bound.join("")));
  const worker = new Worker(dir, port);
  await worker.start();
  return worker;
}

function config(port, bindings) {
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .w), (name = "store", disk = (path = "data", writable = true)) ],
  sockets = [ (name = "http", address = "127.0.0.1:${port}", http = (), service = "main") ] );
const w :Workerd.Worker = (
  modules = [ (name = "worker.js", esModule = embed "bundle.js"), (name = "shard.wasm", wasm = embed "shard.wasm") ],
  compatibilityDate = "2026-01-01",
  durableObjectNamespaces = [ (className = "RateLimiterDO", uniqueKey = "rate-limiter", enableSql = true) ],
  durableObjectStorage = (localDisk = "store"),
  bindings = [ (name = "RATE_LIMITER", durableObjectNamespace = "RateLimiterDO")${bindings} ] );
`;
}

class Worker {
  constructor(dir, port) {
    this.dir = dir;
    this.url = `http://127.0.0.1:${port}`;
    this.log = "";
  }

  async start() {
    this.child = spawn(workerd, ["serve", "config.capnp"], { cwd: this.dir, stdio: ["ignore", "pipe", "pipe"] });
    this.exited = new Promise((done) => this.child.once("exit", done));
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on("data", (chunk) => (this.log += chunk));
    const deadline = Date.now() + 15_000;
    for (;;) {
      try {
        if ((await fetch(`${this.url}/healthz`)).ok) return;
      } catch {
        if (Date.now() > deadline || this.child.exitCode !== null) throw new Error(`workerd did not start:\n${this.log}`);
        await new Promise((done) => setTimeout(done, 20));
      }
    }
  }

  /** Ends workerd, by SIGKILL unless told otherwise, and starts it again on the same storage. */
  async restart(signal = "SIGKILL") {
    this.child.kill(signal);
    await this.exited;
    await this.start();
  }

  async stop() {
    this.child.kill("SIGKILL");
    await this.exited;
    rmSync(this.dir, { recursive: true, force: true });
  }

  /** Sends a POST with the secret; `now` in milliseconds is the time of the request. */
  async post(path, body, { now, headers = {} } = {}) {
    const all = { authorization: `Bearer ${SECRET}`, ...headers };
    if (now !== undefined) all["x-tidegate-now-ns"] = `${BigInt(now) * 1_000_000n}`;
    const text = typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
    const response = await fetch(this.url + path, { method: "POST", headers: all, body: text });
    const answer = await response.text();
    return { status: response.status, type: response.headers.get("content-type"), text: answer, json: response.ok ? JSON.parse(answer) : undefined };
  }

  consume(key, options = {}) {
    const { cost = 1, capacity = 10, tokensPerSecond = 1, now } = options;
    return this.post("/consume", { key, cost, capacity, tokensPerSecond }, { now });
  }
}
