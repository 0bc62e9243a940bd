// Builds the package, compiles the tests and runs them with Node's runner.
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
rmSync(new URL("build", root), { recursive: true, force: true });
await import("./build.mjs");
const tsc = fileURLToPath(new URL("node_modules/.bin/tsc", root));
execFileSync(tsc, ["-p", ".", "--noEmit", "false", "--outDir", "build"], {
  cwd: root,
  stdio: ["ignore", "inherit", "inherit"],
});
mkdirSync(new URL("build/src", root), { recursive: true });
cpSync(new URL("src/bucket.wasm", root), new URL("build/src/bucket.wasm", root));
const folder = new URL("build/test/", root);
const only = process.argv.slice(2);
const files = readdirSync(folder).filter(
  (name) => name.endsWith(".test.js") && (only.length === 0 || only.some((part) => name.includes(part))),
);
const paths = files.map((name) => fileURLToPath(new URL(name, folder)));
const { status } = spawnSync(process.execPath, ["--test", "--test-reporter=tap", ...paths], {
  cwd: root,
  stdio: "inherit",
});
process.exit(status ?? 1);
