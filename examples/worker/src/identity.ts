/** Who sends a request. Limits are only as good as this: a name that a caller chooses is no limit. */
import { clientAddress } from "tidegate";

/**
 * Returns the caller that a token belongs to, or the address if there is no token; undefined if the
 * token is unknown.
 *
 * The platform sets `CF-Connecting-IP` and replaces what a client sends. `X-Forwarded-For` and
 * others come from the client, and are not looked at.
 */
export async function identify(request: Request, tokens: string | undefined): Promise<string | undefined> {
  const header = request.headers.get("authorization");
  if (header === null) {
    const address = request.headers.get("cf-connecting-ip") ?? "unknown";
    return `address ${clientAddress(address)}`;
  }
  const [, token] = /^bearer (.+)$/i.exec(header) ?? [];
  if (token === undefined) return undefined;
  const names = new Map(Object.entries(JSON.parse(tokens ?? "{}") as Record<string, string>));
  const name = names.get(await sha256(token));
  return name === undefined ? undefined : `caller ${name}`;
}

/** The list has digests, so that it does not reveal tokens, and a search takes the same time for all. */
async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
