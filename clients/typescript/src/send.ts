import type { Socket } from "./context.js";
import type { ErrorFrame } from "./error-frame.js";

/** Sends a frame, unless the peer has gone. */
export function sendFrame(socket: Socket, frame: ErrorFrame): void {
  ignoreFailure(() => socket.send(JSON.stringify(frame)));
}

/** Runs what must not fail its caller. Some runtimes throw on a socket whose peer has gone. */
export function ignoreFailure(action: () => unknown): void {
  try {
    action();
  } catch {
    // The message is dropped either way.
  }
}
