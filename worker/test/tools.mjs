// Finds the packages that the tests run, and bundles TypeScript with them.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const workerDir = resolve(dirname(process.env.TIDEGATE_WORKER_TEST ?? fileURLToPath(import.meta.url)), "..");
export const rootDir = resolve(workerDir, "..");

/** The `node_modules` with workerd, wrangler and esbuild. */
export const packages = find();

function find() {
  const candidates = [process.env.TIDEGATE_NODE_MODULES, join(workerDir, "node_modules"), join(rootDir, "node_modules")];
  for (const candidate of candidates) if (candidate && existsSync(join(candidate, "workerd"))) return resolve(candidate);
  throw new Error("workerd is not installed: run `npm install` in worker/, or set TIDEGATE_NODE_MODULES");
}

/** The path of an installed command. */
export const command = (name) => join(packages, ".bin", name);

/** The runtime itself: the command of its package is a script that would survive its end. */
export const workerd = join(packages, `@cloudflare/workerd-${process.platform}-${process.arch === "x64" ? "64" : process.arch}/bin/workerd`);

/** Loads an installed package. */
export const load = createRequire(join(packages, "x.js"));

/** Bundles an entry point for the runtime; the wasm module stays a module of its own. */
export async function bundle(entry, outfile, wasm = join(workerDir, "src/shard.wasm")) {
  const { build } = load("esbuild");
  const keepWasm = {
    name: "wasm",
    setup(build) {
      build.onResolve({ filter: /\.wasm$/ }, () => ({ path: "./shard.wasm", external: true }));
    },
  };
  await build({ entryPoints: [entry], outfile, bundle: true, format: "esm", target: "es2022", plugins: [keepWasm], logLevel: "error" });
  return { script: outfile, wasm };
}
