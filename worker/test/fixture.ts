// The Worker with additional paths for tests: they show and set what the API does not.
import worker, { RateLimiterDO as Shard } from "../src/index";
import { objectName } from "../src/shard-of";

export class RateLimiterDO extends Shard {
  readonly #storage: DurableObjectStorage;
  #armed = 0;

  constructor(ctx: DurableObjectState, env: Record<string, string>) {
    super(ctx, env);
    this.#storage = ctx.storage;
    // Counts the calls of the class, not those of the tests.
    const setAlarm = ctx.storage.setAlarm.bind(ctx.storage);
    ctx.storage.setAlarm = (at, options) => {
      this.#armed += 1;
      return setAlarm(at, options);
    };
  }

  override async fetch(request: Request): Promise<Response> {
    const path = new URL(request.url).pathname;
    const { sql } = this.#storage;
    if (path === "/test/state") {
      const tables = [...sql.exec("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\'")].map((row) => row.name);
      const count = (table: string) => (tables.includes(table) ? sql.exec(`SELECT count(*) AS n FROM ${table}`).one().n : 0);
      const alarm = await this.#storage.getAlarm();
      return Response.json({ tables: tables.sort(), buckets: count("buckets"), limits: count("limits"), alarm, armed: this.#armed });
    }
    if (path === "/test/sql") {
      sql.exec(await request.text());
      return Response.json({});
    }
    if (path === "/test/ids") {
      const table = (await request.text()) === "limits" ? "limits" : "buckets";
      const rows = [...sql.exec(`SELECT CAST(id AS TEXT) AS id FROM ${table} ORDER BY id`)];
      return Response.json(rows.map((row) => row.id));
    }
    if (path === "/test/sweep") {
      return Response.json({ pauses: await this.#sweepWith(await request.text(), request.headers) });
    }
    if (path === "/test/alarm-now") {
      await this.#storage.setAlarm(Date.now());
      return Response.json({});
    }
    return super.fetch(request);
  }

  /** Sweeps. In each pause, counts the buckets and consumes. */
  async #sweepWith(consume: string, headers: Headers): Promise<object[]> {
    const post = (path: string, body: string) => super.fetch(new Request(`https://shard${path}`, { method: "POST", headers, body }));
    const pauses: object[] = [];
    const wait = scheduler.wait;
    scheduler.wait = async () => {
      const buckets = this.#storage.sql.exec("SELECT count(*) AS n FROM buckets").one().n;
      pauses.push({ buckets, answer: await (await post("/consume", consume)).json() });
    };
    try {
      await post("/sweep", "");
    } finally {
      scheduler.wait = wait;
    }
    return pauses;
  }
}

export default {
  fetch(request: Request, env: any): Promise<Response> {
    const [, shard, path] = /^\/test\/(\d+)(\/.*)$/.exec(new URL(request.url).pathname) ?? [];
    if (shard === undefined) return worker.fetch(request, env);
    const object = env.RATE_LIMITER.get(env.RATE_LIMITER.idFromName(objectName(Number(shard))));
    return object.fetch(new Request(`https://shard${path}`, request));
  },
};
