import type { IngressContext, Middleware, Socket } from "./context.js";
import { errorFrame } from "./error-frame.js";
import { RateLimiterError } from "./errors.js";
import { sendFrame } from "./send.js";

/** What the application knows of a connection. */
export interface Connection<AppData = unknown> {
  /** Unique among open connections. */
  readonly id: string;
  /** Address of the client, if it is known and trusted. */
  readonly ip?: string | undefined;
  readonly data: AppData;
}

/** A message as `ws`, Bun, Workers and browsers deliver it. */
export type RawMessage = string | ArrayBuffer | ArrayBufferView | readonly Uint8Array[];

/** Options of `messageGate`. */
export interface MessageGateOptions<AppData = unknown> {
  /** Run in order before the handler, such as `rateLimit(...)`. */
  readonly middleware: readonly Middleware<AppData>[];
  /**
   * Message types of the application. All other types share the type `unknown`: otherwise a client
   * could get a fresh bucket with every type that it invents. `"any"` turns this off, for key
   * functions without the type.
   */
  readonly types: readonly string[] | "any";
  /** Called for each message that passed, with its parsed JSON. */
  readonly onMessage: (ctx: IngressContext<AppData>, message: { readonly type: string }) => unknown;
}

/** Checks messages of plain WebSockets. */
export interface MessageGate<AppData = unknown> {
  /**
   * Runs the middleware and the handler for a message. Rejects if one of them fails, for example
   * because the store of a limiter is away.
   */
  handle(socket: Socket, raw: RawMessage, connection: Connection<AppData>): Promise<void>;
}

const UNKNOWN = "unknown";

/**
 * Creates a gate for sockets without a router of their own. Messages are JSON objects with a
 * `type`. One whose type cannot be read is limited as type `unknown` and gets a `PARSE_ERROR`.
 */
export function messageGate<AppData = unknown>(
  options: MessageGateOptions<AppData>,
): MessageGate<AppData> {
  const { middleware, types, onMessage } = options;
  if (types !== "any" && !Array.isArray(types)) {
    throw new RateLimiterError("INVALID_OPTION", 'types must be a list of message types or "any"');
  }
  const known = types === "any" ? undefined : new Set(types);
  return {
    async handle(socket, raw, connection) {
      const message = parse(raw);
      const type = message?.type ?? UNKNOWN;
      const ctx: IngressContext<AppData> = {
        type: known === undefined || known.has(type) ? type : UNKNOWN,
        id: connection.id,
        ip: connection.ip,
        ws: {
          data: connection.data,
          send: (text) => socket.send(text),
          close: (code, reason) => socket.close(code, reason),
        },
        meta: { receivedAt: Date.now() },
      };
      const run = async (index: number): Promise<void> => {
        const step = middleware[index];
        if (step !== undefined) return step(ctx, () => run(index + 1));
        if (message === undefined) {
          sendFrame(socket, errorFrame("PARSE_ERROR", "Message type could not be read"));
        } else {
          await onMessage(ctx, message);
        }
      };
      await run(0);
    },
  };
}

function parse(raw: RawMessage): { type: string } | undefined {
  try {
    const message: unknown = JSON.parse(toText(raw));
    const type = (message as { type?: unknown } | null)?.type;
    return typeof type === "string" ? (message as { type: string }) : undefined;
  } catch {
    return undefined;
  }
}

function toText(raw: RawMessage): string {
  if (typeof raw === "string") return raw;
  const decoder = new TextDecoder("utf-8", { fatal: true });
  if (!Array.isArray(raw)) return decoder.decode(raw as ArrayBuffer | ArrayBufferView);
  return raw.map((part) => decoder.decode(part, { stream: true })).join("") + decoder.decode();
}
