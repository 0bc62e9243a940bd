-- The entries: kind, generation, two words of state, hold (instant in us and ns, generation), and
-- fence: the generation of a node that waits to convert the entry, or 0.
local K, G, A, B, HU, HN, HG, F = {}, {}, {}, {}, {}, {}, {}, {}
-- Time to live in ms of the entries to be written; 0 means unlimited.
local D = {}

-- Reads entry i, if that has not been done. Kind -1 is a format that this script does not support.
local function read_entry(i)
  if K[i] then
    return
  end
  local v = found[i]
  G[i], A[i], B[i], HU[i], HN[i], HG[i], F[i] = 0, 0, 0, 0, 0, 0, 0
  if not v then
    K[i] = 0
  elseif byte(v, 1) ~= FORMAT then
    K[i], A[i] = -1, byte(v, 1) or 0
  elseif #v == 26 then
    _, K[i], G[i], A[i], B[i] = unpack_from('<BBddd', v, 1)
  elseif #v == 50 then
    _, K[i], G[i], A[i], B[i], HU[i], HN[i], HG[i] = unpack_from('<BBdddddd', v, 1)
  elseif #v == 58 then
    _, K[i], G[i], A[i], B[i], HU[i], HN[i], HG[i], F[i] = unpack_from('<BBddddddd', v, 1)
  else
    K[i] = -1
  end
end

-- Encodes entry i for storage; empty for one that is equal to no entry.
local function encode_stored(i)
  if F[i] > 0 then
    return pack('<BBddddddd', FORMAT, K[i], G[i], A[i], B[i], HU[i], HN[i], HG[i], F[i])
  elseif HU[i] > 0 then
    return pack('<BBdddddd', FORMAT, K[i], G[i], A[i], B[i], HU[i], HN[i], HG[i])
  elseif K[i] == 0 then
    return ''
  end
  return pack('<BBddd', FORMAT, K[i], G[i], A[i], B[i])
end

-- Encodes entry i for the reply.
local function encode_entry(i)
  if F[i] > 0 then
    return pack('<Bddddddd', K[i] + 192, G[i], A[i], B[i], HU[i], HN[i], HG[i], F[i])
  elseif HU[i] > 0 then
    return pack('<Bdddddd', K[i] + 128, G[i], A[i], B[i], HU[i], HN[i], HG[i])
  elseif K[i] == 0 then
    return '\0'
  end
  return pack('<Bddd', K[i], G[i], A[i], B[i])
end
