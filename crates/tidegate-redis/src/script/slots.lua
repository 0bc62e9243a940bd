-- Slots: a sorted set with one member per lease, scored by its expiry, 'n' scored by the number of
-- slots taken, and for leases of more than one slot a second member, the lease and 's', scored by
-- their number.

local function slots_of(z, id)
  return tonumber(call('ZSCORE', z, id .. 's')) or 1
end

local function add_taken(z, n)
  local taken = tonumber(call('ZINCRBY', z, n, 'n'))
  if taken <= 0 then
    call('DEL', z)
    return 0
  end
  return taken
end

-- Returns the recorded number of slots taken; nil if the key contains foreign data.
local function recorded_slots(z)
  local n = redis.pcall('ZSCORE', z, 'n')
  if type(n) == 'table' then
    return nil
  end
  return tonumber(n) or 0
end

-- Returns the number of slots of leases that have expired, and the leases.
local function expired(z)
  local leases, n = call('ZRANGEBYSCORE', z, COUNTS, now), 0
  for x = 1, #leases do
    n = n + slots_of(z, leases[x])
  end
  return n, leases
end

local function sweep(z)
  local n, leases = expired(z)
  for x = 1, #leases do
    call('ZREM', z, leases[x], leases[x] .. 's')
  end
  if n > 0 then
    return add_taken(z, -n)
  end
  return recorded_slots(z)
end

-- Returns when `need` slots will have expired; 0 if unknown, or if too many leases would have to be
-- examined while the server is blocked.
local function free_at(z, need)
  local range = call('ZRANGEBYSCORE', z, '(' .. string.format('%.0f', now),
    '(' .. string.format('%.0f', NEVER), 'WITHSCORES', 'LIMIT', 0, 256)
  for x = 1, #range, 2 do
    need = need - slots_of(z, range[x])
    if need <= 0 then
      return tonumber(range[x + 1])
    end
  end
  return 0
end

-- Encodes the slots of an item for the reply.
local function encode_slots(z, taken, t)
  local free = 0
  if taken + t.cost > t.cap and t.cost <= t.cap then
    free = free_at(z, taken + t.cost - t.cap)
  end
  return pack('<dd', taken, free)
end

-- The set expires with its last lease.
local function lease(z, id, span, fresh)
  if span == 0 then
    call('ZADD', z, NEVER, id)
    call('PERSIST', z)
    return
  end
  call('ZADD', z, now + span, id)
  local ttl, rest = ceil(span / 1000) + 1000, call('PTTL', z)
  if fresh or (rest >= 0 and rest < ttl) then
    call('PEXPIRE', z, ttl)
  end
end

-- After the last slot without a lease is released, the set expires with its last lease.
local function end_with_leases(z)
  if call('ZCOUNT', z, NEVER, NEVER) == 0 then
    local last = call('ZRANGE', z, -1, -1, 'WITHSCORES')
    call('PEXPIRE', z, ceil((tonumber(last[2]) - now) / 1000) + 1000)
  end
end

-- Releases up to n slots of a lease; returns the number that were still held.
local function release_slots(z, id, n)
  sweep(z)
  local ends = tonumber(call('ZSCORE', z, id))
  if not ends then
    return 0
  end
  local held_slots = slots_of(z, id)
  if n >= held_slots then
    call('ZREM', z, id, id .. 's')
    if add_taken(z, -held_slots) > 0 and ends == NEVER then
      end_with_leases(z)
    end
    return held_slots
  end
  if n > 0 then
    call('ZADD', z, held_slots - n, id .. 's')
    add_taken(z, -n)
  end
  return n
end
