// Builds dist: the compiled sources with their types, and the class of the Worker in one file. Copies
// the licences, which npm takes from this folder only.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const run = (program, ...args) =>
  execFileSync(fileURLToPath(new URL(`node_modules/.bin/${program}`, root)), args, {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
  });

rmSync(new URL("dist", root), { recursive: true, force: true });
await import("./embed.mjs");
run("tsc", "-p", "tsconfig.build.json");
for (const file of ["bucket.wasm", "durable-object.d.ts"]) {
  copyFileSync(new URL(`src/${file}`, root), new URL(`dist/${file}`, root));
}
for (const file of ["LICENSE-APACHE", "LICENSE-MIT"]) {
  copyFileSync(new URL(`../../${file}`, root), new URL(file, root));
}
// The runtime provides modules with this prefix, and compiles the wasm file at its start.
run(
  "esbuild",
  "../../worker/src/durable-object.ts",
  "--bundle",
  "--format=esm",
  "--target=es2022",
  "--minify-whitespace",
  "--minify-syntax",
  "--outdir=dist",
  "--external:cloudflare:*",
  "--loader:.wasm=copy",
  "--asset-names=[name]",
  "--log-level=warning",
);
