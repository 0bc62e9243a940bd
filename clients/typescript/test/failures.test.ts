/** What the limiters with a backend make of its failures. The backends are real HTTP servers and responses. */
import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { test } from "node:test";
import { inspect } from "node:util";

import { durableObjectRateLimiter, memoryRateLimiter, type RateLimiterError, tidegateRateLimiter } from "../src/index.js";

const POLICY = { capacity: 10, tokensPerSecond: 0.5, prefix: "p:" };

/** Runs an HTTP server while `use` calls it. */
async function serve(listener: RequestListener, use: (url: string) => Promise<void>): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  try {
    await use(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
  } finally {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  }
}

async function body(request: IncomingMessage): Promise<unknown> {
  let text = "";
  for await (const chunk of request) text += chunk;
  return JSON.parse(text);
}

/** A namespace whose objects give one response. */
function namespace(respond: (name: string, init: { body: string }) => Response | Promise<Response>) {
  return {
    idFromName: (name: string) => name,
    get: (name: string) => ({ fetch: async (_url: string, init: { body: string }) => respond(name, init) }),
  };
}

const FAILURES: [number, string, string, RegExp][] = [
  [400, "Error: bad", "REJECTED", /status 400: Error: bad/],
  [404, "Not found", "REJECTED", /status 404: Not found/],
  [500, "x".repeat(1_000), "UNAVAILABLE", /status 500: x{200}\.\.\.$/],
  [503, "", "UNAVAILABLE", /status 503: $/],
  [200, "<html>", "MALFORMED_RESPONSE", /not a decision: <html>/],
  [200, "", "MALFORMED_RESPONSE", /not a decision: $/],
  ...["null", "[]", '{"allowed":true}', '{"allowed":"yes","remaining":1}', '{"allowed":true,"remaining":-1}', '{"allowed":true,"remaining":1.5}', '{"allowed":false,"remaining":0}'].map(
    (text): [number, string, string, RegExp] => [200, text, "MALFORMED_RESPONSE", /not a decision: /],
  ),
];

for (const [status, text, code, message] of FAILURES) {
  test(`status ${status} with ${JSON.stringify(text.slice(0, 50))} is ${code}`, async () => {
    const expected = { name: "RateLimiterError", code, status, message };
    const objects = durableObjectRateLimiter(namespace(() => new Response(text, { status })), POLICY);
    await assert.rejects(objects.consume("a", 1), expected);
    await serve((_, response) => response.writeHead(status).end(text), async (url) => {
      await assert.rejects(tidegateRateLimiter(url, POLICY).consume("a", 1), expected);
    });
  });
}

test("an admission with status 429 is no decision of the server", async () => {
  await serve((_, response) => response.writeHead(429).end('{"allowed":true,"remaining":1}'), async (url) => {
    await assert.rejects(tidegateRateLimiter(url, POLICY).consume("a", 1), { code: "MALFORMED_RESPONSE", status: 429 });
  });
});

test("no response in time is TIMEOUT, a closed port and a broken connection are UNAVAILABLE", async () => {
  let address = "";
  await serve(() => {}, async (url) => {
    address = url;
    await assert.rejects(tidegateRateLimiter(url, POLICY, { timeoutMs: 50 }).consume("a", 1), {
      code: "TIMEOUT",
      message: "no response within 50 ms",
    });
  });
  await assert.rejects(tidegateRateLimiter(address, POLICY).consume("a", 1), { code: "UNAVAILABLE", message: /ECONNREFUSED/ });
  await serve((request) => request.socket.destroy(), async (url) => {
    await assert.rejects(tidegateRateLimiter(url, POLICY).consume("a", 1), { code: "UNAVAILABLE" });
  });
  const broken = namespace(() => Promise.reject(new Error("reset")));
  await assert.rejects(durableObjectRateLimiter(broken, POLICY).consume("a", 1), (error: RateLimiterError) => {
    assert.deepEqual([error.code, error.status, String(error.cause)], ["UNAVAILABLE", undefined, "Error: reset"]);
    return true;
  });
});

test("whatever fails in an exchange with an object is a RateLimiterError", async () => {
  const reset = new Error("reset");
  const fail = () => {
    throw reset;
  };
  const cut = new ReadableStream({
    start: (stream) => stream.enqueue(new TextEncoder().encode('{"allowed":')),
    pull: (stream) => stream.error(reset),
  });
  const working = namespace(() => new Response());
  const namespaces = [
    namespace(() => new Response(cut)),
    { ...working, get: fail },
    { ...working, idFromName: fail },
    { ...working, get: () => undefined as never },
  ];
  for (const objects of namespaces) {
    await assert.rejects(durableObjectRateLimiter(objects, POLICY).consume("a", 1), {
      name: "RateLimiterError",
      code: "UNAVAILABLE",
      message: /^Durable Object failed: /,
    });
  }
});

