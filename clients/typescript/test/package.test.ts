/** The package as its users get it: packed, installed, type-checked and run, with every example of the README. */
import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { build } from "esbuild";
import WebSocket from "ws";

import { PACKAGE, startServer, startWorkerd } from "./backends.js";

const run = promisify(execFile);
const path = (name: string, base: URL = PACKAGE) => fileURLToPath(new URL(name, base));
const TOOLS = path("node_modules");
/** A folder of a program that uses the package. */
const HOME = new URL("build/consumer/", PACKAGE);
const home = (name = "") => path(name, HOME);
const manifest = JSON.parse(readFileSync(path("package.json"), "utf8"));
const MAX_PACKAGE = 165_000;
const MAX_LIBRARY = 60_000;

/** The code of the README by the heading above it, in the languages that run. */
function examples(): Map<string, { language: string; code: string }> {
  const found = new Map<string, { language: string; code: string }>();
  let heading = "";
  for (const part of readFileSync(path("README.md"), "utf8").matchAll(/^## (.*)$|^```(ts|js)\n([^]*?)^```$/gm)) {
    if (part[1] !== undefined) heading = part[1];
    else {
      assert.equal(found.has(heading), false, `two examples below ${heading}`);
      found.set(heading, { language: part[2]!, code: part[3]! });
    }
  }
  return found;
}

const all = examples();
const file = (heading: string) => `${heading.toLowerCase().replaceAll(" ", "-")}.${all.get(heading)!.language}`;
const compiled = (heading: string) => home(`out/${file(heading).replace(/ts$/, "js")}`);

before(async () => {
  rmSync(HOME, { recursive: true, force: true });
  mkdirSync(home("node_modules/@types"), { recursive: true });
  writeFileSync(home("package.json"), '{ "type": "module", "private": true }');
  // The folder was built before the tests.
  await run("npm", ["pack", "--ignore-scripts", "--silent", "--pack-destination", home()], { cwd: path("") });
  const archive = `${manifest.name}-${manifest.version}.tgz`;
  await run("npm", ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", `./${archive}`], { cwd: home() });
  for (const name of ["ws", "@types/ws", "@types/node", "undici-types"]) {
    mkdirSync(home("node_modules/@types"), { recursive: true });
    symlinkSync(`${TOOLS}/${name}`, home(`node_modules/${name}`));
  }
  const exports = Object.keys(manifest.exports).filter((name) => !name.endsWith("package.json"));
  const lines = exports.map((name, at) => `import * as m${at} from "${manifest.name}${name.slice(1)}";`);
  const uses = exports.map((_, at) => `m${at}`).join(", ");
  writeFileSync(home("imports.ts"), `${lines.join("\n")}\nexport const modules: object[] = [${uses}];\n`);
  const ports = await freePorts(2);
  for (const [heading, { code }] of all) {
    const port = heading === "On Bun" ? ports[1] : ports[0];
    writeFileSync(home(file(heading)), heading === "Over a server" ? code : code.replace("port: 8080", `port: ${port}`));
  }
  sockets = { ws: ports[0]!, bun: ports[1]! };
});

let sockets: { ws: number; bun: number };

async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer());
  await Promise.all(servers.map((server) => new Promise<void>((done) => server.listen(0, "127.0.0.1", done))));
  const ports = servers.map((server) => (server.address() as { port: number }).port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

async function compile(resolution: string): Promise<void> {
  const config = {
    compilerOptions: {
      target: "es2022", lib: ["es2022", "dom"], strict: true, exactOptionalPropertyTypes: true, types: ["node"],
      module: resolution === "bundler" ? "esnext" : resolution, moduleResolution: resolution, rootDir: ".", outDir: "out",
    },
    include: ["*.ts"],
  };
  writeFileSync(home(`tsconfig.${resolution}.json`), JSON.stringify(config));
  await run(`${TOOLS}/.bin/tsc`, ["-p", `tsconfig.${resolution}.json`], { cwd: home() }).catch((error) =>
    assert.fail(`${error.stdout}${error.stderr}`),
  );
}

test("the package has what its manifest names, and the licences", () => {
  const installed = new URL(`node_modules/${manifest.name}/`, HOME);
  const files = Object.values(manifest.exports).flatMap(function list(value): string[] {
    return typeof value === "string" ? [value] : Object.values(value as object).flatMap(list);
  });
  for (const name of [...files, "README.md", "LICENSE-APACHE", "LICENSE-MIT"]) {
    assert.ok(existsSync(new URL(name, installed)), name);
  }
  for (const name of ["src", "test", "build"]) assert.equal(existsSync(new URL(name, installed)), false, name);
});

test("its size is bounded", async () => {
  const { stdout } = await run(process.execPath, ["scripts/size.mjs"], { cwd: path("") });
  console.log(stdout.trim());
  const size = JSON.parse(stdout);
  assert.ok(size.library <= MAX_LIBRARY && size.package <= MAX_PACKAGE, stdout);
});

for (const resolution of ["bundler", "nodenext"]) {
  test(`all entries and examples compile, resolved as ${resolution}`, () => compile(resolution));
}

const MIDDLEWARE = ["clientAddress", "joinKey", "keyPerUserOrIpPerType", "keyPerUserPerType", "messageGate", "perUserKey", "rateLimit"];

/** Whatever else an entry exported would be used, and could not change any more. */
const ENTRIES: Record<string, string[]> = {
  ".": ["RateLimiterError", "durableObjectRateLimiter", "memoryRateLimiter", "tidegateRateLimiter", ...MIDDLEWARE],
  "./memory": ["memoryRateLimiter"],
  "./durable-objects": ["durableObjectRateLimiter"],
  "./durable-object": ["RateLimiterDO"],
  "./server": ["tidegateRateLimiter"],
  "./middleware": MIDDLEWARE,
};

test("every entry exports what it is documented to, in Node and in Workers", async () => {
  const { "./package.json": _, ...entries } = manifest.exports as Record<string, any>;
  assert.deepEqual(Object.keys(entries), Object.keys(ENTRIES));
  for (const [entry, targets] of Object.entries(entries)) {
    // The bundler reads what an entry exports without the runtime that it needs.
    for (const file of [targets.default, targets.workerd?.default].filter(Boolean)) {
      const entryPoint = path(`node_modules/${manifest.name}/${file}`, HOME);
      const { metafile } = await build({
        entryPoints: [entryPoint],
        bundle: true,
        format: "esm",
        write: false,
        metafile: true,
        outfile: "out.js",
        external: ["*.wasm", "cloudflare:*"],
        logLevel: "silent",
      });
      const { exports } = Object.values(metafile.outputs).find((output) => output.entryPoint !== undefined)!;
      assert.deepEqual(exports.sort(), [...ENTRIES[entry]!].sort(), `${entry}: ${file}`);
    }
  }
});

test("all entries can be imported", async () => {
  // The class of the Worker needs the runtime; contract.test.ts runs it there.
  const names = Object.keys(ENTRIES).filter((name) => name !== "./durable-object");
  const code = names.map((name) => `console.log(JSON.stringify(Object.keys(await import("${manifest.name}${name.slice(1)}"))));`);
  writeFileSync(home("imports.mjs"), code.join("\n"));
  const { stdout } = await run(process.execPath, ["imports.mjs"], { cwd: home() });
  const imported = stdout.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(imported, names.map((name) => [...ENTRIES[name]!].sort()));
});

describe("the examples of the README", () => {
  const children: ChildProcess[] = [];
  after(() => children.forEach((child) => child.kill()));

  test("are all tested here", () => {
    const tested = ["In memory", "Tests with a clock", "On Workers", "Over a server", "Messages of a WebSocket", "On Bun"];
    assert.deepEqual([...all.keys()], tested);
  });

  /** Runs an example and compares what it prints with its comments. With a real clock, hints are lower. */
  async function prints(heading: string, slackMs = 0, edit = (code: string) => code): Promise<void> {
    const expected = [...all.get(heading)!.code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map((line) => line[1]);
    writeFileSync(compiled(heading), edit(readFileSync(compiled(heading), "utf8")));
    const { stdout } = await run(process.execPath, [compiled(heading)]);
    const hint = /retryAfterMs: (\d+)/;
    stdout.trim().split("\n").forEach((line, at) => {
      const late = Number(hint.exec(expected[at] ?? "")?.[1]) - Number(hint.exec(line)?.[1]);
      const same = late >= 0 && late <= slackMs ? expected[at] : line;
      assert.equal(same, expected[at]);
    });
    assert.equal(stdout.trim().split("\n").length, expected.length);
  }

  test("in memory", () => prints("In memory", 5_000));
  test("with a clock", () => prints("Tests with a clock"));
  test("over a server", async () => {
    const server = await startServer();
    try {
      await prints("Over a server", 0, (code) => code.replace("http://127.0.0.1:8080", server.url));
    } finally {
      await server.close();
    }
  });

  test("on Workers", async () => {
    const worker = await startWorkerd(readFileSync(compiled("On Workers"), "utf8"));
    try {
      const get = async () => {
        const response = await worker.fetch("/");
        return [response.status, await response.text()];
      };
      for (let index = 0; index < 5; index += 1) assert.deepEqual(await get(), [200, "hello"]);
      assert.deepEqual(await get(), [429, "Too many requests"]);
    } finally {
      await worker.close();
    }
  });

  /** Starts a server and sends messages on two connections of one address. */
  async function flood(program: string, script: string, port: number): Promise<[number, number]> {
    children.push(spawn(program, [script], { cwd: home(), stdio: ["ignore", "ignore", "inherit"] }));
    const clients = [await connect(port), await connect(port)];
    const replies = clients.map((client) => receive(client, 6));
    for (const client of clients) for (let index = 0; index < 6; index += 1) client.send('{"type":"SAY"}');
    const frames = (await Promise.all(replies)).flat();
    clients.forEach((client) => client.terminate());
    const denied = frames.filter((frame) => frame.payload.code === "RESOURCE_EXHAUSTED");
    return [frames.filter((frame) => frame.type === "DONE").length, denied.length];
  }

  test("with a plain ws server", async () => {
    assert.deepEqual(await flood(process.execPath, compiled("Messages of a WebSocket"), sockets.ws), [8, 4]);
  });

  test("on Bun", async () => {
    const platform = process.arch === "arm64" ? "linux-aarch64" : "linux-x64-baseline";
    const bun = `${TOOLS}/@oven/bun-${platform}/bin/bun`;
    assert.deepEqual(await flood(bun, home(file("On Bun")), sockets.bun), [8, 4]);
  });
});

/** Connects as soon as the server listens. */
async function connect(port: number): Promise<WebSocket> {
  for (let tries = 0; ; tries += 1) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}`);
    const error = await new Promise<Error | undefined>((resolve) => {
      socket.once("open", () => resolve(undefined));
      socket.once("error", resolve);
    });
    if (error === undefined) return socket;
    if (tries === 600) throw error;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function receive(socket: WebSocket, count: number): Promise<any[]> {
  const frames: any[] = [];
  return new Promise((resolve, reject) => {
    socket.once("close", () => reject(new Error("closed")));
    socket.on("message", (raw) => {
      frames.push(JSON.parse(String(raw)));
      if (frames.length === count) resolve(frames);
    });
  });
}
