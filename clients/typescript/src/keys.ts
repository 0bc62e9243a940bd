/**
 * Keys that messages are charged to, in the form of those of the Rust crate `tidegate-ws`. Equal
 * texts have equal parts.
 *
 * Tenants and users may have chosen their names, and the same position of a key can hold an address,
 * `anon` or a connection. A name that could be mistaken for one of these is written after an empty
 * part, which is never there otherwise: `rl:public::203.0.113.9:PING` is the user `203.0.113.9`, and
 * `rl:public:203.0.113.9:PING` the client at that address.
 */
import { clientAddress, isAddress } from "./address.js";
import type { IngressContext } from "./context.js";

const NO_TENANT = "public";
const NO_USER = "anon";
/** Parts before the id of a connection, and before an address in another form than that of IP. */
const CONNECTION = "conn";
const ADDRESS = "ip";

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
 * for authenticated connections. An empty id is no id.
 */
export function keyPerUserPerType(ctx: IngressContext): string {
  return joinKey("rl", ...tenant(ctx), ...(user(ctx) ?? [NO_USER]), ctx.type);
}

/**
 * `rl:{tenant}:{user}`: one bucket for all message types of a user. For applications with many
 * types. Costs weight the types against each other, but do not isolate them.
 */
export function perUserKey(ctx: IngressContext): string {
  return joinKey("rl", ...tenant(ctx), ...(user(ctx) ?? [NO_USER]));
}

/**
 * The default: `rl:{tenant}:{user}:{type}`, with the client's address in place of an unknown user,
 * as by `clientAddress`.
 *
 * A client with neither gets a bucket for its connection, `rl:{tenant}:conn:{id}:{type}`, so that
 * it cannot lock out the others. If `ip` is no IP address, the key is
 * `rl:{tenant}:ip:{ip}:{type}`.
 */
export function keyPerUserOrIpPerType(ctx: IngressContext): string {
  return joinKey("rl", ...tenant(ctx), ...(user(ctx) ?? anonymous(ctx)), ctx.type);
}

function anonymous(ctx: IngressContext): readonly string[] {
  if (ctx.ip) {
    const address = clientAddress(ctx.ip);
    return isAddress(address) ? [address] : [ADDRESS, address];
  }
  return ctx.id ? [CONNECTION, ctx.id] : [NO_USER];
}

function tenant(ctx: IngressContext): readonly string[] {
  const name = field(ctx, "tenantId") ?? NO_TENANT;
  return name === CONNECTION || name === ADDRESS ? ["", name] : [name];
}

function user(ctx: IngressContext): readonly string[] | undefined {
  const name = field(ctx, "userId");
  if (name === undefined) return undefined;
  return name === NO_USER || name === CONNECTION || isAddress(name) ? ["", name] : [name];
}

/** Ids may be texts or numbers. Anything else has no reliable text, and an empty text is no id. */
function field(ctx: IngressContext, name: "tenantId" | "userId"): string | undefined {
  const value = (ctx.ws.data as Record<string, unknown> | null | undefined)?.[name];
  return (typeof value === "string" && value !== "") || Number.isFinite(value) ? String(value) : undefined;
}

function escapePart(part: string): string {
  return /[:%]/.test(part) ? part.replaceAll("%", "%25").replaceAll(":", "%3A") : part;
}
