import assert from "node:assert/strict";
import { test } from "node:test";

import {
  clientAddress,
  type IngressContext,
  joinKey,
  keyPerUserOrIpPerType,
  keyPerUserPerType,
  perUserKey,
} from "../src/index.js";

function context(data: unknown, rest: Partial<IngressContext> = {}): IngressContext {
  return {
    type: "PING",
    id: "c1",
    ws: { data, send() {}, close() {} },
    meta: { receivedAt: 0 },
    ...rest,
  };
}

test("the three key functions have the documented forms", () => {
  const known = context({ tenantId: "acme", userId: "ann" }, { ip: "203.0.113.9" });
  assert.equal(keyPerUserPerType(known), "rl:acme:ann:PING");
  assert.equal(perUserKey(known), "rl:acme:ann");
  assert.equal(keyPerUserOrIpPerType(known), "rl:acme:ann:PING");
});

test("a missing tenant is public, a missing user anon", () => {
  for (const data of [undefined, null, {}]) {
    assert.equal(keyPerUserPerType(context(data)), "rl:public:anon:PING");
    assert.equal(perUserKey(context(data)), "rl:public:anon");
  }
});

test("the default key of an anonymous client has its address, else its connection", () => {
  assert.equal(keyPerUserOrIpPerType(context({}, { ip: "203.0.113.9" })), "rl:public:203.0.113.9:PING");
  assert.equal(keyPerUserOrIpPerType(context({})), "rl:public:conn:c1:PING");
  assert.equal(keyPerUserOrIpPerType(context({}, { id: "" })), "rl:public:anon:PING");
});

test("an empty id is unknown, so clients of different addresses do not share a bucket", () => {
  const empty = { tenantId: "", userId: "" };
  for (const [id, ip] of [["c1", "203.0.113.9"], ["c2", "203.0.113.10"]]) {
    assert.equal(keyPerUserOrIpPerType(context(empty, { id: id!, ip })), `rl:public:${ip}:PING`);
    assert.equal(keyPerUserOrIpPerType(context(empty, { id: id!, ip: "" })), `rl:public:conn:${id}:PING`);
  }
  assert.equal(keyPerUserPerType(context(empty)), "rl:public:anon:PING");
  assert.equal(perUserKey(context({ userId: Number.NaN })), "rl:public:anon");
});

test("names that an address, an anonymous client or a connection could have are written as in tidegate-ws", () => {
  const names = [
    ["alice", "alice"], ["ip", "ip"], ["1.2.3", "1.2.3"], ["01.2.3.4", "01.2.3.4"], ["1.2.3.256", "1.2.3.256"], ["1.2.3.4.", "1.2.3.4."],
    ["anon", ":anon"], ["conn", ":conn"], ["203.0.113.9", ":203.0.113.9"], ["255.255.255.255", ":255.255.255.255"],
    ["2001:db8::", ":2001%3Adb8%3A%3A"], ["::FFFF:1.2.3.4", ":%3A%3AFFFF%3A1.2.3.4"], ["fe80::1%eth0", "fe80%3A%3A1%25eth0"],
  ] as const;
  for (const [userId, text] of names) {
    const ctx = context({ userId }, { ip: "203.0.113.9" });
    assert.equal(keyPerUserPerType(ctx), `rl:public:${text}:PING`);
    assert.equal(keyPerUserOrIpPerType(ctx), `rl:public:${text}:PING`);
    assert.equal(perUserKey(ctx), `rl:public:${text}`);
  }
  for (const [tenantId, text] of [["acme", "acme"], ["conn", ":conn"], ["ip", ":ip"], ["anon", "anon"]] as const) {
    assert.equal(perUserKey(context({ tenantId, userId: "ann" })), `rl:${text}:ann`);
  }
  // An address in another form, such as a digest, is no user either.
  assert.equal(keyPerUserOrIpPerType(context({}, { ip: "unknown" })), "rl:public:ip:unknown:PING");
});

