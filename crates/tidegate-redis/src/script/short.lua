-- The short script: takes on token buckets and nothing else, which covers most calls. It does the
-- same as the long script, without its overhead. For a take that it does not support it does
-- nothing and replies so, and the caller uses the long script.
--
-- KEYS: entries. ARGV[1]: for each take the number of its items, then for each item the numbers of
-- its entry and its arguments, one byte each. ARGV[2..]: arguments.

local call, pack, unpack_from, byte = redis.call, struct.pack, struct.unpack, string.byte

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])

local found = call('MGET', unpack(KEYS))
-- Arrival times (0: a full bucket, false: not supported here), remainders, generations, times to
-- live of the entries to be written, arguments.
local A, B, G, D, T = {}, {}, {}, {}, {}
-- Arrival times after the spend, for the items of one take.
local NA, NB = {}, {}

local blob, pos = ARGV[1], 1
local out, o = { pack('<d', now) }, 1
while pos <= #blob do
  local n = byte(blob, pos)
  local denied, unsupported, entries = false, false, ''
  for x = 1, n do
    local i, j = byte(blob, pos + 2 * x - 1, pos + 2 * x)
    local t = T[j]
    if not t then
      -- Kind, generation, time to live, fits, units, then pairs: time to full, ceiling, cost, debt.
      t = { unpack_from('<BddBddddddddd', ARGV[j + 1], 1) }
      T[j] = t
    end
    local a = A[i]
    if a == nil then
      local v = found[i]
      if not v then
        a = 0
      elseif #v == 26 then
        local format, kind
        format, kind, G[i], a, B[i] = unpack_from('<BBddd', v, 1)
        a = format == 1 and kind == 1 and a
      else
        a = false
      end
      A[i] = a
    end
    if not a or (a > 0 and G[i] ~= t[2]) or a >= now + t[8] then
      unsupported = true
      break
    end
    local tu, tr, m = a, B[i], t[5]
    entries = entries .. (a > 0 and pack('<Bddd', 1, t[2], a, tr) or '\0')
    if a < now then
      tu, tr = now, 0
    end
    tu, tr = tu + t[10], tr + t[11]
    if tr >= m then
      tu, tr = tu + 1, tr - m
    end
    NA[x], NB[x] = tu, tr
    if t[4] == 2 then
      denied = true
    elseif t[4] == 1 then
      tu, tr = tu - now - t[6], tr - t[7]
      denied = denied or tu > 0 or (tu == 0 and tr > 0)
    end
  end
  o = o + 1
  if unsupported then
    out[o] = '\7'
  elseif denied then
    out[o] = '\0' .. entries
  else
    out[o] = '\1' .. entries
    for x = 1, n do
      local i, j = byte(blob, pos + 2 * x - 1, pos + 2 * x)
      local t = T[j]
      if t[4] == 1 then
        A[i], B[i], G[i] = NA[x], NB[x], t[2]
        local ttl = math.ceil((NA[x] - now) / 1000) + 1
        D[i] = ttl > t[3] and ttl or t[3]
      end
    end
  end
  pos = pos + 2 * n + 1
end

for i, ttl in pairs(D) do
  call('SET', KEYS[i], pack('<BBddd', 1, 1, G[i], A[i], B[i]), 'PX', ttl)
end
return out
