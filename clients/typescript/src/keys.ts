/** Keys that messages are charged to. Equal texts have equal parts. */
import { clientAddress } from "./address.js";
import type { IngressContext } from "./context.js";

const NO_TENANT = "public";
const NO_USER = "anon";

/**
 * Joins parts by `:`, with `:` and `%` inside a part escaped. Different lists of parts never give
 * the same key, whatever names users choose.
 */
export function joinKey(...parts: readonly string[]): string {
  return parts.map(escapePart).join(":");
}

/**
 * `rl:{tenant}:{user}:{type}`: no message type can starve another one of the same user.
 *
 * Without a user it is `anon`, so all anonymous clients of a tenant share their buckets. Use it
 * for authenticated connections.
 */
export function keyPerUserPerType(ctx: IngressContext): string {
  return joinKey("rl", tenant(ctx), user(ctx) ?? NO_USER, ctx.type);
}

/**
 * `rl:{tenant}:{user}`: one bucket for all message types of a user. For applications with many
 * types. Costs weight the types against each other, but do not isolate them.
 */
export function perUserKey(ctx: IngressContext): string {
  return joinKey("rl", tenant(ctx), user(ctx) ?? NO_USER);
}

/**
 * The default: `rl:{tenant}:{user}:{type}`, with the client's address in place of an unknown user,
 * as by `clientAddress`.
 *
 * A client with neither gets a bucket for its connection, `rl:{tenant}:conn:{id}:{type}`, so that
 * it cannot lock out the others. That key has five parts, so no user name can equal it.
 */
export function keyPerUserOrIpPerType(ctx: IngressContext): string {
  const subject = user(ctx) ?? (ctx.ip ? clientAddress(ctx.ip) : undefined);
  if (subject === undefined && ctx.id) return joinKey("rl", tenant(ctx), "conn", ctx.id, ctx.type);
  return joinKey("rl", tenant(ctx), subject ?? NO_USER, ctx.type);
}

function tenant(ctx: IngressContext): string {
  return field(ctx, "tenantId") ?? NO_TENANT;
}

function user(ctx: IngressContext): string | undefined {
  return field(ctx, "userId");
}

/** Ids may be texts or numbers. Anything else has no reliable text. */
function field(ctx: IngressContext, name: "tenantId" | "userId"): string | undefined {
  const value = (ctx.ws.data as Record<string, unknown> | null | undefined)?.[name];
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

function escapePart(part: string): string {
  return /[:%]/.test(part) ? part.replaceAll("%", "%25").replaceAll(":", "%3A") : part;
}
