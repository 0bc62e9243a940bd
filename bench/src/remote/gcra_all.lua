-- Plain GCRA for several keys: spends all or none.
-- KEYS: the keys. ARGV: microseconds per token and tokens of a full bucket, for each key.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local found = redis.call('MGET', unpack(KEYS))
local answer = { 1 }
for i = 1, #KEYS do
  local interval = tonumber(ARGV[2 * i - 1])
  local arrival = tonumber(found[i]) or now
  if arrival < now then
    arrival = now
  end
  local ahead = arrival + interval - now
  if ahead > interval * ARGV[2 * i] then
    answer[1] = 0
  end
  answer[i + 1] = ahead
end
if answer[1] == 1 then
  for i = 1, #KEYS do
    redis.call('SET', KEYS[i], now + answer[i + 1], 'PX', math.ceil(answer[i + 1] / 1000))
  end
end
return answer
