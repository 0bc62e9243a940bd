/**
 * Which object has a key. The Rust client and the wasm module route in the same way; a different
 * rule in one of them would give a key two buckets.
 */

/** Default number of shards. */
export const DEFAULT_SHARDS = 128;

/** Maximum number of shards. Each is an object with its own storage. */
export const MAX_SHARDS = 65_536;

const encoder = new TextEncoder();

/** The 32-bit FNV-1a hash of the UTF-8 bytes of `text`. */
export function fnv1a(text: string): number {
  let hash = 2_166_136_261;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    // Nearly all keys are ASCII, where a UTF-16 unit is the byte.
    if (unit > 127) return fnv1aBytes(encoder.encode(text));
    hash = Math.imul(hash ^ unit, 16_777_619);
  }
  return hash >>> 0;
}

function fnv1aBytes(bytes: Uint8Array): number {
  let hash = 2_166_136_261;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 16_777_619);
  return hash >>> 0;
}

/** The shard of a key, or of its group if it has one. */
export function shardOf(key: string, shards: number): number {
  return fnv1a(key) % shards;
}

/** Name of the object of a shard. */
export function objectName(shard: number): string {
  return `rate-limiter-${shard}`;
}
