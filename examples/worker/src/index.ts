// A Worker that limits a route and the messages of a WebSocket. See README.md.
import { durableObjectRateLimiter, joinKey, messageGate, rateLimit, RateLimiterError } from "tidegate";

import { identify } from "./identity";

export { RateLimiterDO } from "tidegate/durable-object";

export interface Env {
  RATE_LIMITER: DurableObjectNamespace;
  /** JSON object: the SHA-256 of a caller's token, in hexadecimal, to the caller's name. */
  TOKENS?: string;
}

const ROUTE = { capacity: 5, tokensPerSecond: 0.01, prefix: "route:" };
const MESSAGES = { capacity: 4, tokensPerSecond: 0.01, prefix: "messages:" };

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const client = await identify(request, env.TOKENS);
    if (client === undefined) return new Response("Unknown token\n", { status: 401 });
    const { pathname } = new URL(request.url);
    if (pathname === "/report") return report(env, client);
    if (pathname === "/chat") return chat(request, env, client);
    return new Response("Not found\n", { status: 404 });
  },
};

/** A route with a limit per client. */
async function report(env: Env, client: string): Promise<Response> {
  const limiter = durableObjectRateLimiter(env.RATE_LIMITER, ROUTE);
  try {
    const decision = await limiter.consume(joinKey("report", client), 1);
    if (decision.allowed) return Response.json({ client, remaining: decision.remaining });
    // Never null here: the cost of one fits into the capacity.
    const seconds = Math.ceil((decision.retryAfterMs ?? 0) / 1_000);
    return new Response("Too many requests\n", { status: 429, headers: { "retry-after": String(seconds) } });
  } catch (error) {
    if (!(error instanceof RateLimiterError)) throw error;
    // The report is expensive, so it is not made without a limit. To go on instead, return it here.
    console.error("limiter failed", error.code, error.message);
    return new Response("Try again soon\n", { status: 503, headers: { "retry-after": "1" } });
  }
}

/** A WebSocket whose messages share the limit of their client, whichever connection they use. */
function chat(request: Request, env: Env, client: string): Response {
  if (request.headers.get("upgrade") !== "websocket") {
    return new Response("Expected a WebSocket\n", { status: 426, headers: { upgrade: "websocket" } });
  }
  const { 0: theirs, 1: ours } = new WebSocketPair();
  const gate = messageGate<{ userId: string }>({
    types: ["SAY", "PING"],
    middleware: [rateLimit({ limiter: durableObjectRateLimiter(env.RATE_LIMITER, MESSAGES) })],
    onMessage: (ctx, message) => ctx.ws.send(JSON.stringify({ type: "DONE", payload: message })),
  });
  const connection = { id: crypto.randomUUID(), data: { userId: client } };
  ours.addEventListener("message", (event) => {
    gate.handle(ours, event.data, connection).catch((error: unknown) => {
      // No decision, so the message was not handled. The client connects again when it can.
      console.error("message failed", String(error));
      ours.close(1013, "Try again later");
    });
  });
  ours.accept();
  return new Response(null, { status: 101, webSocket: theirs });
}