/** R227. The alphabet has the texts that keys have themselves. */
test("different clients never have the same key", () => {
  const names = ["", "a", "anon", "conn", "ip", "public", ":", "%", "a:b", "%3A", "1.2.3.4", "2001:db8::", "c1"];
  const seen = new Map<string, string>();
  let contexts = 0;
  for (const tenantId of names) {
    for (const userId of names) {
      for (const ip of names) {
        for (const id of ["", "c1", "1.2.3.4", "anon"]) {
          for (const type of ["", "a", "a:b", "anon"]) {
            const who = userId ? ["user", userId] : ip ? ["address", ip] : id ? ["connection", id] : ["anonymous"];
            const client = JSON.stringify([tenantId || "public", who, type]);
            const key = keyPerUserOrIpPerType(context({ tenantId, userId }, { ip, id, type }));
            assert.equal(seen.get(key) ?? client, client, key);
            seen.set(key, client);
            contexts += 1;
          }
        }
      }
    }
  }
  assert.equal(contexts, names.length ** 3 * 16);
  assert.equal(new Set(seen.values()).size, seen.size, "equal clients have equal keys");
});

test("numeric ids are used, other values are not", () => {
  assert.equal(perUserKey(context({ userId: 7 })), "rl:public:7");
  assert.equal(perUserKey(context({ userId: { toString: () => "x" } })), "rl:public:anon");
});

test("different parts never give the same key", () => {
  assert.notEqual(
    keyPerUserPerType(context({ tenantId: "a:b", userId: "c" })),
    keyPerUserPerType(context({ tenantId: "a", userId: "b:c" })),
  );
  const alphabet = ["", ":", "%", "a", "3A", "%3A", "::", "a:b", "%25"];
  const seen = new Map<string, string>();
  for (const one of alphabet) {
    for (const two of alphabet) {
      for (const parts of [[one], [one, two], ...alphabet.map((three) => [one, two, three])]) {
        const key = joinKey("rl", ...parts);
        const text = JSON.stringify(parts);
        assert.equal(seen.get(key) ?? text, text);
        seen.set(key, text);
      }
    }
  }
});

test("a client with IPv6 is identified by the first 64 bits of its address", () => {
  const networks = [
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"],
    ["2001:DB8:1:2::7", "2001:db8:1:2::"],
    ["2001:db8::1", "2001:db8::"],
    ["::1", "::"],
    ["fe80::1%eth0", "fe80::"],
    ["::ffff:203.0.113.9", "203.0.113.9"],
    ["::ffff:cb00:7109", "203.0.113.9"],
    ["64:ff9b::203.0.113.9", "203.0.113.9"],
    ["64:ff9b:1::203.0.113.9", "64:ff9b:1::cb00:7109"],
    ["64:FF9B:1:0:0::cb00:710a", "64:ff9b:1::cb00:710a"],
    ["64:ff9b:1:cb00:71:900::%eth0", "64:ff9b:1:cb00:71:900::"],
    ["64:ff9b:2::203.0.113.9", "64:ff9b:2::"],
    ["203.0.113.9", "203.0.113.9"],
    ["", ""],
    ["a:b", "a:b"],
    ["::1]/x[", "::1]/x["],
    ["1:2:3", "1:2:3"],
    ["unknown", "unknown"],
  ] as const;
  for (const [address, network] of networks) assert.equal(clientAddress(address), network, address);
  const key = (ip: string) => keyPerUserOrIpPerType(context({}, { ip }));
  assert.equal(key("2001:db8:1:2::7"), "rl:public:2001%3Adb8%3A1%3A2%3A%3A:PING");
  assert.equal(key("2001:db8:1:2::7"), key("2001:db8:1:2:ffff::8"));
  assert.notEqual(key("2001:db8:1:2::7"), key("2001:db8:1:3::7"));
});
