-- The tariffs: what there is to know of a policy and a cost.
local T = {}
local function tariff(j)
  local t = T[j]
  if t then
    return t
  end
  t = {}
  local s = ARGV[j + 1]
  t.kind = byte(s, 1)
  if t.kind == 1 then
    -- fits: 0 asks for nothing, 1 fits an empty bucket's refill, 2 never fits. Then the units of
    -- a microsecond, time to full, the furthest honest arrival time, the cost, the deepest debt.
    _, t.g, t.ttl, t.fits, t.m, t.fu, t.fr, t.cu, t.cr, t.su, t.sr, t.du, t.dr =
      unpack_from('<BddBddddddddd', s, 1)
    t.asks = t.fits > 0
  elseif t.kind == 2 then
    _, t.g, t.ttl, t.cost, t.cap, t.most, t.b0, t.b1, t.b2, t.b3 =
      unpack_from('<BdddddI4I4I4I4', s, 1)
    t.asks = t.cost > 0
  else
    _, t.g, t.ttl, t.cost, t.cap, t.most = unpack_from('<Bddddd', s, 1)
    t.asks = t.cost > 0
  end
  T[j] = t
  return t
end

-- Marks entry i to be written, and says for how long: never less than until it is the same as no
-- entry, so that its end gives nobody anything.
local function keep(i, t)
  if F[i] <= t.g then
    F[i] = 0
  end
  local ttl = t.ttl
  if ttl == 0 then
    D[i] = 0
    return
  end
  local last = 0
  if K[i] == 1 then
    last = A[i]
  elseif K[i] == 2 then
    last = A[i] * 1000000 + 60000000
  end
  if HU[i] > 0 then
    local reopened = HU[i] + (t.fu or 0) + 1
    if reopened > last then
      last = reopened
    end
  end
  local need = ceil((last - now) / 1000) + 1
  if need > ttl then
    ttl = need
  end
  D[i] = ttl
end

-- Whether entry i is under another policy than tariff t, or held by one until an instant that has
-- passed. The caller converts it. A full bucket is full under every policy.
local function is_stale(i, t)
  local k = K[i]
  if t.kind ~= 4 and k ~= 0 and (k ~= t.kind or G[i] ~= t.g) then
    if k ~= 1 or A[i] > now or (A[i] == now and B[i] > 0) then
      return true
    end
  end
  local hu = HU[i]
  return hu > 0 and HG[i] ~= t.g and (hu < now or (hu == now and HN[i] == 0))
end

-- Whether something must happen to entry i before the operation: the caller must learn a later
-- policy than it knows, or convert the entry. A fence tells those who still have the older policy
-- to stop changing the entry under the hands of whoever converts it.
local function behind(i, t)
  if G[i] > t.g or HG[i] > t.g or F[i] > t.g then
    return true
  end
  if t.asks and is_stale(i, t) then
    keep(i, t)
    F[i] = t.g
    return true
  end
  return false
end

local function held(i)
  local hu = HU[i]
  return hu > now or (hu == now and HN[i] > 0)
end

-- The end in seconds of the calendar window that counts for entry i and what was used in it; nil
-- if the caller's windows do not hold the time of this server.
local function window(i, t)
  if now < t.b0 * 1000000 then
    return nil
  end
  local ends
  if now < t.b1 * 1000000 then
    ends = t.b1
  elseif now < t.b2 * 1000000 then
    ends = t.b2
  elseif now < t.b3 * 1000000 then
    ends = t.b3
  else
    return nil
  end
  if K[i] == 2 then
    local a = A[i]
    if a == ends or (a > ends and (a == t.b2 or a == t.b3)) then
      return a, B[i]
    end
  end
  return ends, 0
end
