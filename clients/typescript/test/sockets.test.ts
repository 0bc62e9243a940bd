/** The middleware and the gate on real sockets: a plain `ws` server, and WebSocketPair on workerd. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import WebSocket, { WebSocketServer } from "ws";

import { type LimitExceededInfo, memoryRateLimiter, messageGate, rateLimit, type RateLimitOptions } from "../src/index.js";
import { startWorkerd } from "./backends.js";

const SLOW = { capacity: 2, tokensPerSecond: 0.001 };

interface Client {
  readonly socket: WebSocket;
  /** Sends messages one after the other, and returns the codes of the replies. */
  exchange(...messages: string[]): Promise<string[]>;
}

/** Runs a server with one limit while `use` connects to it. */
async function serve(
  options: Partial<RateLimitOptions>,
  use: (connect: () => Promise<Client>, seen: { hooks: LimitExceededInfo[]; handled: string[]; failures: unknown[] }) => Promise<void>,
): Promise<void> {
  const seen = { hooks: [] as LimitExceededInfo[], handled: [] as string[], failures: [] as unknown[] };
  const onLimitExceeded = (info: LimitExceededInfo) => seen.hooks.push(info);
  const gate = messageGate({
    types: ["PING", "SAY"],
    middleware: [rateLimit({ limiter: memoryRateLimiter(SLOW), onLimitExceeded, ...options })],
    onMessage: (ctx, message) => {
      seen.handled.push(message.type);
      ctx.ws.send(JSON.stringify({ payload: { code: "DONE" } }));
    },
  });
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  let connections = 0;
  server.on("connection", (socket, request) => {
    connections += 1;
    const connection = { id: `c${connections}`, ip: request.socket.remoteAddress, data: {} };
    socket.on("message", (raw) => gate.handle(socket, raw, connection).catch((error) => {
      seen.failures.push(error);
      socket.close(1011);
    }));
  });
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  try {
    await use(async () => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}`);
      await once(socket, "open");
      const exchange = async (...messages: string[]) => {
        const codes: string[] = [];
        for (const message of messages) {
          const reply = once(socket, "message");
          socket.send(message);
          codes.push(JSON.parse(String((await reply)[0])).payload.code);
        }
        return codes;
      };
      return { socket, exchange };
    }, seen);
  } finally {
    for (const client of server.clients) client.terminate();
    server.close();
  }
}

const PING = '{"type":"PING"}';

test("send: frames on the limit, shared by the connections of an address, and the socket stays open", async () => {
  await serve({}, async (connect, seen) => {
    const [one, two] = [await connect(), await connect()];
    assert.deepEqual(await one.exchange(PING), ["DONE"]);
    assert.deepEqual(await two.exchange(PING, PING), ["DONE", "RESOURCE_EXHAUSTED"]);
    assert.deepEqual(await one.exchange(PING, '{"type":"SAY"}'), ["RESOURCE_EXHAUSTED", "DONE"]);
    assert.deepEqual(seen.hooks.map((info) => info.clientId), ["c2", "c1"]);
    assert.deepEqual(seen.handled, ["PING", "PING", "SAY"]);
    assert.equal(one.socket.readyState, WebSocket.OPEN);
  });
});

test("unknown types and unreadable messages share a bucket", async () => {
  await serve({}, async (connect, seen) => {
    const client = await connect();
    assert.deepEqual(await client.exchange('{"type":"x1"}', "{"), ["DONE", "PARSE_ERROR"]);
    for (const message of ['{"type":"x2"}', "[]", "null", '{"type":7}', "\u0000", '{"type":"constructor"}']) {
      assert.deepEqual(await client.exchange(message), ["RESOURCE_EXHAUSTED"], message);
    }
    assert.deepEqual(await client.exchange(PING), ["DONE"]);
    assert.deepEqual([seen.hooks.length, seen.failures], [6, []]);
  });
});

test("binary messages are read, and those that are no UTF-8 cannot be", async () => {
  await serve({}, async (connect) => {
    const { socket } = await connect();
    for (const [bytes, code] of [[Buffer.from(PING), "DONE"], [Buffer.from([0xff, 0xfe]), "PARSE_ERROR"]] as const) {
      const reply = once(socket, "message");
      socket.send(bytes);
      assert.equal(JSON.parse(String((await reply)[0])).payload.code, code);
    }
  });
});

const CODES = [1_000, 1_003, 1_007, 1_014, 3_000, 4_999].map((code) => [code, code] as const);
for (const [closeCode, expected] of [[undefined, 1_013] as const, ...CODES]) {
  test(`close: the connection ends with ${expected}, others stay`, async () => {
    await serve({ onExceeded: "close", ...(closeCode === undefined ? {} : { closeCode }) }, async (connect, seen) => {
      const [one, two] = [await connect(), await connect()];
      await one.exchange(PING, PING);
      const closed = once(one.socket, "close");
      const messages: unknown[] = [];
      one.socket.on("message", (message) => messages.push(message));
      one.socket.send(PING);
      const [code, reason] = await closed;
      assert.deepEqual([code, String(reason), messages], [expected, "Rate limit exceeded", []]);
      assert.equal(seen.hooks.length, 1);
      assert.deepEqual(await two.exchange('{"type":"SAY"}'), ["DONE"]);
    });
  });
}

test("custom: nothing is sent or closed, the hook acts", async () => {
  await serve({ onExceeded: "custom" }, async (connect, seen) => {
    const client = await connect();
    await client.exchange(PING, PING);
    client.socket.send(PING);
    client.socket.send(PING);
    // The next reply is that of the message after them.
    assert.deepEqual(await client.exchange('{"type":"SAY"}'), ["DONE"]);
    assert.deepEqual(seen.hooks.map((info) => [info.observed, info.limit]), [[1, 2], [1, 2]]);
    assert.equal(seen.handled.length, 3);
  });
});

test("a failing limiter reaches the application, and the message is not handled", async () => {
  const limiter = { getPolicy: () => SLOW, consume: () => Promise.reject(new Error("away")) };
  await serve({ limiter }, async (connect, seen) => {
    const { socket } = await connect();
    const closed = once(socket, "close");
    socket.send(PING);
    assert.equal((await closed)[0], 1011);
    assert.deepEqual([seen.handled, seen.hooks, seen.failures.map(String)], [[], [], ["Error: away"]]);
  });
});

const WORKER = `
  import { memoryRateLimiter, messageGate, rateLimit } from "tidegate";
  const limit = (onExceeded) => messageGate({
    types: ["PING"],
    middleware: [rateLimit({ limiter: memoryRateLimiter({ capacity: 2, tokensPerSecond: 0.001 }), onExceeded })],
    onMessage: (ctx) => ctx.ws.send("done"),
  });
  const gates = {};
  export class RateLimiterDO { constructor() {} }
  export default {
    fetch(request) {
      const how = new URL(request.url).pathname.slice(1);
      const gate = (gates[how] ??= limit(how));
      const { 0: client, 1: server } = new WebSocketPair();
      const connection = { id: "c", ip: "203.0.113.9", data: {} };
      server.addEventListener("message", ({ data }) => gate.handle(server, data, connection));
      server.accept();
      return new Response(null, { status: 101, webSocket: client });
    },
  };
`;

test("the gate limits a WebSocketPair on workerd: send and close", async () => {
  const worker = await startWorkerd(WORKER);
  try {
    for (const how of ["send", "close"]) {
      const { webSocket: socket } = await worker.fetch(`/${how}`, { upgrade: "websocket" });
      assert.ok(socket);
      const events: string[] = [];
      const ended = new Promise<void>((resolve) => {
        socket.addEventListener("message", ({ data }: any) => {
          events.push(data === "done" ? data : JSON.parse(data).payload.code);
          if (events.length === 3) resolve();
        });
        socket.addEventListener("close", ({ code, reason }: any) => {
          events.push(`${code} ${reason}`);
          resolve();
        });
      });
      socket.accept();
      // Arrives as a Blob, which is read later than the texts after it arrive.
      socket.send(new TextEncoder().encode(PING));
      for (let index = 0; index < 2; index += 1) socket.send(PING);
      await ended;
      const last = how === "send" ? "RESOURCE_EXHAUSTED" : "1013 Rate limit exceeded";
      assert.deepEqual(events, ["done", "done", last]);
      if (how === "send") socket.close();
    }
  } finally {
    await worker.close();
  }
});