test("the server gets the prefixed key and the policy, at a path below its URL", async () => {
  const seen: unknown[] = [];
  await serve(async (request, response) => {
    seen.push([request.method, request.url, request.headers.authorization, await body(request)]);
    response.end('{"allowed":true,"remaining":7}');
  }, async (url) => {
    const limiter = tidegateRateLimiter(`${url}/limits/`, POLICY, { token: "t" });
    assert.deepEqual(await limiter.consume("a:\u00fc", 3), { allowed: true, remaining: 7 });
  });
  const sent = { key: "p:a:\u00fc", cost: 3, policy: { capacity: 10, tokens_per_second: 0.5 } };
  assert.deepEqual(seen, [["POST", "/limits/v1/take", "Bearer t", sent]]);
});

test("keys go to the shards of their prefixed text, in the format of the proposal", async () => {
  const seen: string[] = [];
  const objects = namespace((name, { body }) => {
    seen.push(name, body);
    return Response.json({ allowed: true, remaining: 9 });
  });
  const policy = { capacity: 10, tokensPerSecond: 1 };
  await durableObjectRateLimiter(objects, policy).consume("user:1", 1);
  await durableObjectRateLimiter(objects, { ...policy, prefix: "user:" }).consume("2", 1);
  await durableObjectRateLimiter(objects, policy).consume("rl:public:anon:PING", 1);
  await durableObjectRateLimiter(objects, policy, { shards: 1 }).consume("user:1", 1);
  const names = seen.filter((_, index) => index % 2 === 0);
  assert.deepEqual(names, ["rate-limiter-75", "rate-limiter-94", "rate-limiter-60", "rate-limiter-0"]);
  assert.equal(seen[3], '{"key":"user:2","cost":1,"capacity":10,"tokensPerSecond":1}');
});

test("options are checked when the limiter is created", () => {
  const objects = namespace(() => new Response());
  for (const shards of [0, -5, 3.5, Number.NaN, null, 128n, "128"] as number[]) {
    assert.throws(() => durableObjectRateLimiter(objects, POLICY, { shards }), {
      code: "INVALID_OPTION",
      message: `shards must be a positive integer, got ${shards}`,
    });
  }
  for (const options of [null, 7] as unknown as object[]) {
    const expected = { code: "INVALID_OPTION", message: `options must be an object, got ${options}` };
    assert.throws(() => durableObjectRateLimiter(objects, POLICY, options), expected);
    assert.throws(() => tidegateRateLimiter("http://a", POLICY, options), expected);
    assert.throws(() => memoryRateLimiter(POLICY, options), expected);
  }
  assert.throws(() => durableObjectRateLimiter(undefined as unknown as typeof objects, POLICY), {
    code: "INVALID_OPTION",
    message: "namespace must have a method idFromName, got undefined",
  });
  for (const timeoutMs of [0, -1, 1_500.5, Number.NaN, Infinity, null, "5", 5n] as number[]) {
    assert.throws(() => tidegateRateLimiter("http://a", POLICY, { timeoutMs }), {
      code: "INVALID_OPTION",
      message: `timeoutMs must be a positive integer, got ${timeoutMs}`,
    });
  }
  assert.throws(() => tidegateRateLimiter("http://a", POLICY, { timeoutMs: 2_147_483_648 }), {
    code: "INVALID_OPTION",
    message: "timeoutMs must be at most 2147483647, got 2147483648",
  });
});

test("a URL or a token that cannot be used is refused when the limiter is created, without quoting it", () => {
  const secret = "s3cret";
  const refuses = (url: string, token: string | undefined, message: RegExp) => {
    assert.throws(() => tidegateRateLimiter(url, POLICY, token === undefined ? {} : { token }), (error: RateLimiterError) => {
      assert.equal(error.code, "INVALID_OPTION");
      assert.match(error.message, message);
      assert.equal(inspect(error, { depth: 9, showHidden: true }).includes(secret), false, inspect(error));
      return true;
    });
  };
  const urls = [`nowhere ${secret}`, `http://ann:${secret}@a b`, `ftp://${secret}`, `${secret}:1`, `//${secret}`, ""];
  for (const url of urls) refuses(url, undefined, /^url must be one of http or https, such as /);
  for (const url of [`http://ann:${secret}@a`, `https://${secret}@a`, `http://:${secret}@a/b`]) {
    refuses(url, undefined, /^url must not have a user or a password/);
  }
  const tokens = [`${secret}\n`, `${secret}\r\nx: y`, `${secret}\u0000`, `${secret}\u00fc`, `${secret}\u{1f600}`, `a ${secret}`, "", null, 7];
  for (const token of tokens) refuses("http://a", token as string, /^token must have visible ASCII characters only/);
});
