import type { IngressContext, Middleware, Socket } from "./context.js";
import { errorFrame, inFlightFrame } from "./error-frame.js";
import { checkFunction, invalidOption, positiveInteger } from "./policy.js";
import { sendFrame } from "./send.js";

/**
 * What the application knows of a connection: one object for as long as it is open, not a new one for
 * each message. The gate keeps the messages of each object in order.
 */
export interface Connection<AppData = unknown> {
  /** Unique among open connections. */
  readonly id: string;
  /** Address of the client, if it is known and trusted. */
  readonly ip?: string | undefined;
  readonly data: AppData;
}

type BytesOrText = string | ArrayBuffer | ArrayBufferView | readonly Uint8Array[];

/** A message as `ws`, Bun, Workers and browsers deliver it. The last form is a `Blob`. */
export type RawMessage = BytesOrText | { arrayBuffer(): Promise<ArrayBuffer> };

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
  /**
   * Messages of one connection that may be in flight, with the one that is handled; 64 if unset. Others
   * get an error frame at once, and are neither charged nor handled.
   */
  readonly maxInFlight?: number;
  /** Called for each message that passed, with its parsed JSON. */
  readonly onMessage: (ctx: IngressContext<AppData>, message: { readonly type: string }) => unknown;
}

/** Checks messages of plain WebSockets. */
export interface MessageGate<AppData = unknown> {
  /**
   * Runs the middleware and the handler for a message, after those of the messages that the
   * connection sent before. Rejects if one of them fails, for example because the store of a limiter
   * is away; the messages after it are handled nevertheless.
   */
  handle(socket: Socket, raw: RawMessage, connection: Connection<AppData>): Promise<void>;
}

const UNKNOWN = "unknown";
const DEFAULT_MAX_IN_FLIGHT = 64;

/** The messages of one connection. */
interface MessageQueue {
  inFlight: number;
  /** Fulfilled when the last message has ended, however it did. */
  last: Promise<unknown>;
  /** Whether the connection was closed; messages that the client sent before still arrive. */
  isClosing: boolean;
}

type ParsedMessage = { readonly type: string } | undefined;

/**
 * Creates a gate for sockets without a router of their own. Messages are JSON objects with a
 * `type`. One whose type cannot be read is limited as type `unknown` and gets a `PARSE_ERROR`.
 *
 * The messages of a connection are decided and handled one after the other: the next one waits for
 * the promise of the handler. Those that arrive after `ctx.ws.close` are dropped.
 */
export function messageGate<AppData = unknown>(
  options: MessageGateOptions<AppData>,
): MessageGate<AppData> {
  const { middleware, types, onMessage, maxInFlight = DEFAULT_MAX_IN_FLIGHT } = options;
  if (types !== "any" && !Array.isArray(types)) {
    throw invalidOption("types", 'must be a list of message types or "any"', types);
  }
  if (!Array.isArray(middleware)) throw invalidOption("middleware", "must be a list of functions", middleware);
  for (const step of middleware) checkFunction("middleware", step);
  checkFunction("onMessage", onMessage);
  positiveInteger("maxInFlight", maxInFlight);
  const known = types === "any" ? undefined : new Set(types);
  const queues = new WeakMap<Connection<AppData>, MessageQueue>();

  const pass = async (ctx: IngressContext<AppData>, message: ParsedMessage): Promise<void> => {
    const run = async (index: number): Promise<void> => {
      const step = middleware[index];
      if (step !== undefined) return step(ctx, () => run(index + 1));
      if (message === undefined) {
        sendFrame(ctx.ws, errorFrame("PARSE_ERROR", "Message type could not be read"));
      } else {
        await onMessage(ctx, message);
      }
    };
    await run(0);
  };

  const contextOf = (socket: Socket, connection: Connection<AppData>, queue: MessageQueue, type: string) => ({
    type: known === undefined || known.has(type) ? type : UNKNOWN,
    id: connection.id,
    ip: connection.ip,
    ws: {
      data: connection.data,
      send: (text: string) => socket.send(text),
      close: (code?: number, reason?: string) => {
        socket.close(code, reason);
        queue.isClosing = true;
      },
    },
  });

  return {
    async handle(socket, raw, connection) {
      const queue = queues.get(connection) ?? { inFlight: 0, last: Promise.resolve(), isClosing: false };
      queues.set(connection, queue);
      if (queue.isClosing) return;
      if (queue.inFlight >= maxInFlight) {
        sendFrame(socket, inFlightFrame(maxInFlight));
        return;
      }
      const meta = { receivedAt: Date.now() };
      // Read at once: some servers reuse the bytes.
      const reading = read(raw);
      await enqueue(queue, async () => {
        const message = await reading;
        if (queue.isClosing) return;
        await pass({ ...contextOf(socket, connection, queue, message?.type ?? UNKNOWN), meta }, message);
      });
    },
  };
}

/** Runs a task after those before it, whether they fail or not. */
function enqueue(queue: MessageQueue, task: () => Promise<void>): Promise<void> {
  queue.inFlight += 1;
  const handled = queue.last.then(task).finally(() => {
    queue.inFlight -= 1;
  });
  queue.last = handled.catch(() => {});
  return handled;
}

/** Returns the parsed message; `undefined` if it has no readable type. Never rejects. */
function read(raw: RawMessage): ParsedMessage | Promise<ParsedMessage> {
  const isBlob = typeof raw === "object" && raw !== null && "arrayBuffer" in raw;
  return isBlob ? raw.arrayBuffer().then(parse, () => undefined) : parse(raw);
}

function parse(raw: BytesOrText): ParsedMessage {
  try {
    const message: unknown = JSON.parse(toText(raw));
    const type = (message as { type?: unknown } | null)?.type;
    return typeof type === "string" ? (message as { type: string }) : undefined;
  } catch {
    return undefined;
  }
}

function toText(raw: BytesOrText): string {
  if (typeof raw === "string") return raw;
  const decoder = new TextDecoder("utf-8", { fatal: true });
  if (!Array.isArray(raw)) return decoder.decode(raw as ArrayBuffer | ArrayBufferView);
  return raw.map((part) => decoder.decode(part, { stream: true })).join("") + decoder.decode();
}
