/** The shared secret of requests from outside. */
import { HttpError } from "./http";

const encoder = new TextEncoder();

/**
 * Checks the secret of a request. Digests are compared, so that the time depends neither on how much
 * of the secret is right nor on its length.
 * @throws HttpError if there is no secret, or another one
 */
export async function checkSecret(request: Request, secret: string | undefined): Promise<void> {
  if (!secret) {
    throw new HttpError(503, "Error: this Worker has no secret; set one with `wrangler secret put TIDEGATE_SECRET`");
  }
  const header = request.headers.get("authorization") ?? "";
  const given = /^bearer /i.test(header) ? header.slice("bearer ".length) : "";
  const [expected, actual] = await Promise.all([digest(secret), digest(given)]);
  if (!crypto.subtle.timingSafeEqual(expected, actual)) {
    throw new HttpError(401, "Error: the secret is missing or wrong; send `authorization: Bearer <secret>`");
  }
}

function digest(text: string): Promise<ArrayBuffer> {
  return crypto.subtle.digest("SHA-256", encoder.encode(text));
}
