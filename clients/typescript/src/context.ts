/** The part of a WebSocket that is used: that of `ws`, Bun, Workers and browsers. */
export interface Socket {
  send(message: string): unknown;
  close(code?: number, reason?: string): unknown;
}

/**
 * What is known of a message before its payload is validated. Key and cost functions get nothing
 * else, so that a client cannot choose its key or its cost.
 */
export interface IngressContext<AppData = unknown> {
  /** Type of the message. */
  readonly type: string;
  /** Id of the connection. */
  readonly id: string;
  /** Address of the client, if it is known and trusted. */
  readonly ip?: string | undefined;
  /** The connection, with what the application knows of it from its authentication. */
  readonly ws: Socket & { readonly data: AppData };
  readonly meta: {
    /** When the message arrived, in milliseconds since the epoch. */
    readonly receivedAt: number;
  };
}

/** Continues with the next middleware or the handler. */
export type Next = () => unknown;

/** A step that runs before the handler of a message. */
export type Middleware<AppData = unknown> = (
  ctx: IngressContext<AppData>,
  next: Next,
) => Promise<void>;
