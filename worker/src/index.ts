/**
 * The Worker: the HTTP API in front of the objects, for callers outside of Cloudflare.
 *
 * Workers of the same account use the objects through a binding and do not pass through here.
 */
import { coordinate } from "./coordinate";
import type { RateLimiterEnv } from "./durable-object";
import { HttpError, MAX_BODY, NOW_HEADER, notFound, pathOf, readBody, text } from "./http";
import { checkSecret } from "./secret";
import { DEFAULT_SHARDS, MAX_SHARDS, objectName, shardOf } from "./shard-of";

export { RateLimiterDO } from "./durable-object";

/** Bindings of the Worker. */
export interface Env extends RateLimiterEnv {
  RATE_LIMITER: DurableObjectNamespace;
  /** Callers have to know it. */
  TIDEGATE_SECRET?: string;
  /** Number of shards; 128 if absent. */
  TIDEGATE_SHARDS?: string | number;
}

/** Paths with one operation, on keys that may be in several shards. */
const VERBS = new Set(["/take", "/peek", "/reserve", "/settle", "/release", "/renew", "/hold", "/reset"]);

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const path = pathOf(request.url);
    if (request.method === "GET" && path === "/healthz") return text(200, "ok");
    try {
      await checkSecret(request, env.TIDEGATE_SECRET);
      return request.method === "POST" ? await route(request, path, env) : notFound();
    } catch (error) {
      if (error instanceof HttpError) return error.toResponse();
      console.error("request failed", error);
      return text(500, `Error: the Worker failed: ${String(error)}`);
    }
  },
};

async function route(request: Request, path: string, env: Env): Promise<Response> {
  const send = sender(request, env);
  if (path === "/consume") {
    const body = decode(await readBody(request, MAX_BODY));
    return send(shardOf(keyOf(body), shardsOf(env)), "/consume", body);
  }
  const toShard = (shard: number, body: string) => send(shard, "/operations", body);
  if (path === "/operations") {
    const body = decode(await readBody(request, MAX_BODY));
    return coordinate(path, body, shardsOf(env, request), toShard);
  }
  if (VERBS.has(path)) {
    return coordinate(path, decode(await readBody(request, MAX_BODY)), shardsOf(env), toShard);
  }
  const [, shard, verb] = /^\/shards\/(\d{1,5})\/(operations|sweep)$/.exec(path) ?? [];
  if (shard === undefined || Number(shard) >= shardsOf(env, request)) return notFound();
  if (verb === "sweep" && env.TIDEGATE_MANUAL_CLOCK !== "1") return notFound();
  return send(Number(shard), `/${verb}`, await readBody(request, MAX_BODY));
}

type Send = (shard: number, path: string, body: string | Uint8Array) => Promise<Response>;

/** Sends requests to objects, with the time of this request if it has one. */
function sender(request: Request, env: Env): Send {
  const now = env.TIDEGATE_MANUAL_CLOCK === "1" ? request.headers.get(NOW_HEADER) : null;
  const headers: Record<string, string> = now === null ? {} : { [NOW_HEADER]: now };
  return (shard, path, body) => {
    const object = env.RATE_LIMITER.get(env.RATE_LIMITER.idFromName(objectName(shard)));
    return object.fetch(`https://shard${path}`, { method: "POST", headers, body });
  };
}

/**
 * The number of shards. Callers that compute the shard of a key say which number they assume: with
 * another one, a key would have two buckets.
 */
function shardsOf(env: Env, request?: Request): number {
  const shards = Number(env.TIDEGATE_SHARDS ?? DEFAULT_SHARDS);
  if (!(Number.isInteger(shards) && shards >= 1 && shards <= MAX_SHARDS)) {
    const value = JSON.stringify(env.TIDEGATE_SHARDS);
    throw new HttpError(500, `Error: TIDEGATE_SHARDS is ${value}, but must be an integer from 1 to ${MAX_SHARDS}`);
  }
  const assumed = request && new URL(request.url).searchParams.get("shards");
  if (assumed && assumed !== String(shards)) {
    const text = `Error: this Worker has ${shards} shards, but the request assumes ${assumed}; use the same number on both sides`;
    throw new HttpError(409, text);
  }
  return shards;
}

/** The key of a `/consume`. All else in it is checked by the shard. */
function keyOf(body: string): string {
  let key: unknown;
  try {
    key = (JSON.parse(body) as { key?: unknown } | null)?.key;
  } catch (error) {
    throw new HttpError(400, `Error: invalid JSON: ${(error as Error).message}`);
  }
  if (typeof key !== "string") throw new HttpError(400, "Error: `key` must be a string");
  return key;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });

function decode(body: Uint8Array): string {
  try {
    return decoder.decode(body);
  } catch {
    throw new HttpError(400, "Error: the body is not UTF-8");
  }
}
