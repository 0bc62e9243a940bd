-- Returns key j of the non-entry keys, if there is one.
local function other(j)
  return j > 0 and KEYS[entries + j]
end

-- The items of an operation: entry, other key, arguments, and the lease.
local I, Z, J, X = {}, {}, {}, {}
local function read_items(n, pos, leases)
  for x = 1, n do
    I[x], Z[x], J[x], pos = unpack_from('<HHH', blob, pos)
    Z[x] = other(Z[x])
    if leases and Z[x] then
      X[x], pos = unpack_from('<c8', blob, pos)
    end
    if I[x] > 0 then
      read_entry(I[x])
    end
  end
  return pos
end

-- Returns the error status if a key contains data that this script does not support.
local function foreign_status(n)
  for x = 1, n do
    if I[x] > 0 and K[I[x]] < 0 then
      return '\3' .. string.char(A[I[x]])
    elseif Z[x] and not recorded_slots(Z[x]) then
      return '\6'
    end
  end
end

-- Slots taken of each item that has slots.
local taken = {}
local function encode_reply(status, n)
  local out = status
  for x = 1, n do
    out = out .. encode_entry(I[x])
    if Z[x] then
      out = out .. encode_slots(Z[x], taken[x], policy_args(J[x]))
    end
  end
  return out
end

-- Status: 0 denied, 1 done, 2 an entry is under another policy and nothing was done, 3 unknown
-- format, 4 windows that do not include the present, 5 skipped, 6 a foreign key.

-- For each item: the effective arrival time, the calendar window and what was used.
local EU, ER, W, U = {}, {}, {}, {}

-- Prepares item x besides its entry. False if its windows do not include the present.
local function prepare_item(x, i, t)
  if t.kind == 2 then
    W[x], U[x] = window(i, t)
    return W[x] ~= nil
  elseif t.kind == 3 then
    U[x] = K[i] == 3 and A[i] or 0
  elseif t.kind == 4 then
    taken[x] = sweep(Z[x])
    U[x] = taken[x]
  end
  return true
end

-- Returns when the cost of item x fits into its bucket, in microseconds and nanoseconds.
local function earliest(x, i, t)
  local m, tu, tr = t.m, 0, 0
  if K[i] == 1 then
    tu, tr = A[i], B[i]
    local cu = now + t.cu
    if tu > cu or (tu == cu and tr > t.cr) then
      tu, tr = cu, t.cr
    end
  end
  if HU[i] > 0 then
    local ru, rr = HU[i] + t.fu, HN[i] * (m / 1000) + t.fr
    if rr >= m then
      ru, rr = ru + 1, rr - m
    end
    if ru > tu or (ru == tu and rr > tr) then
      tu, tr = ru, rr
    end
  end
  EU[x], ER[x] = tu, tr
  if tu < now then
    tu, tr = now, 0
  end
  -- The arrival time after the spend, minus the time to full.
  tu, tr = tu + t.su - t.fu, tr + t.sr - t.fr
  if tr < 0 then
    tu, tr = tu - 1, tr + m
  elseif tr >= m then
    tu, tr = tu + 1, tr - m
  end
  if tu < now then
    return now, 0
  end
  local ns = ceil(tr / (m / 1000))
  if ns == 1000 then
    return tu + 1, 0
  end
  return tu, ns
end

-- Spends the cost of item x as of an instant.
local function spend(x, i, t, su, sn)
  if t.kind == 1 then
    local m, tu, tr = t.m, EU[x], ER[x]
    local sr = sn * (m / 1000)
    if tu < su or (tu == su and tr < sr) then
      tu, tr = su, sr
    end
    tu, tr = tu + t.su, tr + t.sr
    if tr >= m then
      tu, tr = tu + 1, tr - m
    end
    K[i], G[i], A[i], B[i] = 1, t.g, tu, tr
  elseif t.kind == 2 then
    K[i], G[i], A[i], B[i] = 2, t.g, W[x], U[x] + t.cost
  elseif t.kind == 3 then
    K[i], G[i], A[i], B[i] = 3, t.g, U[x] + t.cost, 0
  else
    local z, id = Z[x], X[x]
    if t.cost ~= 1 then
      call('ZADD', z, t.cost, id .. 's')
    end
    call('ZINCRBY', z, t.cost, 'n')
    lease(z, id, t.most, U[x] == 0)
    return
  end
  mark_written(i, t)
end

-- Repairs an entry on denial: nothing is spent, but a clock that stepped back must not harm twice.
local function repair(i, t)
  if t.kind ~= 4 and K[i] ~= 0 and G[i] ~= t.g then
    -- A full bucket of an older policy equals no entry, and must not reappear with the clock.
    K[i], A[i], B[i] = 0, 0, 0
    mark_written(i, t)
  elseif t.kind == 1 and K[i] == 1 then
    -- Cap an arrival time that is too far ahead.
    local cu = now + t.cu
    if A[i] > cu or (A[i] == cu and B[i] > t.cr) then
      A[i], B[i] = cu, t.cr
      mark_written(i, t)
    end
  end
end

-- Take and reserve: spends all items at one instant, not later than the horizon, or nothing.
local function decide(n, hu, hn)
  local blocked, must_sync = false, false
  local su, sn = now, 0
  for x = 1, n do
    local i, t = I[x], policy_args(J[x])
    if not prepare_item(x, i, t) then
      return '\4'
    end
    if needs_sync(i, t) then
      must_sync = true
    elseif not t.charges then
      -- Only reported.
    elseif t.kind == 1 then
      local eu, en = earliest(x, i, t)
      if t.fits == 2 then
        blocked = true
      elseif eu > su or (eu == su and en > sn) then
        su, sn = eu, en
      end
    elseif U[x] + t.cost > t.cap or is_held(i) then
      blocked = true
    end
  end
  if must_sync then
    return encode_reply('\2', n)
  end
  if not blocked and (su > now or sn > 0) then
    local delay = su - now
    blocked = delay > hu or (delay == hu and sn > hn)
    for x = 1, n do
      local t = policy_args(J[x])
      -- Nothing is booked in a later calendar window.
      blocked = blocked or (t.kind == 2 and t.charges and su >= W[x] * 1000000)
    end
  end
  local reply = encode_reply(blocked and '\0' or '\1', n)
  for x = 1, n do
    local i, t = I[x], policy_args(J[x])
    if t.charges and blocked then
      repair(i, t)
    elseif t.charges then
      spend(x, i, t, su, sn)
    end
  end
  return reply
end
