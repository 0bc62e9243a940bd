/** Operations whose keys may be in several shards. The wasm module decides; this sends its calls. */
import { reply } from "./http";
import { type Host, ShardModule } from "./shard-module";

/** Sends a body to `/operations` of a shard. */
export type SendToShard = (shard: number, body: string) => Promise<Response>;

/** The response of one shard; status 0 if there was none. */
interface ShardReply {
  status: number;
  body: string;
}

type NextStep = { calls: { shard: number; body: string }[] } | { status: number; body: string };

let shared: ShardModule | undefined;

/** Executes an operation on all shards that have a key of it. */
export async function coordinate(path: string, body: string, shards: number, send: SendToShard): Promise<Response> {
  const replies: ShardReply[][] = [];
  for (;;) {
    const next = nextStep(JSON.stringify({ shards, path, body, replies }));
    if (!("calls" in next)) return reply(next.status, next.body);
    replies.push(await Promise.all(next.calls.map((call) => shardReply(send(call.shard, call.body)))));
  }
}

function nextStep(progress: string): NextStep {
  try {
    shared ??= new ShardModule(noStorage);
    return JSON.parse(shared.coordinate(progress)) as NextStep;
  } catch (error) {
    // An instance that trapped is not used again.
    shared = undefined;
    throw error;
  }
}

/** A shard that cannot be reached is a reply, too: those charged before have to give back. */
async function shardReply(sent: Promise<Response>): Promise<ShardReply> {
  try {
    const response = await sent;
    return { status: response.status, body: await response.text() };
  } catch (error) {
    return { status: 0, body: String(error) };
  }
}

const noStorage: Host = {
  read: unreachable,
  write: unreachable,
  remove: unreachable,
};

function unreachable(): never {
  throw new Error("coordination needs no storage");
}
