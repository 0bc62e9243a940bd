// Prints the size of the package as npm packs it: a gzipped archive of package.json, README.md and
// dist. `library` is without the class of the Worker and its wasm, which only Workers load.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const root = new URL("../", import.meta.url);
const dist = readdirSync(new URL("dist/", root)).map((name) => `dist/${name}`);
const files = ["package.json", "README.md", ...dist];
const isShard = (name) => /durable-object\.js$|shard\.wasm$/.test(name);
const bytes = (names) => Buffer.concat(names.map((name) => readFileSync(new URL(name, root))));
const size = (names) => gzipSync(bytes(names), { level: 9 }).length;

const report = { package: size(files), library: size(files.filter((name) => !isShard(name))) };
console.log(JSON.stringify({ unit: "bytes, gzip", ...report, bucketWasm: size(["dist/bucket.wasm"]) }));
