const encoder = new TextEncoder();

/** Returns the 32-bit FNV-1a hash of the UTF-8 bytes of a text. */
export function fnv1a(text: string): number {
  let hash = 2_166_136_261;
  for (let index = 0; index < text.length; index += 1) {
    const unit = text.charCodeAt(index);
    // The bytes of anything but ASCII need the encoder.
    if (unit > 127) return fnv1aOfBytes(encoder.encode(text));
    hash = Math.imul(hash ^ unit, 16_777_619);
  }
  return hash >>> 0;
}

function fnv1aOfBytes(bytes: Uint8Array): number {
  let hash = 2_166_136_261;
  for (const byte of bytes) hash = Math.imul(hash ^ byte, 16_777_619);
  return hash >>> 0;
}
