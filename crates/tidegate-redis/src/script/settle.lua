-- Corrects one entry by the cost of its tariff. The stamp says where a reservation that has not
-- started had left the bucket.
local function correct(i, t, flags, started, sa, sb)
  local back, stamped, strange = flags % 2 == 1, floor(flags / 2) % 2 == 1, floor(flags / 4) % 2 == 1
  if t.kind == 1 then
    local m, tu, tr = t.m, 0, 0
    if K[i] == 1 then
      tu, tr = A[i], B[i]
    end
    local cu, cr = now + t.cu, t.cr
    local eu, er = tu, tr
    if eu > cu or (eu == cu and er > cr) then
      eu, er = cu, cr
    end
    if not back then
      if eu < now then
        eu, er = now, 0
      end
      local wu, wr = eu + t.su, er + t.sr
      if wr >= m then
        wu, wr = wu + 1, wr - m
      end
      local bu, br = now + t.du, t.dr
      if wu > bu or (wu == bu and wr > br) then
        if eu < bu or (eu == bu and er < br) then
          eu, er = bu, br
        end
        wu, wr = eu, er
      end
      K[i], G[i], A[i], B[i] = 1, t.g, wu, wr
    else
      if tu == 0 and tr == 0 then
        return
      end
      -- What is given back, less what others have built on.
      local gu, gr = t.su, t.sr
      if not started then
        if strange then
          return
        elseif stamped and (tu > sa or (tu == sa and tr > sb)) then
          gu, gr = gu - (tu - sa), gr - (tr - sb)
          if gr < 0 then
            gu, gr = gu - 1, gr + m
          elseif gr >= m then
            gu, gr = gu + 1, gr - m
          end
        end
      end
      if gu < 0 or (gu == 0 and gr == 0) then
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
      K[i], G[i], A[i], B[i] = 1, t.g, eu, er
    end
  else
    local ends, used = 0, 0
    if t.kind == 2 then
      ends, used = window(i, t)
      if back and (strange or (stamped and sa ~= ends)) then
        return
      end
    elseif K[i] == 3 then
      used = A[i]
    end
    local wanted = used + t.cost
    if back then
      wanted = used - t.cost
      if wanted < 0 then
        wanted = 0
      end
    else
      local most = t.most
      if used > most then
        most = used
      end
      if wanted > most then
        wanted = most
      end
    end
    if t.kind == 2 then
      K[i], G[i], A[i], B[i] = 2, t.g, ends, wanted
    else
      K[i], G[i], A[i], B[i] = 3, t.g, wanted, 0
    end
  end
  keep(i, t)
end

-- Forgets what is the same as no entry now, so that it does not come back with a clock that does.
local function forget_if_fresh(i, t)
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
    keep(i, t)
  end
end
