/**
 * Returns the part of an address that identifies a client: all of IPv4, the first 64 bits of IPv6.
 *
 * A client with IPv6 can choose among 2^64 addresses, and would have as many buckets. IPv4 addresses
 * that are mapped or translated to IPv6 are given as IPv4. Under the NAT64 prefix for local use
 * (`64:ff9b:1::/48`) every address is a client of its own: the operator chooses where in it the IPv4
 * address is. A text that is no address is returned as it is.
 */
export function clientAddress(address: string): string {
  if (!address.includes(":")) return address;
  // A zone is a matter of the host that wrote the address.
  const withoutZone = address.replace(/%.*$/, "");
  const groups = parseIpv6(withoutZone);
  if (groups === undefined) return address;
  const prefix = groups.slice(0, 6).map((group) => group.toString(16)).join(":");
  if (prefix === "0:0:0:0:0:ffff" || prefix === "64:ff9b:0:0:0:0") {
    return groups.slice(6).flatMap((group) => [group >> 8, group & 255]).join(".");
  }
  if (prefix.startsWith("64:ff9b:1:")) return canonical(withoutZone) ?? address;
  const network = groups.slice(0, 4).map((group) => group.toString(16)).join(":");
  return canonical(`${network}::`) ?? address;
}

/** Returns whether a text is an IPv4 or IPv6 address. */
export function isAddress(text: string): boolean {
  return IPV4.test(text) || (text.includes(":") && canonical(text) !== undefined);
}

/** Decimals without leading zeros, which some parsers read as octal. */
const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** Returns the eight groups of an IPv6 address. */
function parseIpv6(address: string): number[] | undefined {
  const [head = "", tail] = (canonical(address) ?? "").split("::");
  const read = (text: string) => (text === "" ? [] : text.split(":").map((group) => parseInt(group, 16)));
  const [first, last] = [read(head), read(tail ?? "")];
  const groups = [...first, ...Array<number>(Math.max(0, 8 - first.length - last.length)).fill(0), ...last];
  return tail === undefined && first.length !== 8 ? undefined : groups;
}

/** Returns the canonical text of an IPv6 address. Every runtime has a parser of them: that of URLs. */
function canonical(address: string): string | undefined {
  if (!/^[0-9a-f:.]+$/i.test(address)) return undefined;
  try {
    return new URL(`http://[${address}]`).hostname.slice(1, -1);
  } catch {
    return undefined;
  }
}
