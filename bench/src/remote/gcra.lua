-- Plain GCRA: one arrival time per key, as in most guides.
-- KEYS: the key. ARGV: microseconds per token, tokens of a full bucket.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval = tonumber(ARGV[1])
local arrival = tonumber(redis.call('GET', KEYS[1])) or now
if arrival < now then
  arrival = now
end
arrival = arrival + interval
local ahead = arrival - now
if ahead > interval * ARGV[2] then
  return { 0, ahead }
end
redis.call('SET', KEYS[1], arrival, 'PX', math.ceil(ahead / 1000))
return { 1, ahead }
