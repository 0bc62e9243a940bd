/** The real programs behind the limiters. A program that is missing is an error, not a reason to skip. */
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { Miniflare } from "miniflare";

import type { ObjectNamespace } from "../src/durable-objects.js";

/** The folder of the package; this file runs from `build/test`. */
export const PACKAGE = new URL("../../", import.meta.url);
export const REPOSITORY = new URL("../../", PACKAGE);

/** A server that runs until it is closed. */
export interface Server {
  readonly url: string;
  close(): Promise<void>;
}

/** Starts the program on free ports, with its store in memory. */
export async function startServer(): Promise<Server> {
  const child = spawn(program(), [
    "serve",
    ...["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0"],
    ...["--database", "none"],
  ], { stdio: ["ignore", "pipe", "ignore"], cwd: fileURLToPath(PACKAGE) });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  for await (const line of createInterface({ input: child.stdout })) {
    if (!line.startsWith("http://")) continue;
    child.stdout.resume();
    const close = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    return { url: line.trim(), close };
  }
  throw new Error("the server ended before it listened");
}

function program(): string {
  const given = process.env["TIDEGATE_PROGRAM"];
  const built = ["debug", "release"].map((profile) =>
    fileURLToPath(new URL(`target/${profile}/tidegate`, REPOSITORY)),
  );
  const found = given ?? built.find((path) => existsSync(path));
  if (found === undefined) throw new Error("no program to test; run: cargo build");
  return found;
}

export type WorkerdResponse = Awaited<ReturnType<Miniflare["dispatchFetch"]>>;

/** The Worker runtime with the class of this package and a Worker that uses its memory limiter. */
export interface Workerd {
  readonly namespace: ObjectNamespace;
  /** Sends a request to the Worker. */
  fetch(path: string, headers?: Record<string, string>): Promise<WorkerdResponse>;
  close(): Promise<void>;
}

const WORKER = `
  import { memoryRateLimiter, durableObjectRateLimiter, rateLimit } from "tidegate";
  export { RateLimiterDO } from "tidegate/durable-object";
  const memory = memoryRateLimiter({ capacity: 2, tokensPerSecond: 0.1 });
  export default {
    async fetch(request, env) {
      const shared = durableObjectRateLimiter(env.RATE_LIMITER, { capacity: 2, tokensPerSecond: 0.1, prefix: "route:" });
      const { pathname } = new URL(request.url);
      const limiter = pathname === "/memory" ? memory : shared;
      return Response.json(await limiter.consume("client", 1));
    },
  };
`;

let workers = 0;

/** Bundles a Worker from the built package as its users do, and starts it. `bindings` are texts. */
export async function startWorkerd(worker = WORKER, bindings: Record<string, string> = {}): Promise<Workerd> {
  workers += 1;
  const folder = fileURLToPath(new URL(`build/worker-${process.pid}-${workers}/`, PACKAGE));
  await build({
    stdin: { contents: worker, resolveDir: fileURLToPath(PACKAGE), sourcefile: "worker.js" },
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    loader: { ".wasm": "copy" },
    assetNames: "[name]",
    external: ["cloudflare:*"],
    outfile: `${folder}index.js`,
    logLevel: "warning",
  });
  const runtime = new Miniflare({
    modulesRoot: folder,
    modules: [
      { type: "ESModule", path: `${folder}index.js` },
      ...readdirSync(folder)
        .filter((name) => name.endsWith(".wasm"))
        .map((name) => ({ type: "CompiledWasm" as const, path: folder + name })),
    ],
    compatibilityDate: "2026-04-01",
    bindings,
    durableObjects: { RATE_LIMITER: { className: "RateLimiterDO", useSQLite: true } },
    cf: false,
  });
  const namespace = (await runtime.getDurableObjectNamespace("RATE_LIMITER")) as unknown as ObjectNamespace;
  return {
    namespace,
    fetch: (path, headers = {}) => runtime.dispatchFetch(`http://worker${path}`, { headers }),
    close: () => runtime.dispose(),
  };
}
