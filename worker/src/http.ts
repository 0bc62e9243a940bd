/** What the Worker and the object share: reading bodies, answers, the manual clock. */

/** Maximum length of a request body, in bytes. */
export const MAX_BODY = 256 * 1024;

/**
 * Maximum length of what the Worker sends to an object. Its calls are longer than the request: they
 * have each charge twice, and receipts.
 */
export const MAX_CALL = 4 * MAX_BODY;

/** Header with the time of a request, in nanoseconds since the Unix epoch. For tests. */
export const NOW_HEADER = "x-tidegate-now-ns";

/** A request that is answered with an error text. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }

  toResponse(): Response {
    return text(this.status, this.message);
  }
}

/** A plain text answer. */
export function text(status: number, body: string): Response {
  return new Response(body, { status, headers: { "content-type": "text/plain; charset=utf-8" } });
}

/** The answer to a path or a method that does not exist. */
export function notFound(): Response {
  return text(404, "Not found");
}

/** The answer of the wasm module: JSON if it succeeded, a text if not. */
export function reply(status: number, body: BodyInit): Response {
  const type = status === 200 ? "application/json" : "text/plain; charset=utf-8";
  return new Response(body, { status, headers: { "content-type": type } });
}

function tooLarge(max: number): HttpError {
  return new HttpError(413, `Error: the body exceeds ${max} bytes; send fewer operations at once`);
}

/**
 * Reads a body of at most `max` bytes.
 * @throws HttpError if it is longer
 */
export async function readBody(request: Request, max: number): Promise<Uint8Array> {
  const length = request.headers.get("content-length");
  if (length !== null) {
    // The runtime delivers no more bytes than the header says.
    if (!(Number(length) <= max)) throw tooLarge(max);
    return new Uint8Array(await request.arrayBuffer());
  }
  return request.body === null ? new Uint8Array(0) : readStream(request.body, max);
}

/** Reads a body of unknown length, and no more of it than is allowed. */
async function readStream(stream: ReadableStream, max: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.byteLength;
    if (length > max) {
      await reader.cancel();
      throw tooLarge(max);
    }
  }
  const body = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.byteLength;
  }
  return body;
}

/** The path of a URL, without parsing all of it. */
export function pathOf(url: string): string {
  const start = url.indexOf("/", url.indexOf("//") + 2);
  if (start < 0) return "/";
  const end = url.slice(start).search(/[?#]/);
  return end < 0 ? url.slice(start) : url.slice(start, start + end);
}
