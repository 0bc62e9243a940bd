import { after, before } from "node:test";

import { durableObjectRateLimiter, memoryRateLimiter, tidegateRateLimiter } from "../src/index.js";
import { startServer, startWorkerd, type Server, type Workerd } from "./backends.js";
import { describeRateLimiter } from "./contract.js";

let server: Server;
let workerd: Workerd;

before(async () => {
  // One after the other: if one does not start, the other does not keep the tests running.
  server = await startServer();
  workerd = await startWorkerd();
});
after(() => Promise.all([server?.close(), workerd?.close()]));

describeRateLimiter("memory", (policy) => memoryRateLimiter(policy));
describeRateLimiter("server", (policy) => tidegateRateLimiter(server.url, policy));
describeRateLimiter("Durable Objects", (policy) => durableObjectRateLimiter(workerd.namespace, policy));
describeRateLimiter("Durable Objects, in one shard", (policy) =>
  durableObjectRateLimiter(workerd.namespace, policy, { shards: 1 }),
);
