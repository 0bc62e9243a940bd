-- The long script of the store, format 1: executes up to 64 operations in one call, in order.
--
-- It adds, carries and compares; it never divides by a rate, multiplies costs or converts a bucket
-- from one policy to another. An instant or a span is a pair of integers, microseconds and a
-- remainder in units of 1/(1000 N) of a microsecond, both exact in a double. The reply contains
-- what was stored before each operation; the caller computes the rest of its answer from that.
--
-- KEYS: the entries (strings), then other keys (sorted sets of slots, hashes of policies). ARGV[1]:
-- number of entries, then the operations. ARGV[2..]: arguments, one per policy and cost. Entries
-- are read once and written once, after the last operation.

local FORMAT = 1
local NEVER = 9007199254740992 -- 2^53: expiry of a lease that does not expire
local COUNTS = 8589934592 -- 2^33: scores below are numbers of slots, scores above are instants

local call, pack, unpack_from = redis.call, struct.pack, struct.unpack
local byte, sub, floor, ceil = string.byte, string.sub, math.floor, math.ceil
local _

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local blob = ARGV[1]
local entries, callers, at = unpack_from('<HH', blob, 1)
local found = {}
if entries > 0 then
  found = call('MGET', unpack(KEYS, 1, entries))
end
