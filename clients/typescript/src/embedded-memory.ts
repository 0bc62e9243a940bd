/** The memory of all limiters in a runtime that can compile bytes. Not part of the package's interface. */
import { BucketMemory } from "./bucket-memory.js";
import { BUCKET_WASM } from "./bucket-wasm.js";

let shared: BucketMemory | undefined;

/** Compiles the module on the first use. */
export function bucketMemory(): BucketMemory {
  if (shared === undefined) {
    const bytes = Uint8Array.from(atob(BUCKET_WASM), (character) => character.charCodeAt(0));
    shared = new BucketMemory(new WebAssembly.Module(bytes));
  }
  return shared;
}
