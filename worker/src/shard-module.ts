/**
 * The wasm module `shard.wasm`: the decisions, in Rust. This file only moves bytes in and out.
 */
import module from "./shard.wasm";

/** The tables of a shard, as the module numbers them. */
export const BUCKETS = 0;
export const LIMITS = 1;

/** What the module needs from the object. */
export interface Host {
  read(table: number, key: Uint8Array): ArrayBuffer | undefined;
  /** `fullAt`: when the value may be forgotten, in milliseconds; `Infinity` keeps it. */
  write(table: number, key: Uint8Array, value: Uint8Array, fullAt: number): void;
  remove(table: number, key: Uint8Array): void;
}

/** What the module answers. */
export interface ModuleReply {
  status: number;
  body: Uint8Array;
}

interface Exports {
  memory: WebAssembly.Memory;
  input(length: number): number;
  entry(length: number): number;
  handle(pathLength: number, bodyLength: number, nowNs: bigint): number;
  coordinate(length: number): number;
  output_ptr(): number;
  output_len(): number;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** One instance of the module. It must not be used any more after it has thrown. */
export class ShardModule {
  readonly #exports: Exports;
  #bytes: Uint8Array;

  constructor(host: Host) {
    // The module reads its keys and values at once, and the storage keeps the bytes that it gets:
    // hence the copies out of the module's memory.
    const imports = {
      read: (table: number, key: number, length: number): number => {
        const value = host.read(table, this.#copy(key, length));
        if (value === undefined) return -1;
        const at = this.#exports.entry(value.byteLength) >>> 0;
        this.#memory().set(new Uint8Array(value), at);
        return value.byteLength;
      },
      write: (table: number, key: number, keyLength: number, value: number, valueLength: number, fullAt: number) =>
        host.write(table, this.#copy(key, keyLength), this.#copy(value, valueLength), fullAt),
      remove: (table: number, key: number, length: number) => host.remove(table, this.#copy(key, length)),
      // Ids of slot leases are derived from it and must differ between the instances of a shard.
      seed: (): bigint => crypto.getRandomValues(new BigInt64Array(1))[0] ?? 0n,
    };
    const instance = new WebAssembly.Instance(module, { host: imports });
    this.#exports = instance.exports as unknown as Exports;
    this.#bytes = new Uint8Array(this.#exports.memory.buffer);
  }

  /** Executes a request on the shard. */
  handle(path: string, body: Uint8Array, nowNs: bigint): ModuleReply {
    const head = encoder.encode(path);
    const at = this.#exports.input(head.length + body.length) >>> 0;
    const memory = this.#memory();
    memory.set(head, at);
    memory.set(body, at + head.length);
    return this.#reply(this.#exports.handle(head.length, body.length, nowNs));
  }

  /** Returns the next step of an operation whose keys may be in several shards. */
  coordinate(message: string): string {
    const bytes = encoder.encode(message);
    const at = this.#exports.input(bytes.length) >>> 0;
    this.#memory().set(bytes, at);
    return decoder.decode(this.#reply(this.#exports.coordinate(bytes.length)).body);
  }

  #reply(status: number): ModuleReply {
    return { status, body: this.#copy(this.#exports.output_ptr(), this.#exports.output_len()) };
  }

  #copy(pointer: number, length: number): Uint8Array {
    const at = pointer >>> 0;
    return this.#memory().slice(at, at + length);
  }

  /** The memory of the module. Growing it detaches the former buffer. */
  #memory(): Uint8Array {
    if (this.#bytes.buffer !== this.#exports.memory.buffer) {
      this.#bytes = new Uint8Array(this.#exports.memory.buffer);
    }
    return this.#bytes;
  }
}
