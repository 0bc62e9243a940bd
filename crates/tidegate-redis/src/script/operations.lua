local O = {}

-- Take: items, each with a new lease.
O[1] = function(n, pos)
  read_items(n, pos, true)
  return foreign_status(n) or decide(n, 0, 0)
end

-- Reserve: horizon, items.
O[2] = function(n, pos)
  local hu, hn
  hu, hn, pos = unpack_from('<dd', blob, pos)
  read_items(n, pos, true)
  return foreign_status(n) or decide(n, hu, hn)
end

-- Peek: items.
O[3] = function(n, pos)
  read_items(n, pos)
  local foreign = foreign_status(n)
  if foreign then
    return foreign
  end
  for x = 1, n do
    if Z[x] then
      taken[x] = recorded_slots(Z[x]) - expired(Z[x])
    end
  end
  return encode_reply('\1', n)
end

-- Settle: the instant of the spend, items with a stamp each: flags, two words, the lease.
O[4] = function(n, pos)
  local start_us, start_ns
  start_us, start_ns, pos = unpack_from('<dd', blob, pos)
  local started = start_us < now or (start_us == now and start_ns == 0)
  local flags, SA, SB = {}, {}, {}
  for x = 1, n do
    I[x], Z[x], J[x], flags[x], SA[x], SB[x], X[x], pos = unpack_from('<HHHBddc8', blob, pos)
    Z[x] = other(Z[x])
    read_entry(I[x])
  end
  local foreign = foreign_status(n)
  if foreign then
    return foreign
  end
  local status = '\1'
  for x = 1, n do
    local t = policy_args(J[x])
    if not Z[x] and t.kind == 2 and not window(I[x], t) then
      return '\4'
    elseif needs_sync(I[x], t) then
      status = '\2'
    end
  end
  local out = { status }
  for x = 1, n do
    local i, z, t = I[x], Z[x], policy_args(J[x])
    out[#out + 1] = encode_entry(i)
    if z then
      local released = 0
      if status == '\1' and flags[x] >= 8 then
        released = release_slots(z, X[x], SA[x])
      end
      out[#out + 1] = pack('<dd', sweep(z), released)
    elseif status == '\1' and t.charges then
      correct(i, t, flags[x], started, SA[x], SB[x])
      remove_if_fresh(i, t)
    end
  end
  return table.concat(out)
end

-- Calls a function for the lease of each item, and replies with the number of slots still held.
local function each_lease(n, pos, action)
  read_items(n, pos, true)
  local foreign = foreign_status(n)
  if foreign then
    return foreign
  end
  local slots = 0
  for x = 1, n do
    slots = slots + action(Z[x], X[x], J[x])
  end
  return '\1' .. pack('<d', slots)
end

-- Release: items with a lease each.
O[5] = function(n, pos)
  return each_lease(n, pos, function(z, id)
    return release_slots(z, id, NEVER)
  end)
end

-- Renew: items with a lease each; the arguments contain its length.
O[6] = function(n, pos)
  return each_lease(n, pos, function(z, id, j)
    sweep(z)
    if not call('ZSCORE', z, id) then
      return 0
    end
    lease(z, id, policy_args(j).most, false)
    return slots_of(z, id)
  end)
end

-- Hold: a span, an item. A shorter hold does not shorten a longer one.
O[7] = function(n, pos)
  local us, ns
  us, ns, pos = unpack_from('<dd', blob, pos)
  read_items(n, pos)
  local foreign = foreign_status(n)
  if foreign then
    return foreign
  end
  local i, t = I[1], policy_args(J[1])
  us = now + us
  if us > HU[i] or (us == HU[i] and ns > HN[i]) then
    HU[i], HN[i] = us, ns
  end
  HG[i] = t.g
  if K[i] == 0 then
    G[i] = t.g
  end
  mark_written(i, t)
  return '\1' .. pack('<dd', HU[i], HN[i])
end

-- Reset: an item. Foreign data is removed, too.
O[8] = function(n, pos)
  read_items(n, pos)
  local i, z = I[1], Z[1]
  local taken = recorded_slots(z)
  local foreign = K[i] < 0 or not taken
  taken = taken and taken - expired(z) or 0
  call('DEL', z)
  if K[i] < 0 then
    K[i] = 0
  end
  local reply = '\1' .. encode_entry(i) .. pack('<dB', taken, foreign and 1 or 0)
  K[i], HU[i], F[i], D[i] = 0, 0, 0, 0
  return reply
end

-- Swap: items, each with a time to live, the old and the new entry. All or none.
O[9] = function(n, pos)
  local swaps = {}
  for x = 1, n do
    local ttl, before, after
    I[x], Z[x], J[x], ttl, pos = unpack_from('<HHHd', blob, pos)
    before, after, pos = unpack_from('<Bc0Bc0', blob, pos)
    read_entry(I[x])
    if K[I[x]] < 0 or encode_stored(I[x]) ~= before then
      return '\0'
    end
    swaps[x] = { ttl, after }
  end
  for x = 1, n do
    local i = I[x]
    found[i], K[i] = swaps[x][2], nil
    if found[i] == '' then
      found[i] = false
    end
    read_entry(i)
    D[i] = swaps[x][1]
  end
  return '\1'
end

-- Adds a policy to the record z under a number higher than all others, and removes the oldest of
-- more than 257: the newest, which applies, and the 256 before it.
local function add_policy(z, newest, text)
  local id = floor(now / 1000)
  if newest and tonumber(newest) >= id then
    id = tonumber(newest) + 1
  end
  newest = string.format('%.0f', id)
  call('HSET', z, newest, text, 'newest', newest)
  if call('HLEN', z) > 258 then
    local oldest
    for _, name in ipairs(call('HKEYS', z)) do
      local number = tonumber(name)
      if number and (not oldest or number < tonumber(oldest)) then
        oldest = name
      end
    end
    call('HDEL', z, oldest)
  end
  return newest
end

-- Returns whether two texts describe the same policy. The first word is the mode in which buckets
-- are converted, which does not make a different policy.
local function same_policy(one, other)
  return one and other and sub(one, 4) == sub(other, 4)
end

-- Sync policies: the revisions of a limit that the caller has and the record lacks, oldest first.
-- Revisions already added by another node are not added again. Without revisions it only reads.
O[10] = function(n, pos)
  local z, count
  _, z, _, count, pos = unpack_from('<HHHH', blob, pos)
  z = other(z)
  local texts, repeated = {}, {}
  for x = 1, count do
    repeated[x], texts[x], pos = unpack_from('<BHc0', blob, pos)
  end
  local newest = call('HGET', z, 'newest')
  local newest_text = newest and call('HGET', z, newest)
  -- Another node may have added revisions up to the newest.
  local first = 1
  for x = count, 1, -1 do
    if repeated[x] == 0 and same_policy(newest_text, texts[x]) then
      first = x + 1
      break
    end
  end
  for x = first, count do
    newest = add_policy(z, newest, texts[x])
  end
  local all, out = call('HGETALL', z), {}
  for x = 1, #all, 2 do
    if all[x] ~= 'newest' then
      out[#out + 1] = pack('<dH', tonumber(all[x]), #all[x + 1]) .. all[x + 1]
    end
  end
  return table.concat(out)
end

-- Heartbeat: registers a node, and replies with the number of nodes and the format in use.
O[11] = function(n, pos)
  local z, node, silence
  local i
  i, z, _, silence, node, pos = unpack_from('<HHHdc8', blob, pos)
  z = other(z)
  call('ZADD', z, now, node)
  call('ZREMRANGEBYSCORE', z, 0, now - silence)
  -- A clock that stepped back must not keep nodes that are gone.
  call('ZREMRANGEBYSCORE', z, '(' .. string.format('%.0f', now + silence), '+inf')
  call('PEXPIRE', z, ceil(silence / 1000))
  local format = tonumber(found[i] or FORMAT) or 0
  if not found[i] then
    call('SET', KEYS[i], FORMAT)
  end
  return pack('<dd', call('ZCARD', z), format)
end

-- Confirm: the newest policy of a limit that the caller knows, and its number. A record that has
-- lost it gets it back. Replies with the number of the newest.
O[12] = function(n, pos)
  local z, number, text
  _, z, _, number, text, pos = unpack_from('<HHHdHc0', blob, pos)
  z = other(z)
  local newest = tonumber(call('HGET', z, 'newest')) or 0
  if newest < number then
    newest = number
    local name = string.format('%.0f', number)
    call('HSET', z, name, text, 'newest', name)
  end
  return pack('<d', newest)
end

-- The operations of each caller are executed in order. Operations after one whose entry must be
-- converted first are skipped, for the caller to send again.
local out = { pack('<d', now) }
for _ = 1, callers do
  local count, must_sync
  count, at = unpack_from('<B', blob, at)
  for _ = 1, count do
    local size, code, n = unpack_from('<HBB', blob, at)
    if must_sync then
      out[#out + 1] = '\5'
    else
      out[#out + 1] = O[code](n, at + 4)
      must_sync = code <= 4 and byte(out[#out], 1) == 2
    end
    at = at + size
  end
end

for i, ttl in pairs(D) do
  local value = encode_stored(i)
  if value == '' then
    call('DEL', KEYS[i])
  elseif ttl == 0 then
    call('SET', KEYS[i], value)
  else
    call('SET', KEYS[i], value, 'PX', ttl)
  end
end
return out
