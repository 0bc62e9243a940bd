-- Returns the arrival time of bucket i as stored, and capped at the maximum plausible one.
local function arrival(i, t)
  local tu, tr = 0, 0
  if K[i] == 1 then
    tu, tr = A[i], B[i]
  end
  local cu = now + t.cu
  if tu > cu or (tu == cu and tr > t.cr) then
    return tu, tr, cu, t.cr
  end
  return tu, tr, tu, tr
end

-- Charges bucket i more, into debt if necessary, but not beyond the maximum of its policy.
local function charge_more(i, t)
  local m, _, _, eu, er = t.m, arrival(i, t)
  if eu < now then
    eu, er = now, 0
  end
  local wu, wr = eu + t.su, er + t.sr
  if wr >= m then
    wu, wr = wu + 1, wr - m
  end
  local bu, br = now + t.du, t.dr
  if wu > bu or (wu == bu and wr > br) then
    -- A reservation may have moved the arrival time past the bound: it stays there.
    if eu < bu or (eu == bu and er < br) then
      eu, er = bu, br
    end
    wu, wr = eu, er
  end
  K[i], G[i], A[i], B[i] = 1, t.g, wu, wr
end

-- Refunds tokens to bucket i, minus what others have reserved after a reservation that has not
-- started left it at (sa, sb).
local function refund(i, t, sa, sb)
  local m, tu, tr, eu, er = t.m, arrival(i, t)
  local gu, gr = t.su, t.sr
  if sa and (tu > sa or (tu == sa and tr > sb)) then
    gu, gr = gu - (tu - sa), gr - (tr - sb)
    if gr < 0 then
      gu, gr = gu - 1, gr + m
    elseif gr >= m then
      gu, gr = gu + 1, gr - m
    end
  end
  if K[i] ~= 1 or gu < 0 or (gu == 0 and gr == 0) then
    return
  end
  if eu > now or (eu == now and er > 0) then
    eu, er = eu - gu, er - gr
    if er < 0 then
      eu, er = eu - 1, er + m
    end
    if eu < now then
      eu, er = now, 0
    end
  end
  G[i], A[i], B[i] = t.g, eu, er
end

-- Returns the usage of a quota or an allowance after a correction.
local function corrected_usage(used, t, refunds)
  if refunds then
    return used > t.cost and used - t.cost or 0
  end
  -- A lowered quota may leave more used than its bound: a charge then adds nothing.
  local most = used > t.most and used or t.most
  return used + t.cost < most and used + t.cost or most
end

-- Corrects entry i by the cost in t. Flags: 1 refund, 2 the words of a stamp follow, 4 there is a
-- stamp that cannot be compared with the stored state.
local function correct(i, t, flags, started, sa, sb)
  local refunds, stamped = flags % 2 == 1, floor(flags / 2) % 2 == 1
  local uncomparable = floor(flags / 4) % 2 == 1
  if t.kind == 1 and not refunds then
    charge_more(i, t)
  elseif t.kind == 1 and started then
    refund(i, t)
  elseif t.kind == 1 and uncomparable then
    return
  elseif t.kind == 1 then
    refund(i, t, stamped and sa, sb)
  elseif t.kind == 2 then
    local ends, used = window(i, t)
    if refunds and (uncomparable or (stamped and sa ~= ends)) then
      -- The refund is for an earlier window.
      return
    end
    K[i], G[i], A[i], B[i] = 2, t.g, ends, corrected_usage(used, t, refunds)
  else
    local used = K[i] == 3 and A[i] or 0
    K[i], G[i], A[i], B[i] = 3, t.g, corrected_usage(used, t, refunds), 0
  end
  mark_written(i, t)
end

-- Removes an entry that is equal to none now, so that it does not reappear if the clock steps back.
local function remove_if_fresh(i, t)
  local fresh
  if K[i] == 1 then
    fresh = A[i] < now or (A[i] == now and B[i] == 0)
  elseif K[i] == 2 then
    local ends, used = window(i, t)
    fresh = ends ~= A[i] or used == 0
  elseif K[i] == 3 then
    fresh = A[i] == 0
  end
  if fresh then
    K[i], A[i], B[i] = 0, 0, 0
    mark_written(i, t)
  end
end
