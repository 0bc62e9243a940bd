-- Decoded arguments: everything the script knows of a policy and a cost.
local T = {}
local function policy_args(j)
  local t = T[j]
  if t then
    return t
  end
  t = {}
  local s = ARGV[j + 1]
  t.kind = byte(s, 1)
  if t.kind == 1 then
    -- fits: 0 costs nothing, 1 fits into a full bucket, 2 never fits. Then the units per
    -- microsecond, the time to full, the maximum plausible arrival time, the cost, the maximum
    -- debt.
    _, t.g, t.ttl, t.fits, t.m, t.fu, t.fr, t.cu, t.cr, t.su, t.sr, t.du, t.dr =
      unpack_from('<BddBddddddddd', s, 1)
    t.charges = t.fits > 0
  elseif t.kind == 2 then
    _, t.g, t.ttl, t.cost, t.cap, t.most, t.b0, t.b1, t.b2, t.b3 =
      unpack_from('<BdddddI4I4I4I4', s, 1)
    t.charges = t.cost > 0
  else
    _, t.g, t.ttl, t.cost, t.cap, t.most = unpack_from('<Bddddd', s, 1)
    t.charges = t.cost > 0
  end
  T[j] = t
  return t
end

-- Marks entry i to be written and sets its time to live: never less than until it is equal to no
-- entry, so that its expiry grants nothing.
local function mark_written(i, t)
  if F[i] <= t.g then
    F[i] = 0
  end
  local ttl = t.ttl
  if ttl == 0 then
    D[i] = 0
    return
  end
  local expiry = 0
  if K[i] == 1 then
    expiry = A[i]
  elseif K[i] == 2 then
    expiry = A[i] * 1000000 + 60000000
  end
  if HU[i] > 0 then
    local reopened = HU[i] + (t.fu or 0) + 1
    if reopened > expiry then
      expiry = reopened
    end
  end
  local need = ceil((expiry - now) / 1000) + 1
  if need > ttl then
    ttl = need
  end
  D[i] = ttl
end

-- Returns whether entry i is under another policy than t, or has an expired hold from one. The
-- caller converts it. A full bucket is full under every policy.
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

-- Returns whether entry i must be synced before the operation: the caller must learn a newer
-- policy, or convert the entry. A fence keeps nodes with the older policy from changing the entry
-- while it is being converted.
local function needs_sync(i, t)
  if G[i] > t.g or HG[i] > t.g or F[i] > t.g then
    return true
  end
  if t.charges and is_stale(i, t) then
    mark_written(i, t)
    F[i] = t.g
    return true
  end
  return false
end

local function is_held(i)
  local hu = HU[i]
  return hu > now or (hu == now and HN[i] > 0)
end

-- Returns the end in seconds of the calendar window that applies to entry i, and what was used in
-- it; nil if the windows of the caller do not include the server's time.
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
